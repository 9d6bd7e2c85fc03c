"""One Spark session for all tests here; a fresh store for each."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from inkgrove.cli.main import main
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser
from tests.store.conftest import place, postgres
from tests.support.templates import copy_empty_store

__all__ = ["place", "postgres"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"), {"spark.master": "local[2]"})
    yield session
    session.stop()


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Other settings of `spark.sql` for a while."""
    names = {f"spark.sql.{name.replace('__', '.')}": value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """Compile nothing: for a few rows that takes longer than anything else."""
    with settings(spark, codegen__wholeStage="false", codegen__factoryMode="NO_CODEGEN"):
        yield


@pytest.fixture
def quick(spark: SparkSession, uncompiled: None) -> Iterator[None]:
    """Nor plan anything twice: for plans that are long."""
    # Else rows that a test hands over are computed by the planner, again for each plan that begins with them.
    rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    with settings(spark, adaptive__enabled="false", optimizer__excludedRules=rule):
        yield


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands that run in this process use the session of the tests."""

    @contextmanager
    def shared(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("inkgrove.pipeline.runtime.session.session_for", shared)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


Ended = tuple[int, str, list[str]]
"""The exit code of a command, what it printed, and the lines it complained with."""


@pytest.fixture
def run_here(one_session: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command in this process: to start a Spark of its own takes ten times as long as most of them."""

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err.splitlines()

    return run


@pytest.fixture
def materialiser(spark: SparkSession, place: Path | str) -> Iterator[Materialiser]:
    """The views of a new store, on either database."""
    opened = Materialiser(spark, str(place))
    yield opened
    opened.close()


@pytest.fixture
def on_sqlite(spark: SparkSession, tmp_path: Path) -> Iterator[Materialiser]:
    """The views of a new store on SQLite."""
    opened = Materialiser(spark, str(copy_empty_store(tmp_path / "home")))
    yield opened
    opened.close()
