"""Spark's views against the oracle and the hand-written worlds: rows and outcomes, however the entries arrive.

INKGROVE_TEST_WORLDS raises the number of generated worlds.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from inkgrove.core import HeldEntry
from inkgrove.messages import Outcome, SchemaId
from inkgrove.pipeline.tables import FOLDED, RELATIONS, spark_schema
from inkgrove.pipeline.views import (
    InkgroveSource,
    Materialiser,
    Relations,
    RelationSource,
    cascade,
    effective,
    falling,
    fold_task,
    take_snapshot,
)
from inkgrove.store.logs import drop_payloads, newest_offset, read_registered, register_schema, unregister_schema
from inkgrove.store.views import read_visible_outcomes
from tests.support.devices import ControlGenerator, DeviceGenerator
from tests.support.generated import SCHEMA_LOGS, Generator
from tests.support.logs import LogBuilder, key
from tests.support.revocations import Revoking, take_in
from tests.support.tiers import amount
from tests.support.views import expected, expected_of, held_by, materialised
from tests.support.whole_fold import Comparable
from tests.support.world import AUTHORS, World, differences, load_expected, load_world
from tests.unit.schema.test_oracle import exact
from tests.unit.test_view_worlds import WORLDS, neutral_views

Map = dict[str, Any]
SEEDS = range(amount(2, 6, "INKGROVE_TEST_WORLDS"))
SHOWN = [
    folder
    for number, folder in enumerate(WORLDS)
    if number % amount(4, 1) == 0
    or any(part in folder.name for part in ("cascade", "pin"))
    or "key-of" in (folder / "world.yaml").read_text()
]
"""In the first tier a quarter of the worlds, all pins, and all with cascades or several keys of one identity, which
Spark follows by itself: the rest is the fold, which tests/unit/test_view_worlds.py holds against every world."""


def play(materialiser: Materialiser, seed: int, generator: type[Generator] = Generator) -> None:
    """A generated world, taken in and folded piece by piece."""
    rng = random.Random(seed)
    world = generator(seed).world()
    for schema_id in world.registered[:1]:
        materialiser.store.write(register_schema, schema_id)
    rest = [(item.signed.entry.encoded, item.payload) for item in world.held]
    while rest:
        size = rng.randint(1, len(rest))
        take_in(materialiser.store, rest[:size])
        rest = rest[size:]
        if rng.random() < 0.5:
            for schema_id in world.registered:
                materialiser.store.write(register_schema, schema_id)
        materialiser.catch_up(max_entries=rng.choice([2, 7, 1000]))
    # What was refused for want of a path may find one now; late payloads arrive.
    take_in(materialiser.store, [(item.signed.entry.encoded, item.payload) for item in world.held])
    for schema_id in world.registered:
        materialiser.store.write(register_schema, schema_id)
    materialiser.catch_up()


@pytest.mark.parametrize("seed", SEEDS)
def test_view_equals_the_oracle_however_entries_arrive(materialiser: Materialiser, seed: int) -> None:
    play(materialiser, seed)
    wanted = exact(expected(materialiser))
    assert exact(materialised(materialiser)) == wanted
    for schema_id in materialiser.store.read(read_registered):
        materialiser.rebuild(schema_id)
    assert exact(materialised(materialiser)) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_view_equals_the_oracle_after_payloads_have_gone(materialiser: Materialiser, seed: int) -> None:
    play(materialiser, seed)
    rng = random.Random(seed)
    while True:
        held = [item for item in held_by(materialiser.store) if item.payload is not None]
        instances = [item.signed.hash for item in held if item.signed.entry.log_id < SCHEMA_LOGS]
        if not instances:
            break
        materialiser.store.write(drop_payloads, rng.sample(instances, rng.randint(1, len(instances))))
        materialiser.catch_up()
        assert exact(materialised(materialiser)) == exact(expected(materialiser))


@pytest.mark.parametrize("seed", range(amount(3, 12, "INKGROVE_TEST_WORLDS")))
@pytest.mark.parametrize("generator", [DeviceGenerator, ControlGenerator])
def test_view_equals_the_oracle_where_keys_end_what_others_wrote(
    materialiser: Materialiser, generator: type[Generator], seed: int
) -> None:
    play(materialiser, seed, generator)
    wanted = exact(expected(materialiser))
    assert exact(materialised(materialiser)) == wanted
    for schema_id in materialiser.store.read(read_registered):
        materialiser.rebuild(schema_id)
    assert exact(materialised(materialiser)) == wanted


def outcomes_folded(materialiser: Materialiser) -> int:
    """How many messages the pipeline says it has folded."""
    return sum(materialiser.report.counts[outcome.value] for outcome in Outcome)


def outcomes_shown(views: Comparable) -> int:
    """How many messages have an outcome."""
    return sum(len(view["outcomes"]) for view in views.values())


@pytest.mark.parametrize("seed", range(20, 20 + amount(2, 4)))
def test_first_build_folds_each_entry_once_and_counts_it_once(on_sqlite: Materialiser, seed: int) -> None:
    world = Generator(seed).world()
    for schema_id in world.registered:
        on_sqlite.store.write(register_schema, schema_id)
    take_in(on_sqlite.store, [(item.signed.entry.encoded, item.payload) for item in world.held])
    on_sqlite.catch_up(max_entries=2)
    assert on_sqlite.report.batches == 1
    assert on_sqlite.views.progress()[1] == on_sqlite.store.read(newest_offset)
    found = materialised(on_sqlite)
    assert exact(found) == exact(expected(on_sqlite))
    assert outcomes_folded(on_sqlite) == outcomes_shown(found)
    assert on_sqlite.report.written >= sum(len(view["rows"]) for view in found.values())
    # Nothing is left for the stream.
    on_sqlite.catch_up()
    assert on_sqlite.report.batches == 1
    assert outcomes_folded(on_sqlite) == outcomes_shown(found)


@dataclass(frozen=True)
class Together:
    """Hand-written worlds in one store, each with authors of its own."""

    worlds: dict[Path, World]
    held: list[HeldEntry]
    found: Comparable

    def views_of(self, folder: Path) -> tuple[list[HeldEntry], Comparable]:
        """What the store holds of a world, and the views of it."""
        authors = {self.worlds[folder].symbols[author] for author in AUTHORS}
        held = [item for item in self.held if item.signed.entry.author in authors]
        hashes = {item.signed.hash for item in held}
        found = {schema: view for schema, view in self.found.items() if schema is None or schema.author in authors}
        outcomes = {name: said for name, said in found[None]["outcomes"].items() if name in hashes}
        return held, {**found, None: {**found[None], "outcomes": outcomes}}


@pytest.fixture(scope="module")
def together(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Together:
    worlds = {folder: load_world(folder / "world.yaml", salt=folder.name) for folder in SHOWN}
    materialiser = Materialiser(spark, str(tmp_path_factory.mktemp("worlds")))
    for world in worlds.values():
        for schema_id in world.registered:
            materialiser.store.write(register_schema, schema_id)
        take_in(materialiser.store, [(entry.encoded, payload) for entry, payload in world.entries])
    materialiser.catch_up()
    result = Together(worlds, held_by(materialiser.store), materialised(materialiser))
    assert outcomes_folded(materialiser) == outcomes_shown(result.found)
    materialiser.close()
    return result


def check_world(folder: Path, world: World, held: list[HeldEntry], found: Comparable) -> None:
    """Compare the views of a world with what the oracle makes of what is held, and with what is written by hand."""
    assert exact(found) == exact(expected_of(held, world.registered))
    if len(held) < len(world.entries):
        return  # a store takes nothing into an invalid part: the expectation speaks of more than it holds
    wanted = load_expected(folder / "expected.yaml", world)
    for view in wanted:
        view.pop("absent", None)
    assert differences(world, neutral_views(found, world), wanted) == []


@pytest.mark.parametrize("folder", SHOWN, ids=lambda folder: folder.name)
def test_views_of_hand_written_worlds_in_one_store_are_as_expected(together: Together, folder: Path) -> None:
    check_world(folder, together.worlds[folder], *together.views_of(folder))


@pytest.mark.thorough
@pytest.mark.parametrize("folder", WORLDS, ids=lambda folder: folder.name)
def test_view_of_a_hand_written_world_is_as_expected(on_sqlite: Materialiser, folder: Path) -> None:
    world = load_world(folder / "world.yaml")
    for schema_id in world.registered:
        on_sqlite.store.write(register_schema, schema_id)
    take_in(on_sqlite.store, [(entry.encoded, payload) for entry, payload in world.entries])
    on_sqlite.catch_up()
    found = materialised(on_sqlite)
    assert outcomes_folded(on_sqlite) == outcomes_shown(found)
    check_world(folder, world, held_by(on_sqlite.store), found)


def test_outcomes_without_a_schema_leave_the_view_when_entry_1_turns_out_forked(on_sqlite: Materialiser) -> None:
    (folder,) = (folder for folder in WORLDS if folder.name == "outcome-without-a-schema-in-a-log-forked-at-entry-1")
    world = load_world(folder / "world.yaml")
    for schema_id in world.registered:
        on_sqlite.store.write(register_schema, schema_id)
    before, forking = {}, []
    for entry, payload in world.entries:
        place = entry.author, entry.log_id, entry.seq_num
        if place in before:
            forking.append((entry.encoded, payload))
        else:
            before[place] = entry.encoded, payload
    on_sqlite.store.ingest(list(before.values()))
    on_sqlite.catch_up()
    assert exact(materialised(on_sqlite)) == exact(expected(on_sqlite))
    assert materialised(on_sqlite)[None]["outcomes"] == {}
    on_sqlite.store.ingest(forking)
    on_sqlite.catch_up()
    wanted = load_expected(folder / "expected.yaml", world)
    assert differences(world, neutral_views(materialised(on_sqlite), world), wanted) == []


@pytest.mark.parametrize("name", ["inkgrove", "inkgrove-relations"])
def test_source_refuses_a_store_that_is_not_there(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spark.dataSource.register(InkgroveSource)
    spark.dataSource.register(RelationSource)
    read = spark.read.format(name).option("of", "edges").option("tables", "[]")
    for place in (tmp_path / "typing-errror", tmp_path):
        with pytest.raises(PySparkException, match=r"no store in .* \[store.not-found\]"):
            read.option("store", str(place)).load().count()
    assert list(tmp_path.iterdir()) == []


def test_source_without_a_store_says_what_to_set(spark: SparkSession) -> None:
    spark.dataSource.register(InkgroveSource)
    with pytest.raises(PySparkException, match=r"say where the store is: .option\('store'"):
        spark.read.format("inkgrove").load().count()


def test_stream_refuses_a_store_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(InkgroveSource)
    stream = spark.readStream.format("inkgrove").option("store", str(tmp_path / "typing-errror")).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "point")).start()
    with pytest.raises(PySparkException, match=r"store.not-found"):
        query.awaitTermination(60)
    assert not (tmp_path / "typing-errror").exists()


def test_no_shuffle_between_source_and_staging(on_sqlite: Materialiser) -> None:
    dirty = on_sqlite.spark.read.format("inkgrove").option("store", on_sqlite.store_url).load()
    snapshot = take_snapshot(on_sqlite.store, {})
    folded = dirty.mapInArrow(fold_task(on_sqlite.store_url, on_sqlite.staging, snapshot), spark_schema(FOLDED))
    plan = folded._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow" in plan
    assert "Exchange" not in plan


def test_cascade_is_joins_of_spark(on_sqlite: Materialiser) -> None:
    relations = Relations.after_merge({"stage": {"edges": 1, "groups": 1, "whole": 1}})
    edges, deleted = effective(on_sqlite.spark, on_sqlite.store_url, relations)
    plan = falling(edges, deleted)._jdf.queryExecution().optimizedPlan().toString()
    assert "Join LeftAnti" in plan
    assert "Join LeftSemi" in plan
    assert "Aggregate" in plan
    assert "MapInArrow" not in plan


@pytest.mark.parametrize("seed", range(amount(3, 5)))
def test_cascade_reaches_the_fixed_point_of_chains_and_circles(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    nodes = [(view, bytes([number])) for view in (1, 2) for number in range(12)]
    edges = [(*rng.choice(nodes), rng.random() < 0.2, *rng.choice(nodes), 1, 1) for _ in range(30)]
    deleted = rng.sample(nodes, 2)
    lost = set(deleted)
    while more := {e[:2] for e in edges if not e[2] and e[3:5] in lost and e[:2] not in lost}:
        lost |= more
    # What its author deleted has no edges of its own any more.
    edges = [edge for edge in edges if edge[:2] not in deleted]
    found = cascade(
        spark.createDataFrame(edges, spark_schema(RELATIONS["edges"])),
        spark.createDataFrame([(*node, 1, 1) for node in deleted], spark_schema(RELATIONS["deleted"])),
    )
    assert {(row.view, bytes(row.instance)) for row in found.collect()} == lost - set(deleted)


class Shop:
    """A schema with three versions to come, and a log of notes."""

    def __init__(self, materialiser: Materialiser, number: int = 50) -> None:
        self.materialiser = materialiser
        self.schema = LogBuilder(key(number), log_id=10)
        self.notes = LogBuilder(key(number + 10), log_id=1)
        self.publish(self.schema, {"kind": "schema-meta", "name": "notes", "spec": 1})
        self.migrate({"a": {"action": "create", "type": "text"}})
        materialiser.store.write(register_schema, SchemaId(self.schema.secret.public, 10))

    def publish(self, log: LogBuilder, message: Map, *, with_payload: bool = True) -> None:
        entry = log.append(Generator.payload(message))
        self.materialiser.store.ingest([(entry.encoded, log.payloads[-1] if with_payload else None)])

    def migrate(self, change: Map) -> None:
        fields = [{name: what} for name, what in change.items()]
        self.publish(self.schema, {"kind": "schema-migration", "fields": fields})

    def create(self, text: str, *, version: int = 2, with_payload: bool = True) -> int:
        named = [bytes(self.schema.secret.public), 10, version]
        message = {"kind": "create", "schema": named, "fields": [{"a": text}]}
        self.publish(self.notes, message, with_payload=with_payload)
        return len(self.notes.entries)

    def update(self, seq_num: int, text: str, version: int = 2) -> None:
        named = [bytes(self.schema.secret.public), 10, version]
        self.publish(self.notes, {"kind": "update", "schema": named, "instance": seq_num, "fields": [{"a": text}]})

    def written(self) -> int:
        """How many rows the next run of the pipeline writes."""
        before = self.materialiser.report.written
        self.materialiser.catch_up()
        assert exact(materialised(self.materialiser)) == exact(expected(self.materialiser))
        return self.materialiser.report.written - before


def test_only_affected_rows_are_written(on_sqlite: Materialiser) -> None:
    shop = Shop(on_sqlite)
    for number in range(30):
        shop.create(f"note {number}")
    shop.create("not here yet", with_payload=False)
    shop.written()
    assert shop.written() == 0
    # A late payload.
    on_sqlite.store.ingest([(shop.notes.entry(31).encoded, shop.notes.payloads[30])])
    assert shop.written() == 1
    # An update.
    shop.update(7, "changed")
    assert shop.written() == 1
    # A message that waits for a schema version writes nothing.
    shop.create("from the future", version=3)
    assert shop.written() == 0
    # The version comes: every row gets its column, and the message that waited its row.
    shop.migrate({"b": {"action": "create", "type": "text", "default": "none"}})
    assert shop.written() == 32
    # A revert takes the column away again, and the row that was made with it.
    shop.publish(shop.schema, {"kind": "schema-revert", "target": 2})
    assert shop.written() == 31
    # A fork at 30 takes two rows away and the update of a third, which alone is written.
    branch = shop.notes.fork_at(30)
    on_sqlite.store.ingest([(branch.entry(30).encoded, branch.payloads[29])])
    assert shop.written() == 1


def test_another_view_is_not_written_when_a_schema_changes(on_sqlite: Materialiser) -> None:
    shop, other = Shop(on_sqlite), Shop(on_sqlite, number=70)
    for text in ("one", "two", "three"):
        shop.create(text)
        other.create(text)
    shop.written()
    other.migrate({"b": {"action": "create", "type": "text"}})
    assert shop.written() == 3


def test_dropped_first_payload_takes_its_row_and_outcome_away(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    shop.create("one")
    shop.create("two")
    shop.update(1, "changed")
    shop.written()
    materialiser.store.write(drop_payloads, [shop.notes.hash(1)])
    assert shop.written() == 1


def test_late_end_of_a_log_takes_away_what_stands_behind_it(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    shop.create("one")
    shop.create("two")
    named = [bytes(shop.schema.secret.public), 10, 2]
    messages: list[Map] = [
        {"kind": "create", "schema": named, "fields": [{"a": "the last"}]},
        {"kind": "update", "schema": named, "instance": 1, "fields": [{"a": "too late"}]},
        {"kind": "create", "schema": named, "fields": [{"zz": "not a field"}]},
    ]
    for message in messages:
        shop.notes.append(Generator.payload(message), is_end_of_log=message is messages[0])
    items = [(shop.notes.entry(n).encoded, shop.notes.payloads[n - 1]) for n in (3, 4, 5)]
    # Entry 4 links to entry 1, entry 5 to entry 4: they are held before 3 comes and says that it is the last.
    materialiser.store.ingest(items[1:])
    shop.written()
    materialiser.store.ingest(items[:1])
    shop.written()
    assert {row.seq_num for row in _outcomes(materialiser)} == {1, 2, 3}


def test_late_revocation_of_a_key_takes_away_what_it_signed_since(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    for text in ("one", "two", "three", "four"):
        shop.create(text)
    shop.written()
    revoking = Revoking(40, 60)
    for ends, places in ((((1, 2),), {1, 2}), (((1, 3),), {1, 2, 3}), (None, {1, 2, 3, 4})):
        revoking.say(ends).tell(materialiser.store)
        shop.written()
        assert {row.seq_num for row in _outcomes(materialiser)} == places
        assert exact(materialised(materialiser)) == exact(expected(materialiser))


def _outcomes(materialiser: Materialiser) -> list[Any]:
    (view,) = materialiser.views.views().values()
    with materialiser.views.database.reading() as connection:
        return read_visible_outcomes(connection, view, limit=1_000)


def test_position_is_written_with_the_rows_and_a_second_run_does_nothing(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    shop.create("one")
    shop.written()
    batch, offset = materialiser.views.progress()
    assert offset == materialiser.store.read(newest_offset)
    materialiser.catch_up()
    assert materialiser.views.progress() == (batch, offset)


def test_stream_follows_and_ends_when_asked(materialiser: Materialiser, tmp_path: Path) -> None:
    shop = Shop(materialiser)
    shop.create("before")
    query = materialiser.follow(tmp_path / "once", once=True, max_entries=2)
    query.awaitTermination(60)
    assert not query.isActive
    assert exact(materialised(materialiser)) == exact(expected(materialiser))
    query = materialiser.follow(tmp_path / "follow")
    shop.create("after")
    shop.migrate({"b": {"action": "create", "type": "integer", "default": 7}})
    wanted = exact(expected(materialiser))
    for _ in range(600):
        if exact(materialised(materialiser)) == wanted:
            break
        query.processAllAvailable()
    query.stop()
    assert query.exception() is None
    assert exact(materialised(materialiser)) == wanted


def test_unregistered_schema_loses_its_view(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    shop.create("one")
    shop.written()
    materialiser.store.write(unregister_schema, SchemaId(shop.schema.secret.public, 10))
    materialiser.catch_up()
    assert materialiser.views.views() == {}
    assert exact(materialised(materialiser)) == exact(expected(materialiser))


def test_more_tasks_than_sqlite_attaches_files(spark: SparkSession, place: Path | str) -> None:
    many = Materialiser(spark, str(place), parts=12)
    assert many.parts == (12 if isinstance(place, str) else 8)
    shop = Shop(many)
    many.catch_up()
    named = [bytes(shop.schema.secret.public), 10, 2]
    for number in range(100, 112):
        message = {"kind": "create", "schema": named, "fields": [{"a": f"by {number}"}]}
        shop.publish(LogBuilder(key(number)), message)
    assert shop.written() == 12
    many.close()


def test_batches_start_anew_after_a_crash_before_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    """What a dead pipeline staged is swept away, and the batch is played again."""
    first = Materialiser(spark, str(tmp_path / "home"))
    shop = Shop(first)
    shop.create("one")
    shop.written()
    shop.create("two")
    (tmp_path / "home" / "inkgrove_stage_left.db").write_bytes(b"half a file")
    first.close()
    second = Materialiser(spark, str(tmp_path / "home"))
    assert not list((tmp_path / "home").glob("inkgrove_stage_*"))
    second.catch_up()
    assert exact(materialised(second)) == exact(expected(second))
    second.close()
