"""One Spark session for all tests here; a fresh store for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from inkgrove.pipeline.materialiser import Materialiser
from inkgrove.pipeline.session import start_session
from tests.store.conftest import place, postgres

__all__ = ["place", "postgres"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"), {"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[None]:
    """Compile nothing: for a few rows that takes longer than anything else."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, old or "")


@pytest.fixture
def materialiser(spark: SparkSession, place: Path | str) -> Iterator[Materialiser]:
    """The views of a new store, on either database."""
    opened = Materialiser(spark, str(place))
    yield opened
    opened.close()


@pytest.fixture
def on_sqlite(spark: SparkSession, tmp_path: Path) -> Iterator[Materialiser]:
    """The views of a new store on SQLite."""
    opened = Materialiser(spark, str(tmp_path / "home"))
    yield opened
    opened.close()
