"""Rot on a real store: budgets, ladder, guards, cooking, crashes."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table
from pyspark.sql import SparkSession
from sqlalchemy import insert

from inkgrove.core import Hash
from inkgrove.messages import Access, Timestamp, Update
from inkgrove.pipeline.rot import run as rot_run
from inkgrove.pipeline.rot.policy import Limits, Policy
from inkgrove.store.db import EVERYTHING, PUBLIC, deliveries
from inkgrove.store.logs import read_entries
from inkgrove.store.rot import apply_moves, find_copy, put_pin, revive
from tests.support.logs import key
from tests.support.rotting import DAY, NOTES, VERSION, Grove
from tests.support.tiers import IS_THOROUGH, amount

FIFO: dict[str, Any] = {"fungus": "fifo", "guards": ()}
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def grove(spark: SparkSession, tmp_path: Path) -> Iterator[Grove]:
    opened = Grove(spark, str(tmp_path / "home"), tmp_path / "home")
    yield opened
    opened.close()


@pytest.fixture
def anywhere(spark: SparkSession, place: Path | str, tmp_path: Path) -> Iterator[Grove]:
    """The same on either database."""
    opened = Grove(spark, str(place), tmp_path)
    yield opened
    opened.close()


def test_oldest_go_until_the_rows_are_as_many_as_allowed(anywhere: Grove) -> None:
    notes = [anywhere.note(n % 3 + 1, title=f"note {n}", stars=n) for n in range(10)]
    assert anywhere.materialised() == set(notes)
    outcome = anywhere.run(**FIFO, node=Limits(rows=4))
    assert [(move["step"], move["to_step"], move["copies"]) for move in outcome.moves] == [("full", "cooked", 6)]
    assert [anywhere.step(note) for note in notes] == ["cooked"] * 6 + ["full"] * 4
    assert anywhere.materialised() == set(notes[6:])
    anywhere.materialiser.rebuild(NOTES)
    assert anywhere.materialised() == set(notes[6:])
    for number, note in enumerate(notes[6:], 6):
        anywhere.prove(number % 3 + 1, note)


def test_bytes_are_met_with_no_more_than_one_copy_to_spare(grove: Grove) -> None:
    source = random.Random(1)
    notes = [grove.note(1, title="x" * source.randint(1, 900)) for _ in range(30)]
    sizes = {note: len(grove.logs[1].payloads[number]) for number, note in enumerate(notes)}
    budget = sum(sizes.values()) // 2
    grove.run(fungus="uniform", guards=(), node=Limits(bytes=budget))
    gone = [note for note in notes if grove.step(note) == "cooked"]
    assert grove.held_bytes() == sum(sizes.values()) - sum(sizes[note] for note in gone) <= budget
    assert grove.held_bytes() + max(sizes[note] for note in gone) > budget
    assert len(grove.store.read(read_entries, key(1).public, 4)) == 30


def test_blobs_go_before_words(grove: Grove) -> None:
    first, second = grove.picture(1, 5000, "a"), grove.picture(1, 7000, "b")
    words = grove.held_bytes()
    grove.run(**FIFO, node=Limits(bytes=words + 7000))
    assert (grove.step(first), grove.step(second)) == ("no-blobs", "full")
    files = [path.stat().st_size for path in grove.home.glob("blobs/*/*")]
    assert files == [7000]
    assert grove.shown() == {first, second}


def test_each_owner_and_each_schema_has_its_own_budget(grove: Grove) -> None:
    many = [grove.note(1, title=str(n)) for n in range(6)]
    few = [grove.note(2, title=str(n)) for n in range(2)]
    grove.run(**FIFO, per_identity=Limits(rows=3))
    assert [grove.step(note) for note in many] == ["cooked"] * 3 + ["full"] * 3
    assert {grove.step(note) for note in few} == {"full"}
    grove.run(**FIFO, schemas={str(NOTES): Limits(rows=1)})
    assert grove.shown() == {few[-1]}


def test_plan_says_what_the_run_does_and_changes_nothing(grove: Grove) -> None:
    notes = [grove.picture(1, 100, "a"), *(grove.note(1, title=str(n)) for n in range(8))]
    sizes = {note: len(grove.logs[1].payloads[number]) for number, note in enumerate(notes)}
    policy = Policy(fungus="uniform", guards=(), node=Limits(rows=3), seed=5)
    plan = grove.rot.plan(policy, grove.home / "plan.parquet")
    assert grove.shown() == set(notes)
    again = grove.rot.plan(policy)
    run = grove.rot.run(policy)
    assert plan.moves == again.moves == run.moves
    assert plan.freed == run.freed > 0
    told = {Hash(bytes.fromhex(row["instance"])): row for row in read_table(grove.home / "plan.parquet").to_pylist()}
    assert {note: row["to_step"] for note, row in told.items()} == {
        note: step for note, step in grove.steps().items() if step != "full"
    }
    assert len(told) == 6
    for note, row in told.items():
        assert (row["step"], row["bytes"]) == ("full", sizes[note] + (100 if note == notes[0] else 0))
        copy = grove.store.database.read(lambda connection, of=note: find_copy(connection, of))  # type: ignore[misc]
        assert copy is not None
        assert row["why"] == copy.why


def test_guards_keep_what_somebody_needs(grove: Grove) -> None:
    pinned, answered, passed_on, waiting, plain, newest = (grove.note(1, title=name) for name in "abcdef")
    grove.note(50, sent=False, about=bytes(answered))

    def work(connection: Any) -> None:
        put_pin(connection, pinned, grove.me, grove.now)
        for instance, state in ((passed_on, "delivered"), (waiting, "waiting")):
            row = {"instance": instance, "recipient": b"r" * 32, "via": grove.me, "wanted": 1, "delivered": 0}
            connection.execute(insert(deliveries), {**row, "state": state, "queued": 0, "changed": 0})

    grove.store.database.write(work)
    outcome = grove.rot.run(Policy(fungus="fifo", node=Limits(rows=1)))
    assert outcome.kept == {"pinned": 1, "answered": 1, "passed-on": 1, "undelivered": 1, "newest": 1}
    assert grove.step(plain) == "cooked"
    assert {grove.step(note) for note in (pinned, answered, passed_on, waiting, newest)} == {"full"}
    grove.run(**FIFO, node=Limits(rows=1))  # without the guards that can be chosen
    assert {note for note, step in grove.steps().items() if step == "full"} == {waiting}


def test_own_instances_and_schemas_never_rot(grove: Grove) -> None:
    mine = grove.note(50, sent=False, title="mine")
    grove.note(1, title="theirs")
    grove.run(**FIFO, node=Limits(rows=1, bytes=1))
    assert grove.shown() == {mine}
    assert mine not in grove.steps()


def test_own_instance_goes_when_its_owner_lets_it_expire(anywhere: Grove) -> None:
    grove = anywhere
    until_tomorrow = {"expires": Timestamp(grove.now + DAY), "access": Access("public")}
    asked = grove.note(50, sent=False, title="until tomorrow", stars=4, facts=until_tomorrow)
    taken_back = grove.note(50, sent=False, facts={"expires": Timestamp(grove.now + DAY)})
    grove.say(50, Update(VERSION, taken_back, expires=None))
    put_off = grove.note(50, sent=False, facts={"expires": Timestamp(grove.now + DAY)})
    grove.say(50, Update(VERSION, put_off, expires=Timestamp(grove.now + 9 * DAY)))
    plain, theirs = grove.note(50, sent=False, title="mine"), grove.note(1, title="theirs")
    # Until then it is no part of any budget: somebody else's copy does not go because of it.
    outcome = grove.run(**FIFO, node=Limits(rows=1))
    assert (outcome.moves, grove.shown()) == ([], {asked, taken_back, put_off, plain, theirs})
    grove.now += 2 * DAY
    outcome = grove.run(**FIFO, node=Limits(rows=1))
    assert [(move["why"], move["copies"]) for move in outcome.moves] == [("expired", 1)]
    assert (grove.step(asked), grove.shown()) == ("cooked", {taken_back, put_off, plain, theirs})
    assert grove.materialised() == {taken_back, put_off, plain, theirs}
    grove.take_in(grove.logs[50])  # somebody delivers it again
    assert asked not in grove.shown()
    readers = {bytes(row.reader): row.sum for row in grove.summaries() if row.field == "stars"}
    assert readers == {EVERYTHING: 4.0, bytes(grove.me): 4.0}
    for note in (taken_back, put_off, plain):
        grove.prove(50, note)


def test_expiry_that_is_put_off_after_the_plan_still_counts(grove: Grove, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = grove.note(50, sent=False, facts={"expires": Timestamp(grove.now - 1)})
    gone = grove.note(50, sent=False, facts={"expires": Timestamp(grove.now - 1)})
    put_off = Update(VERSION, mine, expires=Timestamp(grove.now + DAY))
    after_the_plan(grove, monkeypatch, lambda: grove.say(50, put_off))
    grove.run()
    assert (grove.step(mine), grove.step(gone)) == ("full", "cooked")
    assert grove.shown() == {mine}


def test_fork_evidence_stays(grove: Grove) -> None:
    first, second = grove.note(1, title="first"), grove.note(1, title="second")
    branch = grove.logs[1].fork_at(2)
    grove.store.ingest([(branch.entries[1].encoded, branch.payloads[1])])
    grove.run(**FIFO, node=Limits(bytes=1))
    assert (grove.step(first), grove.step(second)) == ("cooked", None)
    assert sum(stored.payload is not None for stored in grove.store.read(read_entries, key(1).public, 4)) == 2


def test_expired_goes_at_once_whatever_the_budget(grove: Grove) -> None:
    soon = grove.note(1, title="soon", facts={"expires": Timestamp(grove.now + DAY)})
    late = grove.note(1, title="late", facts={"expires": Timestamp(grove.now + 9 * DAY)})
    grove.store.database.write(lambda connection: put_pin(connection, soon, grove.me, grove.now))
    grove.run()
    assert grove.step(soon) == "full"
    grove.now += 2 * DAY
    grove.run()
    assert (grove.step(soon), grove.step(late)) == ("cooked", "full")


def test_ladder_goes_down_with_time_and_a_late_delivery_begins_anew(grove: Grove) -> None:
    old, new = grove.note(1, title="old"), grove.note(1, title="new")
    policy: dict[str, Any] = {**FIFO, "node": Limits(rows=1), "cooked_seconds": 60, "absence_seconds": 3600}
    seen = []
    for _ in range(4):
        grove.run(**policy)
        grove.take_in(grove.logs[1])  # an old delivery
        seen.append((grove.step(old), grove.shown()))
        grove.now += 7200 * 1_000_000
    # What is gone may come back, and is then the newest arrival.
    assert seen == [("cooked", {new}), ("stub", {new}), ("gone", {old, new}), ("full", {old})]


def test_tombstones_outlive_the_absence_of_a_peer(grove: Grove) -> None:
    note = grove.note(1, title="to be ended")
    grove.note(1, title="newer")
    grove.delete(1, note)
    policy: dict[str, Any] = {**FIFO, "node": Limits(bytes=1), "absence_seconds": 3600}
    outcome = grove.run(**policy)
    assert outcome.kept == {"tombstone": 1}
    assert grove.step(note) == "full"
    grove.now += 3601 * 1_000_000
    grove.run(**policy)
    assert grove.step(note) == "cooked"
    grove.take_in(grove.logs[1])
    assert grove.shown() == set()


def test_stub_takes_an_update_and_is_not_shown_as_whole(grove: Grove) -> None:
    note = grove.note(1, title="first")
    newer = grove.note(1, title="newer")
    grove.run(**FIFO, node=Limits(rows=1))
    grove.change(1, note, title="second")
    assert grove.shown() == {newer}
    grove.run(**FIFO, node=Limits(rows=1))
    assert grove.step(note) == "cooked"
    held = [stored.payload is not None for stored in grove.store.read(read_entries, key(1).public, 4)]
    assert held == [False, True, False]
    # Somebody asks for it: now it may come back, whole.
    grove.store.database.write(lambda connection: revive(connection, note, grove.now))
    grove.take_in(grove.logs[1])
    assert grove.shown() == {note, newer}


def test_fungus_looks_at_reads(grove: Grove) -> None:
    notes = [grove.note(1, title=str(n)) for n in range(5)]
    for _ in range(3):  # so that none of them is new
        grove.run()
    grove.read(notes[0], 3)
    grove.run(fungus="rot", guards=(), node=Limits(rows=1))
    assert grove.shown() == {notes[0]}


def test_cooking_counts_each_copy_once_for_those_who_could_see_it(grove: Grove) -> None:
    for n in range(6):
        grove.note(1, title=f"t{n % 2}", stars=n, weight=n / 2)
    grove.note(1, sent=False, title="for all", stars=100, facts={"access": Access("public")})
    grove.note(2, sent=False, title="nobody's", stars=1000)
    grove.note(3, title="the one that stays", stars=1)
    grove.run(**FIFO, node=Limits(rows=1))
    grove.run(**FIFO, node=Limits(rows=1))
    found = {(bytes(row.reader), row.field): row for row in grove.summaries() if bytes(row.owner) == key(1).public}
    stars = found[bytes(grove.me), "stars"]
    assert (stars.count, stars.sum, stars.min, stars.max) == (6, 15.0, 0.0, 5.0)
    assert (found[PUBLIC, "stars"].count, found[PUBLIC, "stars"].sum) == (1, 100.0)
    assert (found[EVERYTHING, ""].count, found[EVERYTHING, "stars"].sum) == (7, 115.0)
    assert found[EVERYTHING, ""].month == "2020-09"
    assert bytes(found[bytes(grove.me), ""].first) == grove.notes[0]
    assert bytes(found[bytes(grove.me), ""].last) == grove.notes[5]
    everything = [row for row in grove.summaries() if bytes(row.reader) == EVERYTHING and row.field == "stars"]
    assert sum(row.sum for row in everything) == 1115.0


def test_what_was_no_row_is_in_no_summary(grove: Grove) -> None:
    whole = grove.note(1, title="whole", stars=1)
    grove.note(1, title="quarantined", stars="many")
    grove.note(2, title="its part", part_of=bytes(whole))
    left = grove.note(2, title="on its own", stars=7)
    grove.delete(1, whole)
    assert grove.materialised() == {left}
    outcome = grove.run(**FIFO, node=Limits(bytes=1))
    assert (sum(move["copies"] for move in outcome.moves), outcome.kept) == (3, {"tombstone": 1})
    cooked = {(bytes(row.reader), row.field): row for row in grove.summaries()}
    assert (cooked[EVERYTHING, ""].count, bytes(cooked[EVERYTHING, ""].first)) == (1, left)
    assert cooked[bytes(grove.me), ""].count == 1


class Crash(Exception):
    """Stands for a process that is killed."""


@pytest.mark.parametrize(
    "where", ["staged", "half", *(["noted", "planned", "before the commit"] if IS_THOROUGH else [])]
)
def test_run_that_was_interrupted_comes_to_the_same(grove: Grove, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for n in range(12):
        note = grove.picture(n % 2 + 1, 100 + n, str(n), title=str(n), stars=n)
        files[note] = 100 + n
    policy = Policy(fungus="uniform", guards=(), node=Limits(rows=5), seed=3)
    wanted = grove.rot.plan(policy).moves

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        if where == "noted":
            patched.setattr(grove.rot, "commit", crash)
        elif where == "staged":
            patched.setattr(rot_run, "commit_plan", crash)
        elif where == "planned":
            patched.setattr(grove.rot, "apply", crash)
        else:
            patched.setattr(grove.rot, "apply", lambda run, _: half(grove, run, commits=where == "half"))
        with pytest.raises(Crash):
            grove.rot.run(policy)
    whole = {note for note, step in grove.steps().items() if step == "full"}
    assert len(whole) == (9 if where == "half" else 12)
    assert grove.blob_sizes() >= {files[note] for note in whole}
    grove.now += DAY
    assert grove.rot.run(Policy()).moves == wanted  # the policy of the interrupted run counts, and its clock
    assert sorted(grove.steps().values()).count("cooked") == 7
    cooked = [row for row in grove.summaries() if bytes(row.reader) == EVERYTHING and row.field == ""]
    assert sum(row.count for row in cooked) == 7
    assert len(grove.shown()) == 5
    assert grove.blob_sizes() == {files[note] for note in grove.shown()}


def half(grove: Grove, run: Any, *, commits: bool) -> None:
    """Three moves, and the end: after their transaction and before anything else, or within it."""

    def work(connection: Any) -> None:
        apply_moves(connection, run, (), 3)
        if not commits:
            raise Crash

    grove.store.database.write(work)
    raise Crash


def test_pin_set_after_the_plan_still_counts(grove: Grove, monkeypatch: pytest.MonkeyPatch) -> None:
    note = grove.note(1, title="wanted")
    grove.note(1, title="newer")
    pin = partial(put_pin, instance=note, identity=grove.me, now=grove.now)
    after_the_plan(grove, monkeypatch, lambda: grove.store.database.write(pin))
    grove.run(fungus="fifo", guards=("pinned",), node=Limits(rows=1))
    assert grove.step(note) == "full"


def after_the_plan(grove: Grove, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Let something happen between the plan and the work."""
    commit = grove.rot.commit

    def and_then(*arguments: Any) -> None:
        commit(*arguments)
        happens()

    monkeypatch.setattr(grove.rot, "commit", and_then)


def test_delete_and_answer_after_the_plan_still_count(grove: Grove, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, asked = grove.note(1, title="whole"), grove.note(1, title="a question")
    part, last = grove.note(2, part_of=bytes(whole)), grove.note(2, title="last")

    def happen() -> None:
        grove.delete(1, whole)
        grove.note(50, sent=False, about=bytes(asked))

    after_the_plan(grove, monkeypatch, happen)
    outcome = grove.run(fungus="fifo", guards=("answered",), node=Limits(rows=2))
    assert outcome.moves[0]["copies"] == 2
    assert {grove.step(note) for note in (whole, asked, part, last)} == {"full"}
    assert grove.shown() == {asked, last, grove.notes[-1]}


def test_fork_found_after_the_plan_keeps_its_evidence(grove: Grove, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = grove.note(1, title="first"), grove.note(1, title="second")
    branch = grove.logs[1].fork_at(2)
    pair = (branch.entries[1].encoded, branch.payloads[1])
    after_the_plan(grove, monkeypatch, lambda: grove.store.ingest([pair]))
    grove.run(**FIFO, node=Limits(bytes=1))
    assert (grove.step(first), grove.step(second)) == ("cooked", "full")
    assert sum(stored.payload is not None for stored in grove.store.read(read_entries, key(1).public, 4)) == 2


@pytest.mark.parametrize("seed", range(amount(1, 3)))
def test_nothing_guarded_is_touched_and_every_rest_proves(grove: Grove, seed: int) -> None:
    source = random.Random(seed)
    guarded: set[Hash] = set()
    owners: dict[Hash, int] = {}
    for n in range(40):
        owner = source.randint(1, 3)
        note = grove.note(owner, title="x" * source.randint(1, 400), stars=n)
        owners[note] = owner
        if source.random() < 0.3:
            grove.change(owner, note, stars=-n)
        if source.random() < 0.2:
            grove.store.database.write(lambda connection, of=note: put_pin(connection, of, grove.me, 0))  # type: ignore[misc]
            guarded.add(note)
        grove.read(note, source.randint(1, 5))
    payloads = [len(payload) for log in grove.logs.values() for payload in log.payloads]
    fungus = source.choice(["uniform", "egi", "rot", "stratified", "overexposed", "anterograde", "area"])
    budget = sum(payloads) // 3
    grove.rot.run(Policy(fungus=fungus, guards=("pinned",), node=Limits(bytes=budget), seed=seed))
    assert {grove.step(note) for note in guarded} == {"full"}
    gone = {note for note, step in grove.steps().items() if step == "cooked"}
    kept_anyway = len(gone) + len(guarded) == len(owners)
    assert grove.held_bytes() <= budget or kept_anyway
    shown = grove.shown()
    assert shown == owners.keys() - gone
    for note in shown:
        grove.prove(owners[note], note)
