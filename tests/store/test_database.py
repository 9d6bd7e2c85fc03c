"""Reads on a connection that a thread keeps: each sees one state, the next one whatever was committed since."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from inkgrove.core.errors import InstanceError, StoreUnavailable
from inkgrove.store.db import Database, parse_store_url
from tests.support.errors import raises


@pytest.fixture
def database(tmp_path: Path) -> Database:
    opened = Database(parse_store_url(tmp_path))
    opened.write(lambda connection: connection.execute(text("CREATE TABLE numbers (number INTEGER)")))
    return opened


def add(database: Database) -> None:
    database.write(lambda connection: connection.execute(text("INSERT INTO numbers VALUES (1)")))


def count(database: Database) -> int:
    return database.read_at_once(lambda connection: connection.scalar(text("SELECT count(*) FROM numbers")) or 0)


def test_read_sees_one_state_and_the_next_read_a_newer_one(database: Database) -> None:
    def look(connection: Connection) -> tuple[int, int]:
        before = connection.scalar(text("SELECT count(*) FROM numbers"))
        add(database)
        return before, connection.scalar(text("SELECT count(*) FROM numbers"))

    assert database.read_at_once(look) == (0, 0)
    assert count(database) == 1
    add(database)
    assert count(database) == 2
    database.close()


def test_read_that_fails_leaves_nothing_behind(database: Database) -> None:
    def refuse(connection: Connection) -> None:
        connection.scalar(text("SELECT count(*) FROM numbers"))
        raise InstanceError("instance.unknown-field", "no such field")

    with raises("instance.unknown-field"):
        database.read_at_once(refuse)
    with pytest.raises(StoreUnavailable):
        database.read_at_once(lambda connection: connection.scalar(text("SELECT nothing FROM nowhere")))
    with pytest.raises(StoreUnavailable):
        database.read_at_once(lambda connection: connection.connection.cursor().execute("no SQL"))
    add(database)
    assert count(database) == 1
    # No reader is left in its transaction: the log of writes can be emptied.
    with closing(sqlite3.connect(str(database.url.database), timeout=0)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    database.close()


def test_reads_go_on_after_the_database_was_closed(database: Database) -> None:
    assert count(database) == 0
    database.close()
    assert count(database) == 0
    database.close()


def test_threads_that_keep_a_connection_leave_connections_for_all_others(database: Database) -> None:
    threads = 40  # more than any pool that has a bound would give
    together = Barrier(threads)

    def look(connection: Connection) -> int:
        together.wait(20)
        return connection.scalar(text("SELECT count(*) FROM numbers")) or 0

    with ThreadPoolExecutor(threads) as readers:
        assert sum(readers.map(lambda _: database.read_at_once(look), range(threads))) == 0
        with ThreadPoolExecutor(1) as other:  # the readers still keep theirs
            found = other.submit(database.read, lambda connection: connection.scalar(text("SELECT 1")))
            assert found.result(10) == 1
    database.close()


def test_pool_without_a_free_connection_is_a_store_that_cannot_be_used_now(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match="all connections are in use: try again"), database.translated():
        raise PoolTimeoutError("QueuePool limit of size 5 overflow 10 reached, connection timed out, timeout 30.00")
    database.close()
