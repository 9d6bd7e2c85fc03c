"""What is public, and which schemas are wanted, follows from the logs in whatever order they came."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from inkgrove.core import IdentityId, decode_entry, verify_fork_proof, verify_signed
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    FieldChange,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    Update,
    encode_message,
)
from inkgrove.store.db import public_instances
from inkgrove.store.federation import (
    find_missing_ranges,
    is_index_behind,
    list_due_schemas,
    offered_logs,
    queue_deliveries,
    read_offered,
    update_public_index,
)
from inkgrove.store.logs import LogStore, drop_payloads, open_store
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(9).public, 3, 2)
PUBLIC, LISTED = Access("public"), Access("listed")


@pytest.fixture
def store(place: Path | str) -> Iterator[LogStore]:
    with open_store(place) as opened:
        yield opened


def log_of(*messages: Message) -> LogBuilder:
    log = LogBuilder(key(1), log_id=7)
    for message in messages:
        log.append(encode_message(message))
    return log


def take(store: LogStore, log: LogBuilder, *seq_nums: int, payloads: bool = True) -> None:
    """Take in some entries and follow."""
    numbers = seq_nums or range(1, len(log.entries) + 1)
    receipts = store.ingest((log.entry(n).encoded, log.payloads[n - 1] if payloads else None) for n in numbers)
    assert all(receipt.error is None or receipt.status == "evidence" for receipt in receipts), receipts
    while store.database.write(lambda connection: update_public_index(connection, 5)) is not None:
        pass
    assert not store.database.read(is_index_behind)


def public(store: LogStore) -> dict[int, bool]:
    """The creates of public instances, and whether they have ended."""
    query = select(public_instances.c.create_seq, public_instances.c.is_deleted)
    return store.database.read(lambda c: {row.create_seq: bool(row.is_deleted) for row in c.execute(query)})


def test_newest_word_decides(store: LogStore) -> None:
    log = log_of(
        Create(SCHEMA, {}, PUBLIC),
        Create(SCHEMA, {}),
        Create(SCHEMA, {}, PUBLIC),
        Update(SCHEMA, 2, access=PUBLIC),
        Update(SCHEMA, 3, access=LISTED),
        Delete(1),
    )
    take(store, log, 1, 2, 3)
    assert public(store) == {1: False, 3: False}
    take(store, log, 4, 5)
    assert public(store) == {1: False, 2: False}
    take(store, log, 6)
    assert public(store) == {1: True, 2: False}


def test_end_of_what_was_public_once_is_remembered_and_nothing_else_of_it(store: LogStore) -> None:
    log = log_of(
        Create(SCHEMA, {}, PUBLIC),
        Create(SCHEMA, {}, LISTED),
        Update(SCHEMA, 1, access=LISTED),
        Update(SCHEMA, 1, {"text": "not for all"}),
        Delete(1),
        Delete(2),
    )

    take(store, log, 1, 2)
    assert (public(store), offered(store)) == ({1: False}, [1])
    take(store, log, 3, 4)
    assert (public(store), offered(store)) == ({}, [])
    take(store, log, 5, 6)
    assert (public(store), offered(store)) == ({1: True}, [5])


def test_what_has_expired_is_not_offered(store: LogStore) -> None:
    """Its newest word on that counts, whatever else it says; that it has ended is offered all the same."""
    log = log_of(
        Create(SCHEMA, {}, PUBLIC, Timestamp(100)),
        Create(SCHEMA, {}, PUBLIC),
        Update(SCHEMA, 1, {"text": "a change"}),
        Update(SCHEMA, 2, expires=Timestamp(50)),
        Update(SCHEMA, 1, expires=None),
        Update(SCHEMA, 1, expires=Timestamp(200)),
        Delete(2),
    )
    take(store, log, 1, 2, 3)
    assert (offered(store, 99), offered(store, 100)) == ([1, 2, 3], [2])
    take(store, log, 4)
    assert (offered(store, 49), offered(store, 50), offered(store, 100)) == ([1, 2, 3, 4], [1, 3], [])
    assert (named(store, 99), named(store, 100)) == ([7], [])
    take(store, log, 5)
    assert offered(store, 100) == [1, 3, 5]
    take(store, log, 6)
    assert (offered(store, 199), offered(store, 200)) == ([1, 3, 5, 6], [])
    take(store, log, 7)
    assert (offered(store, 200), named(store, 200)) == ([7], [7])


def offered(store: LogStore, now: int = 0) -> list[int]:
    """The places of the log whose payloads are offered at a time."""
    found = store.database.read(
        lambda c: read_offered(c, key(1).public, 7, [(1, 10)], after=0, most=100, most_bytes=10_000, now=now)
    )
    return [decode_entry(entry).seq_num for entry, payload in found.entries if payload is not None]


def named(store: LogStore, now: int) -> list[int]:
    """The ids of the logs of which something is offered at a time."""
    logs, _ = store.database.read(lambda c: offered_logs(c, None, after=0, limit=10, now=now))
    return [log.log_id for log in logs]


def test_offered_log_tells_how_many_payloads_there_are_and_proves_its_earliest_fork(store: LogStore) -> None:
    log = log_of(Create(SCHEMA, {}, PUBLIC), Create(SCHEMA, {}), Update(SCHEMA, 1, access=PUBLIC), Create(SCHEMA, {}))
    take(store, log)
    (offered,), _ = store.database.read(lambda c: offered_logs(c, None, after=0, limit=10, now=0))
    assert (offered.height, offered.offered, offered.proof) == (4, 2, None)
    for seq_num in (4, 3):
        store.ingest([(log.fork_at(seq_num).entries[seq_num - 1].encoded, None)])
        (offered,), _ = store.database.read(lambda c: offered_logs(c, None, after=0, limit=10, now=0))
        assert offered.proof is not None
        proof = verify_fork_proof(*(verify_signed(decode_entry(encoded)) for encoded in offered.proof))
        assert proof.seq_num == seq_num


def test_create_that_comes_after_its_update_is_public_by_it(store: LogStore) -> None:
    log = log_of(Create(SCHEMA, {}), Create(SCHEMA, {}))
    log.append(encode_message(Update(SCHEMA, log.hash(2), access=PUBLIC)))
    take(store, log, 1, 2, 3, payloads=False)
    take(store, log, 3)
    assert public(store) == {}
    take(store, log, 2)
    assert public(store) == {2: False}


def test_word_behind_a_fork_does_not_count(store: LogStore) -> None:
    log = log_of(Create(SCHEMA, {}), Update(SCHEMA, 1, access=PUBLIC))
    take(store, log)
    assert public(store) == {1: False}
    take(store, log.fork_at(2), 2)
    assert public(store) == {}


def test_end_behind_a_fork_counts(store: LogStore) -> None:
    log = log_of(Create(SCHEMA, {}, PUBLIC), Create(SCHEMA, {}, PUBLIC))
    take(store, log)
    other = log_of(Create(SCHEMA, {}, PUBLIC), Delete(1))
    take(store, other, 2)
    assert public(store) == {1: True}


def test_news_are_found_of_what_was_sent_to_somebody_and_of_nothing_else(store: LogStore) -> None:
    log = log_of(*(Create(SCHEMA, {}) for _ in range(3)), Update(SCHEMA, 1, {}), Delete(2), Update(SCHEMA, 3, {}))
    take(store, log, 1, 2, 3)
    john, jane = IdentityId(b"j" * 32), IdentityId(b"k" * 32)
    for seq_num, wanted in ((1, 1), (2, 2), (3, 6)):
        store.database.write(lambda c: queue_deliveries(c, log.hash(seq_num), john, [jane], wanted=wanted, now=5))  # noqa: B023
    store.ingest((log.entry(n).encoded, log.payloads[n - 1]) for n in (4, 5, 6))
    found = store.database.write(lambda c: update_public_index(c, 5))
    assert found is not None
    assert set(found) == {log.hash(1), log.hash(2)}
    assert store.database.write(lambda c: update_public_index(c, 5)) is None


def test_unknown_schema_is_wanted_until_it_is_held_up_to_the_version_named(store: LogStore) -> None:
    other = SchemaId(key(8).public, 1)
    definition = LogBuilder(key(9), log_id=3)
    definition.append(encode_message(SchemaMeta("mail")))
    definition.append(encode_message(SchemaMigration((FieldChange("to", "create", "relation", schema=other),))))

    def wanted(connection: Connection) -> dict[SchemaId, int]:
        return {item.schema: item.version for item in list_due_schemas(connection, 5, 10)}

    take(store, log_of(Create(SCHEMA, {})))
    assert store.database.write(wanted) == {SCHEMA.schema_id: 2}
    take(store, definition, 1)
    assert store.database.write(wanted) == {SCHEMA.schema_id: 2}
    take(store, definition, 2)
    # And now the one that its relation points to.
    assert store.database.write(wanted) == {other: 1}


def test_lacking_are_places_whose_payloads_never_came(store: LogStore) -> None:
    log = log_of(*(Create(SCHEMA, {}) for _ in range(8)))

    def lacking(most: int = 10) -> list[tuple[int, int]]:
        return store.database.read(lambda c: find_missing_ranges(c, key(1).public, 7, 10, most=most))

    assert lacking() == [(1, 10)]
    take(store, log, 1, 2, 3, 4, 5, 6, 7, 8, payloads=False)
    take(store, log, 2, 3, 6)
    assert lacking() == [(1, 1), (4, 5), (7, 10)]
    assert lacking(most=2) == [(1, 1), (4, 10)]
    store.write(drop_payloads, [log.hash(3)])
    assert lacking() == [(1, 1), (4, 5), (7, 10)]
