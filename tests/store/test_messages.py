"""The index by which the messages of an instance are found (docs/protocol.md sections 5 and 6)."""

import random
from typing import Any

import pytest

from inkgrove.core import HeldEntry, SecretKey, verify_log, verify_signed
from inkgrove.messages import Create, Delete, SchemaId, Update, cbor, decode_message
from inkgrove.schema import LogMessage
from inkgrove.store.logs import (
    START,
    IngestStatus,
    InstanceKey,
    LogStore,
    UnresolvedReference,
    count_absent,
    create_seqs_from,
    drop_payloads,
    find_log,
    find_schema_of_log,
    find_unresolved_references,
    logs_of_schema,
    messages_between,
    messages_of,
    newest_offset,
    payloads_of_schema,
    read_entries,
    read_ingests,
    read_logs,
    read_registered,
    register_schema,
    unregister_schema,
    verified_among,
)
from tests.support.generated import Generator
from tests.support.logs import LogBuilder, key

DEV = key(9).public
SCHEMA = SchemaId(DEV, 1)


def create(**more: Any) -> bytes:
    return cbor.encode({"kind": "create", "schema": [bytes(DEV), 1, 2], "fields": [], **more})


def update(instance: Any, **more: Any) -> bytes:
    return cbor.encode({"kind": "update", "schema": [bytes(DEV), 1, 2], "instance": instance, "fields": [], **more})


def delete(instance: Any) -> bytes:
    return cbor.encode({"kind": "delete", "instance": instance})


def put(store: LogStore, log: LogBuilder, *seq_nums: int, payloads: bool = True) -> int:
    numbers = seq_nums or range(1, len(log.entries) + 1)
    receipts = store.ingest([(log.entry(n), log.payloads[n - 1] if payloads else None) for n in numbers])
    assert all(receipt.error is None or receipt.status is IngestStatus.EVIDENCE for receipt in receipts)
    state = store.read(find_log, log.secret.public, log.log_id)
    assert state is not None
    return state.id


def groups(store: LogStore, log: int, *create_seqs: int) -> dict[int, list[int]]:
    found = store.read(messages_of, [InstanceKey(log, at) for at in create_seqs])
    return {at: [m.seq_num for m in messages] for (_, at), messages in found.items()}


def group(store: LogStore, log: int, create_seq: int) -> list[LogMessage]:
    return store.messages_of(log, [create_seq])[create_seq]


def test_messages_belong_to_their_create(store: LogStore) -> None:
    log = LogBuilder()
    log.append(create())
    log.append(create())
    log.append(update(1))
    log.append(update(bytes(log.hash(2))))
    log.append(delete(log.hash(1).hex()))
    number = put(store, log)
    assert groups(store, number, 1, 2, 7) == {1: [1, 3, 5], 2: [2, 4], 7: []}
    (first, *_) = group(store, number, 2)
    assert first == LogMessage(2, log.hash(2), log.payloads[1], None)
    rows, _ = store.read(read_ingests)
    assert [row.create_seq for row in rows] == [1, 2, 1, 2, 1]


def test_messages_that_belong_to_nothing_are_folded_alone(store: LogStore) -> None:
    log = LogBuilder()
    log.append(b"rubbish")
    log.append(cbor.encode({"kind": "schema-revert", "target": 1}))
    log.append(update(3))
    log.append(update(9))
    log.append(update(b"\1" * 32))
    number = put(store, log)
    assert groups(store, number, *range(1, 6)) == {n: [n] for n in range(1, 6)}


def test_entry_that_a_message_takes_for_its_create_comes_with_it(store: LogStore) -> None:
    log = LogBuilder()
    log.append(create())
    log.append(update(1))
    log.append(update(2))  # entry 2 is no create: the fold must see that it is held
    log.append(create())
    number = put(store, log, 1, 2, 3)
    assert groups(store, number, 1, 2) == {1: [1, 2], 2: [2, 3]}
    put(store, log, 4, payloads=False)
    assert group(store, number, 4) == [LogMessage(4, log.hash(4), None)]


def test_create_that_comes_late_gets_the_messages_that_name_it(store: LogStore) -> None:
    log = LogBuilder()
    for _ in range(6):
        log.append(create())
    for named in (6, 6, bytes(log.hash(6)), bytes(log.hash(5)), bytes(log.hash(6))):
        log.append(update(named))
    log.append(delete(bytes(log.hash(6))))
    log.append(create())
    number = put(store, log, 1, 4, 8, 9, 10, 11, 12, 13)
    assert groups(store, number, 6, 9, 10, 11, 12) == {6: [8], 9: [9], 10: [10], 11: [11], 12: [12]}
    assert store.read(find_unresolved_references, [log.hash(6)]) == [
        UnresolvedReference(number, n, log.hash(6)) for n in (9, 11, 12)
    ]
    put(store, log, 5, 6, payloads=False)
    assert groups(store, number, 6, 5, 9) == {6: [6, 8, 9, 11, 12], 5: [5, 10], 9: [9]}
    assert store.read(find_unresolved_references, [log.hash(6)]) == []
    put(store, log)
    assert groups(store, number, 6) == {6: [6, 7, 8, 9, 11, 12]}


def test_late_payload_enters_the_index(store: LogStore) -> None:
    log = LogBuilder()
    log.append(create())
    log.append(update(bytes(log.hash(1))))
    number = put(store, log, payloads=False)
    assert groups(store, number, 1) == {1: [1]}
    put(store, log, 2)
    assert groups(store, number, 1) == {1: [1, 2]}
    assert store.read(count_absent, number) == 1


def test_instance_of_another_log_does_not_own_the_message(store: LogStore) -> None:
    theirs, ours = LogBuilder(key(2)), LogBuilder(key(1))
    theirs.append(create())
    ours.append(create())
    ours.append(update(bytes(theirs.hash(1))))
    number = put(store, ours)
    assert store.read(verified_among, [theirs.hash(1), ours.hash(1)]) == {ours.hash(1)}
    put(store, theirs)
    assert groups(store, number, 2) == {2: [2]}
    assert store.read(find_unresolved_references, [theirs.hash(1)]) == [UnresolvedReference(number, 2, theirs.hash(1))]
    assert store.read(verified_among, [theirs.hash(1)]) == {theirs.hash(1)}


def test_messages_of_the_invalid_part_carry_its_code(store: LogStore) -> None:
    log = LogBuilder()
    log.append(create())
    log.append(create())
    log.append(update(1))
    branch = log.fork_at(3)
    branch.append(delete(1))
    number = put(store, log)
    before = store.read(newest_offset)
    put(store, branch, 3)
    rows, _ = store.read(read_ingests, before)
    assert {row.what.value for row in rows} == {"entry", "fork"}
    assert store.read(create_seqs_from, number, 3) == [1, 3]
    assert [(m.seq_num, m.invalid_code) for m in group(store, number, 1)] == [(1, None), (3, "log.forked")]


def test_dropped_payload_still_tells_its_instance(store: LogStore) -> None:
    log = LogBuilder()
    log.append(create())
    log.append(update(1))
    number = put(store, log)
    before = store.read(newest_offset)
    assert store.write(drop_payloads, [log.hash(2), log.hash(1)]) == 2
    assert store.write(drop_payloads, [log.hash(2)]) == 0
    rows, _ = store.read(read_ingests, before)
    assert [(row.what.value, row.seq_num, row.create_seq) for row in rows] == [
        ("payload-dropped", 1, 1),
        ("payload-dropped", 2, 1),
    ]
    assert [m.payload for m in group(store, number, 1)] == [None, None]
    assert store.read(count_absent, number) == 2
    assert store.read(find_schema_of_log, number) is None
    put(store, log, 2)
    assert [m.payload for m in group(store, number, 1)] == [None, log.payloads[1]]


def test_schemas_and_their_logs(store: LogStore) -> None:
    schema = LogBuilder(key(9))
    schema.append(cbor.encode({"kind": "schema-meta", "name": "notes", "spec": 1}))
    schema.append(b"second")
    log = LogBuilder()
    log.append(delete(5))
    log.append(create())
    other = LogBuilder(log_id=2)
    other.append(delete(1))
    schema_number, number, other_number = put(store, schema), put(store, log), put(store, other)
    assert store.read(payloads_of_schema, SCHEMA) == ({1: schema.payloads[0], 2: b"second"}, None)
    assert store.read(payloads_of_schema, SchemaId(DEV, 7)) == ({}, None)
    assert store.read(logs_of_schema, SCHEMA) == [number]
    assert store.read(logs_of_schema, SchemaId(DEV, 7)) == []
    assert [store.read(find_schema_of_log, n) for n in (number, other_number, schema_number)] == [SCHEMA, None, None]
    put(store, schema.fork_at(2), 2)
    assert store.read(payloads_of_schema, SCHEMA) == ({1: schema.payloads[0]}, 2)


def test_registry_notes_changes(store: LogStore) -> None:
    other = SchemaId(key(3).public, 2)
    assert store.read(read_registered) == []
    assert [store.write(register_schema, schema) for schema in (SCHEMA, other, SCHEMA)] == [True, True, False]
    assert store.read(read_registered) == sorted([SCHEMA, other])
    assert [store.write(unregister_schema, schema) for schema in (other, other, SchemaId(DEV, 5))] == [
        True,
        False,
        False,
    ]
    assert store.read(read_registered) == [SCHEMA]
    rows, end = store.read(read_ingests, START)
    assert [(row.what.value, row.schema) for row in rows] == [
        ("registered", SCHEMA), ("registered", other), ("unregistered", other),
    ]  # fmt: skip
    assert end == store.read(newest_offset)


@pytest.mark.parametrize("seed", range(15))
def test_generated_worlds_are_read_as_they_were_accepted(store: LogStore, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(4):
        world = Generator(seed * 100 + number)
        world.rng = random.Random(seed * 100 + number)
        held = world.world().held
        while held:
            size = rng.choice([1, 3, 10, 100])
            store.ingest([(item.signed, item.payload) for item in held[:size]])
            held = held[size:]
        _check_everything(store)


def _check_everything(store: LogStore) -> None:
    for number, log in store.read(read_logs).items():
        stored = store.read(read_entries, log.author, log.log_id)
        report = verify_log([HeldEntry(verify_signed(item.entry), item.payload) for item in stored], partial=True)
        assert {item.hash for item in stored if item.refusal is None} == {e.hash for e in report.verified.values()}
        messages = store.read(messages_between, number)
        by_hash = {item.hash: item.entry.seq_num for item in stored}
        wanted: dict[int, set[int]] = {}
        for message in messages:
            wanted.setdefault(message.seq_num, set()).add(message.seq_num)
            at = _expected_create(message, by_hash)
            if at is not None:
                wanted.setdefault(at, set()).add(message.seq_num)
        found = store.read(messages_of, [InstanceKey(number, at) for at in wanted])
        assert {at: {m.seq_num for m in some} for (_, at), some in found.items()} == wanted
        assert {message for some in found.values() for message in some} == set(messages)
        assert list(store.whole_logs(number, number)) == [(log, messages)]


def _expected_create(message: LogMessage, by_hash: dict[Any, int]) -> int | None:
    if message.payload is None:
        return None
    try:
        content = decode_message(message.payload)
    except Exception:  # noqa: BLE001
        return None
    if isinstance(content, Create) or not isinstance(content, Update | Delete):
        return None
    if isinstance(content.instance, int):
        return content.instance if content.instance < message.seq_num else None
    return by_hash.get(content.instance)


def test_many_logs_and_hashes_fit_into_queries(store: LogStore) -> None:
    logs = [LogBuilder(SecretKey.from_seed(n.to_bytes(32, "big"))).grow(1) for n in range(1, 1501)]
    store.ingest([(log.entry(1), None) for log in logs])
    assert len(store.heights()) == 1500
    assert len(store.read(verified_among, [log.hash(1) for log in logs] * 10)) == 1500
