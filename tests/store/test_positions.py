"""Ingest positions: a reader that goes from offset to offset misses nothing and sees nothing twice."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from sqlalchemy import update

from inkgrove.core import SecretKey
from inkgrove.store.db import Database, ingests, parse_store_url
from inkgrove.store.logs import (
    START,
    Ingest,
    LogStore,
    Offset,
    by_log,
    ingest_batch,
    newest_offset,
    open_store,
    prepare_items,
    read_ingests,
)
from tests.store.postgres import PostgresServer
from tests.support.logs import LogBuilder, key


def put(store: LogStore, log: LogBuilder, first: int = 1) -> None:
    store.ingest(list(zip(log.entries[first - 1 :], log.payloads[first - 1 :], strict=True)))


def test_pages_are_the_whole(store: LogStore) -> None:
    for number in (1, 2, 3):
        put(store, LogBuilder(key(number)).grow(4))
    everything, end = store.read(read_ingests)
    assert len(everything) == 12
    assert end == store.read(newest_offset) == everything[-1].offset
    pages: list[Ingest] = []
    after = START
    while True:
        page, after = store.read(read_ingests, after, 5)
        if not page:
            break
        assert len(page) <= 5
        pages += page
    assert pages == everything
    assert store.read(read_ingests, end) == ([], end)


def test_empty_store_starts_at_the_start(store: LogStore) -> None:
    assert store.read(newest_offset) == START
    assert store.read(read_ingests) == ([], START)


def test_position_that_commits_late_is_not_missed(postgres: PostgresServer) -> None:
    place = postgres.create_database("late")
    with open_store(place) as store:
        _commit_late(place, store)


def _commit_late(place: str, store: LogStore) -> None:
    early, late = LogBuilder(key(1)).grow(2), LogBuilder(key(2)).grow(2)
    put(store, LogBuilder(key(3)).grow(1))
    _, after = store.read(read_ingests)
    other = Database(parse_store_url(place))
    with other.writing() as connection:
        batch = by_log(prepare_items(zip(early.entries, early.payloads, strict=True))[0])
        ingest_batch(connection, batch, must_be_next=False)
        put(store, late)  # has higher positions, and is committed first
        assert store.heights().keys() == {(key(2).public, 1), (key(3).public, 1)}
        assert store.read(read_ingests, after) == ([], after)
        assert store.read(newest_offset) == after
    rows, after = store.read(read_ingests, after)
    assert {row.hash for row in rows} == {log.hash(n) for log in (early, late) for n in (1, 2)}
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})
    assert store.read(read_ingests, after) == ([], after)
    other.close()


def test_reader_beside_many_writers_sees_everything_once(store: LogStore) -> None:
    logs = [LogBuilder(SecretKey.from_seed(n.to_bytes(32, "big"))).grow(12) for n in range(1, 9)]
    is_done = Event()

    def write(log: LogBuilder) -> None:
        for entry, payload in zip(log.entries, log.payloads, strict=True):
            assert store.ingest([(entry, payload)], must_be_next=True)[0].error is None

    def follow() -> list[Ingest]:
        seen: list[Ingest] = []
        after = START
        while True:
            was_done = is_done.is_set()
            rows, after = store.read(read_ingests, after, 7)
            seen += rows
            if was_done and not rows:
                return seen

    with ThreadPoolExecutor(9) as pool:
        reader = pool.submit(follow)
        for writer in [pool.submit(write, log) for log in logs]:
            writer.result()
        is_done.set()
        seen = reader.result()
    assert len(seen) == len({row.offset for row in seen}) == 96
    assert {row.hash for row in seen} == {log.hash(n) for log in logs for n in range(1, 13)}


def test_offset_from_before_a_restore_leads_on(postgres: PostgresServer) -> None:
    place = postgres.create_database("restored")
    with open_store(place) as store:
        for number in (1, 2):
            put(store, LogBuilder(key(number)).grow(3))
        (*_, fourth, _, _), end = store.read(read_ingests)
    # As a dump brings them from a server that had seen many more transactions.
    database = Database(parse_store_url(place))
    with database.writing() as connection:
        connection.execute(update(ingests).values(xid=ingests.c.xid + 10**12))
    database.close()
    before = [Offset(offset.xid + 10**12, offset.position) for offset in (fourth.offset, end)]
    with open_store(place) as store:
        late = LogBuilder(key(3)).grow(2)
        put(store, late)
        assert [row.hash for row in store.read(read_ingests, before[1])[0]] == [late.hash(1), late.hash(2)]
        assert len(store.read(read_ingests, before[0])[0]) == 4
        assert len(store.read(read_ingests, START)[0]) == 8
