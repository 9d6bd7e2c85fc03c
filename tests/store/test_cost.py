"""What an append costs does not grow with the log or the store."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from inkgrove.core import SecretKey
from inkgrove.messages import SchemaMeta, cbor, encode_message
from inkgrove.store.db import Database, parse_store_url
from inkgrove.store.federation import offered_logs, update_public_index
from inkgrove.store.logs import (
    InstanceKey,
    LogStore,
    drop_payloads,
    find_entry,
    find_fork_proof,
    find_schema_of_log,
    find_unresolved_references,
    messages_between,
    messages_of,
    newest_offset,
    open_store,
    read_entries,
    read_ingests,
    read_next_entry,
    verified_among,
)
from tests.support.logs import LogBuilder, key

_FRAME = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
_LITERAL = re.compile(r"x'[0-9a-f]*'|'(?:[^']|'')*'|\bNULL\b|-?\b\d+\b", re.IGNORECASE)


@contextmanager
def recorded(database: Database) -> Iterator[list[str]]:
    """The statements that are run meanwhile, with their values: as SQLite sees them, whoever hands them over."""
    statements: list[str] = []

    def note(statement: str) -> None:
        if not statement.startswith(_FRAME):
            statements.append(statement)

    def watch(driver: Any, _record: object, _proxy: object) -> None:
        driver.set_trace_callback(note)

    def leave(driver: Any, _record: object) -> None:
        driver.set_trace_callback(None)

    event.listen(database.engine, "checkout", watch)
    event.listen(database.engine, "checkin", leave)
    yield statements
    event.remove(database.engine, "checkout", watch)
    event.remove(database.engine, "checkin", leave)


def count(statements: list[str]) -> int:
    """How many there are; one that is run for many rows counts once."""
    return len(list(groupby(_LITERAL.sub("?", statement) for statement in statements)))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    open_store(tmp_path).close()
    opened = Database(parse_store_url(tmp_path))
    yield opened
    opened.close()


def instance_log(secret: SecretKey, height: int) -> LogBuilder:
    """Creates, each followed by an update that names it by its hash."""
    log = LogBuilder(secret)
    schema: list[Any] = [bytes(key(9).public), 1, 2]
    while len(log.entries) < height:
        log.append(cbor.encode({"kind": "create", "schema": schema, "fields": []}))
        named = bytes(log.hash(len(log.entries)))
        log.append(cbor.encode({"kind": "update", "schema": schema, "instance": named, "fields": []}))
    return log


def offers(*logs: LogBuilder, first: int, last: int) -> list[tuple[Any, bytes | None]]:
    return [
        (entry, payload)
        for log in logs
        for entry, payload in zip(log.entries[first - 1 : last], log.payloads[first - 1 : last], strict=True)
    ]


def test_number_of_statements_depends_on_neither_height_nor_batch(database: Database) -> None:
    store = LogStore(database)
    short, long = instance_log(key(1), 42), instance_log(key(2), 442)
    many = [instance_log(SecretKey.from_seed(n.to_bytes(32, "big")), 42) for n in range(1, 20)]
    store.ingest(offers(short, *many, first=1, last=40) + offers(long, first=1, last=440))
    counts = []
    for batch in (
        offers(short, first=41, last=41),
        offers(long, first=441, last=441),
        offers(*many, first=41, last=42),
    ):
        with recorded(database) as statements:
            store.ingest(batch)
        counts.append(count(statements))
    assert counts == [counts[0]] * 3
    assert counts[0] <= 8


def test_no_statement_scans_a_table_that_grows(database: Database) -> None:
    store = LogStore(database)
    log, other = instance_log(key(1), 80), instance_log(key(2), 10)
    store.ingest(offers(log, first=1, last=20) + offers(other, first=1, last=4))
    with recorded(database) as statements:
        store.ingest(offers(log, first=21, last=40) + offers(other, first=5, last=6))
        store.ingest(offers(log, first=41, last=60), must_be_next=True)
        store.ingest([(log.entry(80), None), (log.entry(61), None)])
        store.ingest([(log.fork_at(50).entries[-1], None)])
        store.read(read_next_entry, key(2).public, 1)
        store.read(find_entry, log.hash(3))
        store.read(read_entries, key(1).public, 1, 3, 9)
        store.read(verified_among, [log.hash(3)])
        store.read(find_fork_proof, key(1).public, 1)
        store.read(messages_of, [InstanceKey(1, 3), InstanceKey(2, 1)])
        store.read(messages_between, 1, 3, 9)
        store.read(find_unresolved_references, [log.hash(3)])
        store.read(find_schema_of_log, 1)
        store.write(drop_payloads, [log.hash(3)])
        _, end = store.read(read_ingests, store.read(newest_offset))
        store.read(read_ingests, end, 5)
    scans = set()
    with database.reading() as connection:
        for statement in statements:
            if statement.startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")
                scans |= {row.detail for row in plan if row.detail.startswith("SCAN")}
    growing = ("entries", "logs", "ingests", "schemas", "log_schemas", "fork_proofs")
    # An index that gives the order and a limit is walked, not scanned.
    assert {scan for scan in scans if scan.split()[1] in growing} <= {"SCAN ingests"}


def test_following_a_page_of_one_log_costs_each_entry_the_same(tmp_path: Path) -> None:
    """Counted in hundreds of SQLite's own steps."""

    def steps_for(creates: int) -> int:
        open_store(tmp_path / str(creates)).close()
        database = Database(parse_store_url(tmp_path / str(creates)))
        log = LogBuilder(key(1))
        for _ in range(creates):
            log.append(cbor.encode({"kind": "create", "schema": [bytes(key(9).public), 1, 2], "fields": []}))
        LogStore(database).ingest(offers(log, first=1, last=creates))
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        with database.writing() as connection:
            connection.connection.driver_connection.set_progress_handler(step, 100)  # type: ignore[union-attr]
            assert update_public_index(connection, 0) is not None
        database.close()
        return steps

    assert steps_for(1_000) < 6 * steps_for(250)


def test_page_of_offered_logs_takes_as_many_statements_however_many_there_are(database: Database) -> None:
    store = LogStore(database)
    found = []
    for some in (range(1, 4), range(4, 13)):
        for number in some:
            log = LogBuilder(key(number))
            log.append(encode_message(SchemaMeta("things")))
            log.append(encode_message(SchemaMeta("others")))
            branch = log.fork_at(2).entries[-1] if number % 2 else log.entry(2)
            store.ingest([*offers(log, first=1, last=2), (branch, None)])
        with recorded(database) as statements:
            offered, _ = database.read(lambda c: offered_logs(c, None, after=0, limit=100, now=0))
        found.append((len(offered), sum(log.proof is not None for log in offered), len(statements)))
    assert found == [(3, 2, found[0][2]), (12, 6, found[0][2])]
    assert found[0][2] <= 8
