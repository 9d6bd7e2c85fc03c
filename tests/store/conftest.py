"""Every contract test runs on both databases, each on a fresh one."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from inkgrove.store.logs import LogStore, open_store
from tests.store.postgres import HOW_TO_GET_IT, PostgresServer, find_programs
from tests.support.components import require_component
from tests.support.templates import copy_empty_store

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of the run."""
    programs = find_programs()
    require_component("PostgreSQL", programs, HOW_TO_GET_IT)
    assert programs is not None
    server = PostgresServer(programs)
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a new store is."""
    if request.param == "sqlite":
        return copy_empty_store(tmp_path / "home")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_store(f"store{next(_NUMBERS)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where there is no store yet."""
    if request.param == "sqlite":
        return tmp_path / "home"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database(f"bare{next(_NUMBERS)}")


@pytest.fixture
def store(place: Path | str) -> Iterator[LogStore]:
    """A new store."""
    opened = open_store(place)
    yield opened
    opened.close()
