"""What a node knows of its foreign copies, noted from what happened in the logs; stubs that refuse to come back."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from inkgrove.core import Hash, PublicKey, identity_of
from inkgrove.messages import Create, Delete, Message, SchemaVersion, Timestamp, Update, encode_message
from inkgrove.node.runtime import ReadCounter
from inkgrove.node.runtime import write_buffers as read_counter
from inkgrove.store.db import copy_reads, deliveries, rot_victims
from inkgrove.store.federation import queue_deliveries
from inkgrove.store.logs import (
    IngestStatus,
    LogStore,
    by_log,
    find_entry,
    ingest_batch,
    open_store,
    prepare_items,
    read_entries,
)
from inkgrove.store.node import HostedIdentity, add_identity
from inkgrove.store.rot import (
    SOFT_GUARDS,
    add_reads,
    apply_moves,
    begin_rot_run,
    commit_plan,
    count_steps,
    find_copy,
    finish_rot_run,
    lock_instance,
    next_tick,
    note_copies,
    put_pin,
    read_copy,
    revive,
)
from tests.support.logs import LogBuilder, key
from tests.support.races import begin_before_commit

NOW = 1_600_000_000_000_000
SCHEMA = SchemaVersion(key(9).public, 1, 2)


class Notes:
    """A store, a log of somebody elsewhere and one of an identity that is hosted here."""

    def __init__(self, place: Path | str) -> None:
        self.store: LogStore = open_store(place)
        self.theirs, self.ours = LogBuilder(key(1), log_id=4), LogBuilder(key(50), log_id=4)
        me = HostedIdentity(identity_of(key(50).public), "jane.haiku.ink", key(50).public, None, NOW)
        self.store.database.write(lambda connection: add_identity(connection, me, None))

    def say(self, log: LogBuilder, message: Message) -> Hash:
        log.append(encode_message(message))
        (receipt,) = self.store.ingest([(log.entries[-1].encoded, log.payloads[-1])])
        assert receipt.error is None
        return log.hash(len(log.entries))

    def note(self, tick: int = 1, now: int = NOW) -> None:
        while self.store.database.write(lambda connection: note_copies(connection, tick, now, 3)):
            continue

    def copy(self, instance: Hash) -> Any:
        return self.store.database.read(lambda connection: find_copy(connection, instance))

    def guard(self, instance: Hash, now: int = NOW) -> Any:
        guards = SOFT_GUARDS
        row = self.store.database.read(lambda connection: read_copy(connection, instance, guards, now, 1000))
        return row.guard

    def deliver(self, instance: Hash, state: str) -> None:
        via = identity_of(key(50).public)
        row = {"instance": instance, "recipient": b"r" * 32, "via": via, "wanted": 1, "delivered": 0}
        facts = {**row, "state": state, "queued": 0, "changed": 0}
        self.store.database.write(lambda connection: connection.execute(insert(deliveries), facts))

    def take_down(self, instance: Hash, step: str, guards: Collection[str] = SOFT_GUARDS) -> None:
        copy = self.copy(instance)
        place = {"instance": instance, "log": copy.log, "create_seq": copy.create_seq}

        def work(connection: Any) -> None:
            run = begin_rot_run(connection, 0, NOW, "{}")
            connection.execute(insert(rot_victims), {**place, "step": step, "why": "a test"})
            apply_moves(connection, run, guards)
            finish_rot_run(connection, run.tick, NOW, {})

        self.store.database.write(work)


@pytest.fixture
def notes(place: Path | str) -> Iterator[Notes]:
    opened = Notes(place)
    yield opened
    opened.store.close()


def test_copies_are_noted_with_all_that_counts(notes: Notes) -> None:
    first = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}, expires=Timestamp(NOW + 5)))
    second = notes.say(notes.theirs, Create(SCHEMA, {"a": 2}))
    mine = notes.say(notes.ours, Create(SCHEMA, {"about": bytes(second)}))
    notes.note()
    copy = notes.copy(first)
    assert (copy.step, copy.bytes, copy.expires, copy.born) == ("full", len(notes.theirs.payloads[0]), NOW + 5, 1)
    assert copy.arrival < notes.copy(second).arrival
    assert notes.copy(mine) is None
    notes.say(notes.theirs, Update(SCHEMA, first, {"a": 3}, expires=None))
    notes.note(2)
    again = notes.copy(first)
    both = len(notes.theirs.payloads[0]) + len(notes.theirs.payloads[2])
    assert (again.bytes, again.expires, again.arrival, again.born) == (both, None, copy.arrival, 1)


def test_copy_arrives_with_its_content(notes: Notes) -> None:
    """Entries without content come in the proofs of others, and say nothing on which instance somebody got first."""
    log = notes.theirs
    for number in range(3):
        log.append(encode_message(Create(SCHEMA, {"a": number})))
    for seq_num, payload in ((1, log.payloads[0]), (2, None), (3, log.payloads[2]), (2, log.payloads[1])):
        notes.store.ingest([(log.entry(seq_num).encoded, payload)])
    notes.store.database.write(lambda connection: note_copies(connection, 1, NOW))
    assert sorted((1, 2, 3), key=lambda seq_num: notes.copy(log.hash(seq_num)).arrival) == [1, 3, 2]


def test_guards_by_themselves(notes: Notes) -> None:
    plain, answered, ended, newest = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(4))
    notes.say(notes.ours, Create(SCHEMA, {}, copied_from=answered))
    notes.say(notes.theirs, Delete(ended))
    notes.note()
    assert [notes.guard(note) for note in (plain, answered, ended, newest)] == [None, "answered", "tombstone", "newest"]
    assert notes.guard(ended, NOW + 2000) is None
    me = identity_of(key(50).public)
    notes.store.database.write(lambda connection: put_pin(connection, plain, me, NOW))
    assert notes.guard(plain) == "pinned"


def test_line_rots_from_its_oldest_instance_on(notes: Notes) -> None:
    old = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}))
    continuing = notes.say(notes.theirs, Create(SCHEMA, {"a": 2}, continues=old))
    # A stranger who names an instance does not keep their own by that.
    stranger = LogBuilder(key(2), log_id=4)
    foreign = notes.say(stranger, Create(SCHEMA, {"a": 3}, continues=old))
    for log in (notes.theirs, stranger):
        notes.say(log, Create(SCHEMA, {"a": 4}))
    notes.note()
    assert [notes.guard(note) for note in (old, continuing, foreign)] == [None, "line", None]
    notes.take_down(continuing, "stub")
    assert notes.copy(continuing).step == "full"
    notes.take_down(old, "stub")
    assert notes.guard(continuing) is None
    notes.take_down(continuing, "stub")
    assert notes.copy(continuing).step == "stub"


def test_stub_refuses_payloads_and_takes_new_entries(notes: Notes) -> None:
    note = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}))
    notes.say(notes.theirs, Create(SCHEMA, {"a": 2}))
    notes.note()
    notes.take_down(note, "cooked")
    old = (notes.theirs.entries[0].encoded, notes.theirs.payloads[0])
    assert [receipt.status for receipt in notes.store.ingest([old])] == [IngestStatus.KNOWN]
    stored = notes.store.read(find_entry, note)
    assert stored is not None
    assert stored.payload is None
    update = notes.say(notes.theirs, Update(SCHEMA, note, {"a": 5}))
    later = notes.store.read(find_entry, update)
    assert later is not None
    assert later.payload is not None
    notes.note(2)
    assert (notes.copy(note).step, notes.copy(note).bytes) == ("cooked", len(notes.theirs.payloads[2]))
    assert notes.store.database.write(lambda connection: revive(connection, note, NOW))
    assert [receipt.status for receipt in notes.store.ingest([old])] == [IngestStatus.COMPLETED]
    assert (notes.copy(note).step, notes.copy(note).fetched) == ("full", 1)


def test_newest_is_the_newest_that_is_still_there(notes: Notes) -> None:
    first, second, third, fourth = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(4))
    notes.say(notes.theirs, Update(SCHEMA, third, {}, expires=Timestamp(NOW - 1)))
    notes.say(notes.theirs, Delete(fourth))
    notes.note()
    assert [notes.guard(note, NOW + 2000) for note in (first, second, third, fourth)] == [None, "newest", None, None]


@pytest.mark.parametrize("state", ["waiting", "held", "delivered"])
def test_what_is_put_aside_by_its_recipient_is_still_to_be_sent(notes: Notes, state: str) -> None:
    note, _ = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.note()
    assert notes.guard(note) is None
    notes.deliver(note, state)
    assert notes.guard(note) == ("passed-on" if state == "delivered" else "undelivered")
    notes.take_down(note, "cooked", guards=())
    assert notes.copy(note).step == ("cooked" if state == "delivered" else "full")


def test_what_guards_a_copy_after_the_plan_was_made_still_counts(notes: Notes) -> None:
    deleted, deleted_and_noted, answered, second, newest = (
        notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(5)
    )
    notes.note()
    notes.say(notes.theirs, Delete(deleted_and_noted))
    notes.say(notes.theirs, Delete(newest))
    notes.say(notes.ours, Create(SCHEMA, {}, copied_from=answered))
    notes.note(2, NOW + 1)
    notes.say(notes.theirs, Delete(deleted))
    for note in (deleted, deleted_and_noted):
        notes.take_down(note, "cooked", guards=())
    for note in (answered, second):
        notes.take_down(note, "cooked")
    assert {notes.copy(note).step for note in (deleted, deleted_and_noted, answered, second)} == {"full"}
    for note in (answered, second):
        notes.take_down(note, "cooked", guards=())
        assert notes.copy(note).step == "cooked"
    # As in a plan, guards that can be chosen do not hold what nobody sees any more.
    notes.take_down(answered, "stub")
    assert notes.copy(answered).step == "stub"


def test_delete_that_the_plan_knew_of_does_not_hold_its_copy(notes: Notes) -> None:
    note, _ = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.say(notes.theirs, Delete(note))
    notes.note()
    notes.take_down(note, "cooked")
    assert notes.copy(note).step == "cooked"


def test_fork_found_after_the_plan_was_made_keeps_its_evidence(notes: Notes) -> None:
    before, evidence = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.note()
    branch = notes.theirs.fork_at(2)
    notes.store.ingest([(branch.entries[1].encoded, branch.payloads[1])])
    for note in (before, evidence):
        notes.take_down(note, "cooked", guards=())
    assert (notes.copy(before).step, notes.copy(evidence).step) == ("cooked", "full")


def test_copy_fetched_again_after_the_plan_was_made_stays_whole(notes: Notes) -> None:
    note, _ = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.note()
    notes.take_down(note, "cooked")
    notes.store.database.write(lambda connection: revive(connection, note, NOW + 1))
    notes.take_down(note, "stub", guards=())
    assert notes.copy(note).step == "full"


def test_pin_counts_also_after_the_plan_was_made(notes: Notes) -> None:
    note, _ = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.note()
    notes.store.database.write(lambda connection: put_pin(connection, note, identity_of(key(2).public), NOW))
    notes.take_down(note, "cooked")
    assert notes.copy(note).step == "full"
    assert notes.copy(note).bytes == len(notes.theirs.payloads[0])


def test_what_comes_of_a_copy_while_it_is_taken_down_goes_with_it(notes: Notes) -> None:
    note = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}))
    notes.note()
    notes.theirs.append(encode_message(Update(SCHEMA, note, {"a": 2})))
    news = prepare_items([(notes.theirs.entries[1].encoded, notes.theirs.payloads[1])])[0]
    begin_before_commit(
        notes.store.database,
        lambda connection: ingest_batch(connection, by_log(news), must_be_next=False),
        lambda: notes.take_down(note, "cooked", guards=()),
    )
    assert notes.copy(note).step == "cooked"
    assert [item.payload for item in notes.store.read(read_entries, key(1).public, 4)] == [None, None]


@pytest.mark.parametrize("way", ["pinned", "passed on"])
def test_copy_that_is_wanted_while_it_is_taken_down_stays(notes: Notes, way: str) -> None:
    note, _ = (notes.say(notes.theirs, Create(SCHEMA, {"a": n})) for n in range(2))
    notes.note()
    jane, john = identity_of(key(50).public), identity_of(key(2).public)

    def want(connection: Connection) -> None:
        if way == "pinned":
            put_pin(connection, note, jane, NOW)
        else:
            lock_instance(connection, note)
            queue_deliveries(connection, note, jane, [john], wanted=1, now=NOW)

    begin_before_commit(notes.store.database, want, lambda: notes.take_down(note, "cooked"))
    assert notes.copy(note).step == "full"


def test_gone_copy_begins_anew(notes: Notes) -> None:
    note = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}))
    notes.note()
    arrival = notes.copy(note).arrival
    notes.take_down(note, "gone", guards=())
    old = (notes.theirs.entries[0].encoded, notes.theirs.payloads[0])
    assert [receipt.status for receipt in notes.store.ingest([old])] == [IngestStatus.COMPLETED]
    notes.note(2)
    copy = notes.copy(note)
    assert (copy.step, copy.born, copy.bytes) == ("full", 2, len(notes.theirs.payloads[0]))
    assert copy.arrival > arrival
    counted = notes.store.database.read(count_steps)
    assert counted == {"full": {"copies": 1, "bytes": copy.bytes, "blob_bytes": 0, "fetched": 0}}
    assert notes.store.database.read(next_tick) == 2


def test_reads_add_up(notes: Notes) -> None:
    long, short = Hash(b"\x00\x40" + b"a" * 64), Hash(b"\x00\x20" + b"a" * 32)
    other = Hash(b"\x00\x40" + b"\x00" * 64)
    for counts in ({long: 2, short: 7, other: 1}, {}, {long: 3}, {short: 1}):
        notes.store.database.write(lambda connection, n=counts: add_reads(connection, n))  # type: ignore[misc]
    query = select(copy_reads.c.instance, copy_reads.c.count)
    found = notes.store.database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})
    assert found == {long: 5, short: 8, other: 1}


def test_reader_does_not_wait_for_a_full_counter(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the limit is not counted until the rest is written; then it goes on."""
    monkeypatch.setattr(read_counter, "_MOST", 10)
    counter = ReadCounter(notes.store.database)
    reads = [(Hash(b"\x00\x40" + bytes([number]) * 64), key(3).public) for number in range(40)]
    with notes.store.database.writing():
        for read in reads[:30]:
            counter.add([read])
    counter.flush()
    counter.add(reads[30:])
    counter.close()
    query = select(copy_reads.c.instance)
    written = notes.store.database.read(lambda connection: set(connection.scalars(query)))
    assert written == {bytes(name) for name, _ in reads[:10] + reads[30:]}


def test_own_reads_are_not_counted_however_many_authors_there_are(notes: Notes) -> None:
    counter = ReadCounter(notes.store.database)
    authors = [PublicKey(number.to_bytes(32, "big")) for number in range(1, 1200)]
    counter.add((Hash(b"\x00\x40" + bytes(author) * 2), author) for author in authors)
    counter.add([(Hash(b"\x00\x40" + b"o" * 64), key(50).public)])
    counter.close()
    names = notes.store.database.read(lambda connection: set(connection.scalars(select(copy_reads.c.instance))))
    assert names == {b"\x00\x40" + bytes(author) * 2 for author in authors}


def test_reads_of_what_is_no_copy_go_with_the_next_plan(notes: Notes) -> None:
    note = notes.say(notes.theirs, Create(SCHEMA, {"a": 1}))
    notes.note()

    def work(connection: Any) -> None:
        add_reads(connection, {note: 1, Hash(b"\x00\x40" + b"o" * 64): 1})
        commit_plan(connection, [], begin_rot_run(connection, 0, NOW, "{}").tick, {})

    notes.store.database.write(work)
    names = notes.store.database.read(lambda connection: list(connection.scalars(select(copy_reads.c.instance))))
    assert names == [note]
