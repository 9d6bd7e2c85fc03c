"""What is to be erased and what goes, on both databases (docs/protocol.md section 9.5)."""

import pytest
from sqlalchemy import Connection, insert, select

from inkgrove.core import Hash
from inkgrove.messages import Create, Delete, SchemaVersion, Timestamp, Update, encode_message
from inkgrove.store.db import entries, idempotency, logs, request_box, schemas, summaries
from inkgrove.store.db.log_tables import branch_entries
from inkgrove.store.db.rot_tables import copies
from inkgrove.store.logs import LogStore, is_erased
from inkgrove.store.rot import (
    count_waiting,
    erase_instances,
    forget_undue,
    list_due,
    note_copies,
    note_erasures,
    was_deleted,
)
from tests.store.test_ingest import with_wrong_size
from tests.support.logs import LogBuilder, key
from tests.support.revocations import Revoking

DAY = 86_400 * 1_000_000
NOW = 1_800_000_000_000_000
SCHEMA = SchemaVersion(key(9).public, 3, 2)
OTHER = SchemaVersion(key(9).public, 4, 2)


def offer(store: LogStore, log: LogBuilder) -> list[str | None]:
    """Bring all of a log; the codes of what was refused."""
    items = [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
    return [receipt.error.code if receipt.error is not None else None for receipt in store.ingest(items)]


def note(store: LogStore, now: int) -> None:
    while store.write(note_erasures, now):
        pass


def payloads(store: LogStore, log: LogBuilder) -> list[bool]:
    query = select(entries.c.seq_num, entries.c.payload).join_from(entries, logs)
    query = query.where(logs.c.author == log.secret.public, logs.c.log_id == log.log_id).order_by(entries.c.seq_num)
    return store.database.read(lambda c: [row.payload is not None for row in c.execute(query)])


def make_log(*messages: Create | Update | Delete) -> LogBuilder:
    log = LogBuilder(key(20), log_id=1)
    for message in messages:
        log.append(encode_message(message))
    return log


def create(**more: object) -> Create:
    return Create(SCHEMA, {"a": "one"}, **more)  # type: ignore[arg-type]


def test_deleted_instance_is_due_after_its_grace_and_loses_all_but_the_delete(store: LogStore) -> None:
    log = make_log(create(), Update(SCHEMA, 1, {"a": "two"}), create(), Delete(1, SCHEMA))
    assert offer(store, log) == [None] * 4
    note(store, NOW)
    assert store.read(list_due, NOW, 10) == []  # the grace has just begun
    assert store.read(list_due, NOW + 1, 10) == [log.hash(1)]
    assert store.read(count_waiting, NOW) == (0, 1)
    assert store.read(count_waiting, NOW + 1) == (1, 1)
    erased = store.write(erase_instances, [log.hash(1)], NOW + DAY)
    assert (erased.instances, erased.payloads) == (1, 2)
    assert payloads(store, log) == [False, False, True, True]
    assert store.read(list_due, NOW + 9 * DAY, 10) == []
    assert store.read(is_erased, log.hash(1))
    assert not store.read(is_erased, log.hash(3))
    note(store, NOW + DAY)  # that payloads have gone begins nothing anew
    assert store.read(count_waiting, NOW + 9 * DAY) == (0, 0)
    assert store.write(erase_instances, [log.hash(1)], NOW + 2 * DAY).payloads == 0


def test_grace_begins_with_the_first_delete(store: LogStore) -> None:
    log = make_log(create(), Delete(1, SCHEMA))
    offer(store, log)
    note(store, NOW)
    log.append(encode_message(Delete(1, SCHEMA)))
    offer(store, log)
    note(store, NOW + 5 * DAY)
    assert store.read(list_due, NOW + 1, 10) == [log.hash(1)]


def test_delete_of_another_schema_or_entry_ends_nothing(store: LogStore) -> None:
    log = make_log(create(), create(), Delete(1, OTHER), Delete(7, SCHEMA), Delete(3, SCHEMA))
    offer(store, log)
    note(store, NOW)
    assert store.read(list_due, NOW + DAY, 10) == []
    number = store.database.read(lambda c: c.scalar(select(logs.c.id).where(logs.c.author == log.secret.public)))
    assert number is not None
    assert not store.read(was_deleted, number, 1)


def test_expired_instance_is_due_after_its_grace_unless_it_lives_on(store: LogStore) -> None:
    log = make_log(create(expires=Timestamp(NOW)), create(expires=Timestamp(NOW)), create())
    offer(store, log)
    note(store, NOW - DAY)
    assert set(store.read(list_due, NOW + 1, 10)) == {log.hash(1), log.hash(2)}
    log.append(encode_message(Update(SCHEMA, 1, expires=None)))
    log.append(encode_message(Update(SCHEMA, 2, expires=Timestamp(NOW + 3 * DAY))))
    offer(store, log)
    # Even if nobody has looked since: what is held now decides.
    assert store.read(list_due, NOW + 1, 10) == []
    assert store.write(forget_undue, NOW + 1, 10) == 2
    note(store, NOW)
    assert store.read(count_waiting, NOW + 2 * DAY) == (0, 1)
    assert store.read(list_due, NOW + 4 * DAY, 10) == [log.hash(2)]
    store.write(erase_instances, [log.hash(2)], NOW + 4 * DAY)
    log.append(encode_message(Update(SCHEMA, 2, expires=None)))
    assert offer(store, log)[-1] == "payload.erased"
    assert payloads(store, log) == [True, False, True, True, False, False]


@pytest.mark.parametrize("reference", ["seq_num", "hash"])
def test_content_of_an_erased_instance_is_refused_and_its_entries_are_taken(store: LogStore, reference: str) -> None:
    log = make_log(create())
    name = 1 if reference == "seq_num" else log.hash(1)
    log.append(encode_message(Delete(name, SCHEMA)))
    offer(store, log)
    store.write(erase_instances, [log.hash(1)], NOW)
    log.append(encode_message(Update(SCHEMA, name, {"a": "three"})))
    log.append(encode_message(create()))
    assert offer(store, log) == ["payload.erased", None, "payload.erased", None]
    assert payloads(store, log) == [False, True, False, True]


def test_instance_that_is_not_held_is_refused_when_it_comes(store: LogStore) -> None:
    log = make_log(create(), create(), Delete(1, SCHEMA))
    assert store.write(erase_instances, [log.hash(1)], NOW).payloads == 0
    assert offer(store, log) == ["payload.erased", None, None]
    assert payloads(store, log) == [False, True, True]


def test_payload_that_proves_a_lie_stays(store: LogStore) -> None:
    log = make_log(create(), Update(SCHEMA, 1, {"a": "two"}))
    log.entries[1] = with_wrong_size(log, 2)
    log.append(encode_message(Delete(1, SCHEMA)))  # behind the lie, where deletes count too
    assert offer(store, log) == [None, "payload.size-mismatch", "log.invalid-since"]
    note(store, NOW)
    assert store.read(list_due, NOW + 1, 10) == [log.hash(1)]
    store.write(erase_instances, [log.hash(1)], NOW)
    assert payloads(store, log) == [False, True, True]


def test_what_quotes_an_erased_instance_goes_and_all_else_stays(store: LogStore) -> None:
    log = make_log(create(), create(), Delete(1, SCHEMA))
    offer(store, log)
    while store.write(note_copies, 1, NOW):
        pass
    erased, kept = log.hash(1), log.hash(2)

    def prepare(connection: Connection) -> None:
        for number, name in enumerate((erased, kept)):
            box = {"recipient": b"r", "via": b"v", "instance": name, "parcel": b"content", "arrived": 0, "schema": None}
            connection.execute(insert(request_box), box)
            answer = {"identity": b"i", "client": "", "key": str(number), "request": b"hash", "status": 201, "at": 0}
            connection.execute(insert(idempotency), {**answer, "answer": f'{{"instance": "{name.hex()}"}}'})
        schema = connection.scalar(select(schemas.c.id))
        connection.execute(copies.update().values(cooked=5))
        for owner, month, count in (
            (log.secret.public, "2026-10", 19),
            (log.secret.public, "2026-11", 20),
            (b"x", "2026-10", 1),
        ):
            for field in ("", "a"):
                row = {"run": 5, "reader": b"*", "owner": owner, "schema": schema, "month": month, "field": field}
                connection.execute(insert(summaries), {**row, "count": count, "bytes": 9, "first": b"", "last": b""})

    store.write(prepare)
    store.write(erase_instances, [erased], NOW)

    def left(connection: Connection) -> tuple[list[bytes], list[str], list[tuple[bytes, str, str]], dict[bytes, str]]:
        shown = select(summaries.c.owner, summaries.c.month, summaries.c.field).order_by(
            summaries.c.month, summaries.c.owner, summaries.c.field
        )
        steps = {bytes(row.instance): row.step for row in connection.execute(select(copies))}
        return (
            [bytes(name) for name in connection.scalars(select(request_box.c.instance))],
            list(connection.scalars(select(idempotency.c.key))),
            [(bytes(row.owner), row.month, row.field) for row in connection.execute(shown)],
            steps,
        )

    boxes, keys, cooked, steps = store.read(left)
    assert boxes == [kept]
    assert keys == ["1"]
    mine = bytes(log.secret.public)
    assert cooked == [(b"x", "2026-10", ""), (b"x", "2026-10", "a"), (mine, "2026-11", ""), (mine, "2026-11", "a")]
    assert steps == {erased: "stub", kept: "full"}


def test_instance_that_nobody_holds_is_noted(store: LogStore) -> None:
    nowhere = Hash(b"\x00\x40" + b"?" * 64)
    store.write(erase_instances, [nowhere], NOW)
    assert store.read(is_erased, nowhere)


def test_instance_that_another_key_of_its_owner_deleted_is_erased(store: LogStore) -> None:
    revoking = Revoking(first=19, further=20).say(None)
    log = make_log(create(), create())
    other = LogBuilder(key(19), log_id=1)
    other.append(encode_message(Delete(log.hash(1), SCHEMA)))
    stranger = LogBuilder(key(30), log_id=1)
    stranger.append(encode_message(Delete(log.hash(2), SCHEMA)))
    for item in (log, other, stranger):
        offer(store, item)
    note(store, NOW)
    assert store.read(list_due, NOW + 1, 10) == []  # nobody knows yet that both keys are hers
    revoking.tell(store)
    note(store, NOW)
    assert store.read(list_due, NOW + 1, 10) == [log.hash(1)]
    assert store.write(erase_instances, [log.hash(1)], NOW + DAY).payloads == 1
    assert payloads(store, log) == [False, True]


def test_content_beside_the_pinned_branch_is_erased_too(store: LogStore) -> None:
    log = make_log(create(), Update(SCHEMA, 1, {"a": "two"}), Delete(1, SCHEMA))
    branch = log.fork_at(2)
    branch.append(encode_message(Update(SCHEMA, 1, {"a": "three"})))
    for item in (log, branch):
        offer(store, item)
    Revoking(first=19, further=20).say(((1, 3, log.hash(3)),)).tell(store)
    beside = select(branch_entries.c.payload).where(branch_entries.c.create_seq == 1)
    assert [row.payload is not None for row in store.database.read(lambda c: c.execute(beside).all())] == [True]
    note(store, NOW)
    assert store.read(list_due, NOW + 1, 10) == [log.hash(1)]
    assert store.write(erase_instances, [log.hash(1)], NOW + DAY).payloads == 3
    assert [row.payload for row in store.database.read(lambda c: c.execute(beside).all())] == [None]
