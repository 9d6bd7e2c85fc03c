"""Ends and continuations between the logs of one identity, as the store has them (docs/protocol.md section 5.7)."""

import random

import pytest
from sqlalchemy import select

from inkgrove.core import Hash, hash_yamf, identity_of
from inkgrove.messages import Access, Create, Delete, FurtherKey, IdentityDocument, KeyOf, SchemaVersion, encode_message
from inkgrove.messages.cbor import Value
from inkgrove.pipeline.views.plan import Group, dirty_groups
from inkgrove.reference import fold_views
from inkgrove.schema import ViewDefinition, fold_log, fold_schema
from inkgrove.store.db import logs, public_instances
from inkgrove.store.db.node_tables import blob_references
from inkgrove.store.federation import read_offered, update_public_index
from inkgrove.store.logs import (
    Ingest,
    IngestKind,
    LogStore,
    OtherLogsInStore,
    drop_payloads,
    find_log,
    follow_references,
    newest_offset,
    payloads_of_schema,
    read_ends,
    read_ends_within,
    read_ingests,
    read_logs,
)
from tests.store.test_ingest import items
from tests.support.devices import ControlGenerator, DeviceGenerator
from tests.support.logs import LogBuilder, key
from tests.support.revocations import follow_documents
from tests.support.tiers import amount
from tests.support.views import held_by
from tests.support.whole_fold import comparable

SCHEMA = SchemaVersion(key(40).public, 1, 2)
FIRST, PHONE, STRANGER = 41, 42, 43

Folded = dict[Hash, tuple[bool, Hash | None]]
"""By instance: whether it has a row, and which create continues it."""


def fold_all(store: LogStore, seed: int) -> tuple[Folded, dict[Hash, str]]:
    """The instances and outcomes of a world of devices, folded log by log, with the ends read in both ways."""
    schemas = DeviceGenerator(seed).world().registered  # the schemas of every such world
    definitions = {
        name: ViewDefinition(fold_schema(name, *store.read(payloads_of_schema, name)), schemas) for name in schemas
    }
    instances: Folded = {}
    outcomes: dict[Hash, str] = {}
    for number in store.read(read_logs):
        for state, messages in store.whole_logs(number, number):
            results = []
            for ends in (
                store.read(read_ends_within, number, number),
                store.read(read_ends, [item.hash for item in messages]),
            ):
                others = OtherLogsInStore(store.database.read, state.author, ends)
                results.append(fold_log(state.log_id, messages, definitions.get, others))
            assert results[0] == results[1]
            instances |= {item.instance: (item.row is not None, item.continued_by) for item in results[0].instances}
            outcomes |= {entry_hash: ruling.code for entry_hash, (_, ruling) in results[0].rulings.items()}
    return instances, outcomes


@pytest.mark.parametrize("seed", range(amount(4, 20)))
@pytest.mark.parametrize("generator", [DeviceGenerator, ControlGenerator])
def test_logs_are_folded_as_the_oracle_says_however_entries_arrive(
    store: LogStore, generator: type[DeviceGenerator], seed: int
) -> None:
    world, rng = generator(seed).world(), random.Random(seed)
    rest = [(item.signed.entry.encoded, item.payload) for item in world.held]
    while rest:
        size = rng.randint(1, len(rest))
        store.ingest(rest[:size])
        rest = rest[size:]
        follow_documents(store)
    store.ingest([(item.signed.entry.encoded, item.payload) for item in world.held])
    follow_documents(store)
    instances, outcomes = fold_all(store, seed)
    wanted = comparable(fold_views(held_by(store), world.registered))
    assert outcomes == {entry: code for view in wanted.values() for entry, (_, code) in view["outcomes"].items()}
    # Rows go by cascade too, which is not for the fold of a log.
    rows = {instance for instance, (has_row, _) in instances.items() if has_row}
    assert rows >= {instance for view in wanted.values() for instance in view["rows"]}
    lines = {instance for view in wanted.values() for instance in view["lines"]}
    assert {instance for instance, (_, following) in instances.items() if following is not None} == lines


class Devices:
    """A first key, a phone that says it is its, and their logs of one schema."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.documents = LogBuilder(key(FIRST), log_id=0)
        self.first, self.phone = LogBuilder(key(FIRST)), LogBuilder(key(PHONE))
        claim = LogBuilder(key(PHONE), log_id=0)
        claim.append(encode_message(KeyOf(identity_of(key(FIRST).public))))
        store.ingest(items(claim))

    def list(self, *keys: int) -> None:
        """Sign a document with these further keys and follow it."""
        further = tuple(FurtherKey(key(number).public) for number in keys)
        self.documents.append(
            encode_message(IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", keys=further))
        )
        self.store.ingest(items(self.documents))
        follow_documents(self.store)

    def group(self, log: LogBuilder, create_seq: int) -> Group:
        state = self.store.read(find_log, log.secret.public, log.log_id)
        assert state is not None
        return Group(state.id, create_seq)


def since(store: LogStore, count: int) -> list[Ingest]:
    """What happened after the first so many things."""
    return store.read(read_ingests)[0][count:]


def test_end_makes_dirty_what_it_ends_whichever_comes_first(store: LogStore) -> None:
    devices = Devices(store)
    devices.list(PHONE)
    devices.first.append(encode_message(Create(SCHEMA, {})))
    devices.phone.append(encode_message(Create(SCHEMA, {}, continues=devices.first.hash(1))))
    store.ingest(items(devices.phone))
    before = len(store.read(read_ingests)[0])
    store.ingest(items(devices.first))
    # The create that waits for it is folded anew as well, and changes nothing.
    ended, continuing = devices.group(devices.first, 1), devices.group(devices.phone, 1)
    assert dirty_groups(store, since(store, before)) == {ended, continuing}
    for seq_num, message in ((2, Create(SCHEMA, {}, continues=devices.first.hash(1))),):
        before = len(store.read(read_ingests)[0])
        devices.phone.append(encode_message(message))
        store.ingest(items(devices.phone))
        assert dirty_groups(store, since(store, before)) == {ended, devices.group(devices.phone, seq_num)}
    before = len(store.read(read_ingests)[0])
    devices.phone.append(encode_message(Delete(devices.first.hash(1), SCHEMA)))
    store.ingest(items(devices.phone))
    assert dirty_groups(store, since(store, before)) == {ended, devices.group(devices.phone, 3)}
    before = len(store.read(read_ingests)[0])
    store.write(drop_payloads, [devices.phone.hash(3)])
    assert dirty_groups(store, since(store, before)) == {ended, devices.group(devices.phone, 3)}


def test_create_that_continues_is_of_its_own_instance(store: LogStore) -> None:
    log = LogBuilder(key(FIRST))
    log.append(encode_message(Create(SCHEMA, {})))
    log.append(encode_message(Create(SCHEMA, {})))
    log.append(encode_message(Create(SCHEMA, {}, continues=log.hash(2))))
    entries = items(log)
    store.ingest([entries[0], (entries[1][0], None), entries[2]])
    store.ingest([entries[1]])
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    groups = store.messages_of(state.id, [1, 2, 3])
    assert {seq_num: [item.seq_num for item in own] for seq_num, own in groups.items()} == {1: [1], 2: [2], 3: [3]}


def test_changed_keys_make_dirty_only_what_the_identity_refers_to(store: LogStore) -> None:
    devices = Devices(store)
    stranger = LogBuilder(key(STRANGER))
    devices.first.append(encode_message(Create(SCHEMA, {})))
    devices.first.append(encode_message(Create(SCHEMA, {})))
    devices.phone.append(encode_message(Create(SCHEMA, {})))
    devices.phone.append(encode_message(Delete(devices.first.hash(1), SCHEMA)))
    stranger.append(encode_message(Delete(devices.first.hash(2), SCHEMA)))
    store.ingest([*items(devices.first), *items(devices.phone), *items(stranger)])
    touched = {devices.group(devices.first, 1), devices.group(devices.phone, 2)}
    for keys in ((PHONE,), (PHONE, STRANGER), ()):
        before = len(store.read(read_ingests)[0])
        devices.list(*keys)
        happened = [item for item in since(store, before) if item.what is IngestKind.KEYS]
        # A stranger who does not say that they belong changes nothing.
        assert dirty_groups(store, happened) == (set() if STRANGER in keys else touched)
    newest = store.read(newest_offset)
    follow_documents(store)
    assert store.read(newest_offset) == newest


def public_index(store: LogStore) -> dict[tuple[bytes, int], bool]:
    """What is on offer to everybody: by author and sequence number of the create, whether only its end is."""
    with store.database.writing() as connection:
        while update_public_index(connection, 0) is not None:
            continue
        query = select(logs.c.author, public_instances.c.create_seq, public_instances.c.is_deleted)
        rows = connection.execute(query.join_from(public_instances, logs, logs.c.id == public_instances.c.log))
        return {(bytes(author), create_seq): bool(is_deleted) for author, create_seq, is_deleted in rows}


@pytest.mark.parametrize("comes_first", ["end", "instance"])
def test_end_of_what_was_public_is_for_everybody_who_has_it(store: LogStore, comes_first: str) -> None:
    devices = Devices(store)
    devices.list(PHONE)
    devices.first.append(encode_message(Create(SCHEMA, {}, Access("public"))))
    devices.first.append(encode_message(Create(SCHEMA, {})))
    devices.phone.append(encode_message(Delete(devices.first.hash(1), SCHEMA)))
    devices.phone.append(encode_message(Delete(devices.first.hash(2), SCHEMA)))
    steps = [devices.phone, devices.first]
    for log in steps if comes_first == "end" else reversed(steps):
        store.ingest(items(log))
        public_index(store)
    first, phone = bytes(key(FIRST).public), bytes(key(PHONE).public)
    assert public_index(store) == {(first, 1): True, (phone, 1): True}
    offered = store.read(read_offered, key(PHONE).public, 1, [(1, 2)], after=0, most=10, most_bytes=10_000, now=0)
    assert [payload is not None for _, payload in offered.entries] == [True]
    # A key that does not belong any more ends nothing, and what it says is nobody else's business.
    devices.list()
    assert public_index(store) == {(first, 1): False}


PICTURE: Value = {"hash": bytes(hash_yamf(b"picture")), "size": 7, "type": "image/png"}


def references(store: LogStore) -> list[bytes]:
    """The instances that name a blob, after everything that happened was looked at."""
    with store.database.writing() as connection:
        while follow_references(connection, lambda _message: None):
            continue
        return list(connection.scalars(select(blob_references.c.instance)))


@pytest.mark.parametrize("kind", ["delete", "continuing"])
@pytest.mark.parametrize("comes_first", ["end", "instance"])
def test_reference_to_a_blob_ends_with_the_instance(store: LogStore, comes_first: str, kind: str) -> None:
    devices = Devices(store)
    devices.list(PHONE)
    devices.first.append(encode_message(Create(SCHEMA, {"a": PICTURE})))
    instance = devices.first.hash(1)
    end = Delete(instance, SCHEMA) if kind == "delete" else Create(SCHEMA, {}, continues=instance)
    devices.phone.append(encode_message(end))
    steps = [devices.phone, devices.first]
    for log in steps if comes_first == "end" else reversed(steps):
        store.ingest(items(log))
    with store.database.reading() as connection:  # at once, and not when somebody follows
        assert list(connection.scalars(select(blob_references.c.instance))) == []
    assert references(store) == []
    devices.list()
    assert references(store) == [instance]
