"""Pins: what counts of a forked log is what the oracle says, whatever came first (docs/protocol.md section 7.2)."""

import random
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from inkgrove.core import Entry, Hash, HeldEntry, decode_entry, hash_yamf, verify_signed
from inkgrove.core.limits import MAX_BRANCH_ENTRIES
from inkgrove.messages import Access, Create, Delete, RevokedLog, SchemaVersion, Update, decode_if_valid, encode_message
from inkgrove.node.identity import apply_identity_logs_since
from inkgrove.reference.control import judge_control
from inkgrove.reference.logs import Log, gather_logs, without_revoked
from inkgrove.store.db import public_instances
from inkgrove.store.federation import read_held_entries, update_public_index
from inkgrove.store.logs import (
    START,
    IngestStatus,
    LogStore,
    LogValidity,
    find_create_seqs,
    find_fork_proof,
    find_log,
    find_pins,
    messages_between,
    read_beside,
    read_entries,
)
from tests.store.test_ingest import happened, items, said, standing
from tests.support.logs import LogBuilder, key, resign
from tests.support.revocations import Revoking
from tests.support.tiers import amount

_KEYS = count(1_000, 2)
SCHEMA = SchemaVersion(key(35).public, 1, 2)
Pin = tuple[int, int] | tuple[int, int, Hash]


def held_of(store: LogStore, log: LogBuilder) -> list[HeldEntry]:
    """Everything that the store has of a log."""
    author = log.secret.public
    found = [*store.read(read_entries, author, log.log_id), *store.read(read_beside, author, log.log_id)]
    return [HeldEntry(verify_signed(item.entry), item.payload) for item in found]


def counted(store: LogStore, log: LogBuilder) -> list[tuple[int, Hash, str | None]]:
    """The messages of a log, those of an invalid part with their code."""
    state = store.read(find_log, log.secret.public, log.log_id)
    if state is None:
        return []
    return [(item.seq_num, item.hash, item.invalid_code) for item in store.read(messages_between, state.id)]


def seqs(store: LogStore, log: LogBuilder, *lines: LogBuilder) -> list[str]:
    """The messages that count, each by the name of its line and number."""
    names = {line.hash(n): f"{name}{n}" for name, line in zip("abc", (log, *lines), strict=False) for n in
             range(len(line.entries), 0, -1)}  # fmt: skip
    names |= {log.hash(n): f"a{n}" for n in range(1, len(log.entries) + 1)}
    return [names[entry_hash] + ("!" if code else "") for _, entry_hash, code in counted(store, log)]


# By hand


@pytest.mark.parametrize("order", ["pin first", "pin last", "pin between"])
@pytest.mark.parametrize("branch", ["a", "b"])
def test_pin_decides_a_fork_whatever_comes_first(store: LogStore, order: str, branch: str) -> None:
    revoking = Revoking(41, 42)
    log = LogBuilder(key(42)).grow(5)
    other = log.fork_at(3).grow(2)
    pinned = log if branch == "a" else other
    revoking.say(((1, 5, pinned.hash(5)),))
    lines = [items(log), items(other)]
    steps: list[Any] = [lambda: store.ingest(lines[0]), lambda: store.ingest(lines[1])]
    steps.insert(["pin first", "pin between", "pin last"].index(order), lambda: revoking.tell(store))
    for step in steps:
        step()
    assert [entry_hash for _, entry_hash, _ in counted(store, log)] == [pinned.hash(n) for n in range(1, 6)]
    assert {code for _, _, code in counted(store, log)} == {None}
    assert standing(store, log) == LogValidity(revoked_after=5)
    loser = other if branch == "a" else log
    beside = store.read(read_beside, log.secret.public, 1)
    assert [item.hash for item in beside] == [loser.hash(n) for n in (3, 4, 5)]
    assert {item.refusal for item in beside} == {"log.other-branch"}
    proof = store.read(find_fork_proof, log.secret.public, 1)
    assert proof is not None
    assert proof.seq_num == 3


def test_later_document_pins_the_other_branch_and_none(store: LogStore) -> None:
    revoking = Revoking(41, 42)
    log = LogBuilder(key(42)).grow(5)
    other = log.fork_at(3).grow(1)
    store.ingest([*items(log), *items(other)])
    assert seqs(store, log, other) == ["a1", "a2", *sorted_names(log, other)]
    revoking.say(((1, 4, other.hash(4)),)).tell(store)
    assert seqs(store, log, other) == ["a1", "a2", "b3", "b4"]
    assert happened(store)[-3:] == [("branch", 3), ("entry", 3), ("entry", 4)]
    revoking.say(((1, 5, log.hash(5)),)).tell(store)
    assert seqs(store, log, other) == ["a1", "a2", "a3", "a4", "a5"]
    revoking.say(((1, 2, log.hash(2)),)).tell(store)
    assert seqs(store, log, other) == ["a1", "a2"]
    revoking.say(((1, 4),)).tell(store)
    assert seqs(store, log, other) == ["a1", "a2", *[name for name in sorted_names(log, other) if name != "a5!"]]
    assert standing(store, log) == LogValidity(forked_at=3, revoked_after=4)
    revoking.say(None).tell(store)
    assert seqs(store, log, other) == ["a1", "a2", *sorted_names(log, other)]
    assert store.read(read_beside, log.secret.public, 1) == []


def sorted_names(log: LogBuilder, other: LogBuilder) -> list[str]:
    """The forked part in the order in which the store reads it."""
    named = [(n, log.hash(n), f"a{n}!") for n in (3, 4, 5)] + [(n, other.hash(n), f"b{n}!") for n in (3, 4)]
    return [name for _, _, name in sorted(named)]


def test_pin_of_what_is_not_held_decides_nothing_until_it_comes(store: LogStore) -> None:
    revoking = Revoking(41, 42)
    log = LogBuilder(key(42)).grow(6)
    other = log.fork_at(4).grow(2)
    store.ingest([*items(log), *items(other, 4)])
    revoking.say(((1, 5, other.hash(5)),)).tell(store)
    assert [name.rstrip("!") for name in seqs(store, log, other)][:3] == ["a1", "a2", "a3"]
    assert standing(store, log) == LogValidity(forked_at=4, revoked_after=5)
    assert said(store.ingest(items(other, 5))) == ["stored"]
    assert seqs(store, log, other) == ["a1", "a2", "a3", "b4", "b5"]
    assert said(store.ingest(items(other, 6))) == ["log.key-revoked"]


def test_entry_below_the_pin_joins_when_the_gap_is_filled(store: LogStore) -> None:
    revoking = Revoking(41, 42)
    log = LogBuilder(key(42)).grow(4)
    store.ingest(items(log, 1, 2, 4))
    revoking.say(((1, 4, log.hash(4)),)).tell(store)
    assert seqs(store, log) == ["a1", "a4"]  # entry 2 may be of another branch
    assert said(store.ingest(items(log, 3))) == ["stored"]
    assert seqs(store, log) == ["a1", "a2", "a3", "a4"]


def test_room_beside_a_branch_ends_and_the_pin_gets_in(store: LogStore) -> None:
    revoking = Revoking(41, 42)
    log = LogBuilder(key(42)).grow(MAX_BRANCH_ENTRIES + 5)
    other = log.fork_at(2).grow(11)
    store.ingest(items(log))
    store.ingest(items(other, 2))
    refused = store.ingest(items(other, 3))[0]
    assert (refused.status, refused.error.code if refused.error else None) == (IngestStatus.REFUSED, "log.forked")
    revoking.say(((1, 13, other.hash(13)),)).tell(store)
    receipts = store.ingest(items(other, 3, 4, 13))
    assert {receipt.status for receipt in receipts} == {IngestStatus.STORED}
    assert seqs(store, log, other) == ["a1", "b2", "b3", "b4", "b13"]
    store.ingest(items(other))
    assert seqs(store, log, other) == ["a1", *(f"b{n}" for n in range(2, 14))]
    assert store.ingest(items(log, 5))[0].status is IngestStatus.KNOWN
    third = log.fork_at(7)
    assert said(store.ingest(items(third, 7))) == ["log.other-branch"]
    assert len(store.read(read_beside, log.secret.public, 1)) == MAX_BRANCH_ENTRIES + 4


# Generated


def _message(rng: random.Random, line: LogBuilder, elsewhere: list[Hash]) -> bytes:
    if not line.entries or rng.random() < 0.4:
        return encode_message(Create(SCHEMA, {}, Access(rng.choice(["public", "self"]))))
    named: Any = rng.choice([rng.randint(1, len(line.entries)), rng.choice([*elsewhere, hash_yamf(b"nowhere")])])
    if rng.random() < 0.6:
        return encode_message(Update(SCHEMA, named, {}, Access(rng.choice(["public", "self"]))))
    return encode_message(Delete(named))


def _grow(rng: random.Random, line: LogBuilder, height: int, elsewhere: list[Hash]) -> None:
    while len(line.entries) < height:
        line.append(_message(rng, line, elsewhere), is_end_of_log=rng.random() < 0.02)
        if rng.random() < 0.03:
            entry = line.entries[-1]
            wrong = bytearray(entry.encoded)
            at = len(wrong) - 64 - len(entry.payload_hash) - 1
            if wrong[at] < 247:
                wrong[at] += 1
                line.entries[-1] = decode_entry(resign(line.secret, bytes(wrong)))
        elsewhere.append(line.hash(len(line.entries)))


class _World:
    """A log with branches, and an identity that pins them one after the other."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        number = next(_KEYS)
        self.revoking = Revoking(number, number + 1)
        log = LogBuilder(self.revoking.key)
        self.log = log
        hashes: list[Hash] = []
        _grow(rng, log, rng.choice([2, 4, 6, 14, 30]), hashes)
        self.lines = [log]
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            line = rng.choice(self.lines)
            branch = line.fork_at(rng.randint(1, len(line.entries)))
            _grow(rng, branch, len(branch.entries) + rng.randint(0, 6), hashes)
            self.lines.append(branch)
        held = rng.choice([1.0, 0.8, 0.5])
        self.offers: list[tuple[Entry, bytes | None]] = []
        for line in self.lines:
            for entry, payload in zip(line.entries, line.payloads, strict=True):
                if rng.random() < held:
                    self.offers.append((entry, rng.choice([payload, payload, payload, None, b"rubbish"])))
        rng.shuffle(self.offers)

    def ends(self) -> tuple[Pin, ...] | None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.1:
            return None
        if chance < 0.15:
            return ()
        line = rng.choice(self.lines)
        at = rng.randint(1, len(line.entries))
        if chance < 0.25:
            return ((1, at),)
        if chance < 0.3:
            return ((1, at, hash_yamf(b"nobody has it")),)
        if chance < 0.35:
            return ((1, at + 1, line.hash(at)),)
        return ((1, at, line.hash(at)),)


def _expected(store: LogStore, world: _World) -> Log | None:
    logs = [world.log, world.revoking.claim, world.revoking.documents]
    held = [item for log in logs for item in held_of(store, log)]
    return without_revoked(gather_logs(held), judge_control(held).ends).get((world.log.secret.public, 1))


def _check(store: LogStore, world: _World) -> None:
    expected = _expected(store, world)
    state = store.read(find_log, world.log.secret.public, 1)
    if expected is None or state is None:
        assert counted(store, world.log) == []
        return
    messages = [
        (item.seq_num, item.hash, None if not expected.is_invalid_at(item.seq_num) else
         "log.forked" if expected.forked_at is not None and item.seq_num >= expected.forked_at else "log.invalid-since")
        for item in expected.messages
    ]  # fmt: skip
    assert counted(store, world.log) == messages
    # Each message is folded with the entry that it names, if that is a row.
    rows = {item.hash: item for item in store.read(read_entries, world.log.secret.public, 1)}
    folded = store.read(find_create_seqs, state.id, [item.entry.seq_num for item in rows.values()])
    for entry_hash, item in rows.items():
        message = decode_if_valid(item.payload)
        own = item.entry.seq_num
        if isinstance(message, Update | Delete):
            named = message.instance
            target = min(named, own) if isinstance(named, int) else rows[named].entry.seq_num if named in rows else own
            assert folded[entry_hash] == target
    assert (state.held, state.height) == (len(rows), max((item.entry.seq_num for item in rows.values()), default=0))


def _public(store: LogStore) -> set[tuple[int, int, bool]]:
    with store.database.writing() as connection:
        while update_public_index(connection, 0) is not None:
            continue
        columns = (public_instances.c.log, public_instances.c.create_seq, public_instances.c.is_deleted)
        return {(log, seq, bool(is_deleted)) for log, seq, is_deleted in connection.execute(select(*columns))}


def test_store_equals_the_oracle_however_entries_and_pins_arrive(store: LogStore) -> None:
    seen: set[str] = set()

    @settings(max_examples=amount(25, 200), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        world = _World(seed)
        rng, rest = world.rng, list(world.offers)
        rest += world.offers  # what was refused for want of a path may find one
        while rest or rng.random() < 0.5:
            if rng.random() < 0.3:
                world.revoking.say(world.ends()).tell(store)
            size = rng.choice([1, 2, 5, 100])
            batch, rest = rest[:size], rest[size:]
            store.ingest(batch)
            store.database.write(lambda connection: apply_identity_logs_since(connection, START))
            _check(store, world)
            if rng.random() < 0.2:
                _public(store)
        state = store.read(find_log, world.log.secret.public, 1)
        if state is not None:
            seen.update(name for name in LogValidity.__slots__ if getattr(state.standing, name) is not None)
            seen.update(["beside"] if store.read(read_beside, world.log.secret.public, 1) else [])

    check()
    assert seen >= {"forked_at", "lied_at", "revoked_after", "beside"}
    # What the followers of the logs know is what they would find if they began anew.
    known = _public(store)
    with store.database.writing() as connection:
        connection.execute(delete(public_instances))
        connection.exec_driver_sql("DELETE FROM index_progress")
    assert _public(store) == known


# Pinning


def test_who_revokes_pins_the_branch_that_came_first(store: LogStore) -> None:
    author = key(42).public
    plain = LogBuilder(key(42), log_id=2).grow(3)
    log = LogBuilder(key(42)).grow(5)
    stolen, second = log.fork_at(3).grow(9), log.fork_at(4).grow(1)
    store.ingest([*items(plain), *items(log)])
    store.ingest(items(stolen))
    store.ingest(items(second))
    pins = store.read(find_pins, author)
    assert pins == [RevokedLog(1, 5, log.hash(5)), RevokedLog(2, 3, plain.hash(3))]
    revoking = Revoking(41, 42).say(tuple((end.log_id, end.last, end.hash) for end in pins if end.hash is not None))
    revoking.tell(store)
    assert seqs(store, log, stolen) == ["a1", "a2", "a3", "a4", "a5"]
    assert store.read(find_pins, author)[1:] == pins  # log 0 says whose key it is


def test_export_and_recovery_have_what_lies_beside(store: LogStore) -> None:
    log = LogBuilder(key(42)).grow(5)
    other = log.fork_at(3).grow(1)
    store.ingest([*items(log), *items(other)])
    Revoking(41, 42).say(((1, 5, log.hash(5)),)).tell(store)
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    assert (state.is_pinned, state.aside, state.held) == (True, 2, 5)
    everything = {entry.encoded for entry in (*log.entries, *other.entries)}
    assert {encoded for encoded, _ in store.lines_of(state.id, page=2)} == everything
    assert len(list(store.lines_of(state.id, page=2))) == 7
    given = store.read(read_held_entries, log.secret.public, 1, [(1, 9)], after=0, most=100, most_bytes=10**6)
    assert {encoded for encoded, _ in given.entries} == everything
