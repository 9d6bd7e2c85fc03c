"""Plans and runs rot: note what is here, decide in Spark, commit the plan with its summaries, work it off.

docs/protocol.md section 9. Up to the commit nothing has changed but what is known of copies; after it the plan stands.
Whenever the process dies, the next run goes on with the same seed, clock and policy.

Spark reads the copies of a store that can rot, each with its guard, by the Python data source `inkgrove-copies`.
Options: `store`, `partitions`, `guards` (with commas), `now` and `absence` (microseconds).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from sqlalchemy import Connection, literal, select

from inkgrove.core.hashing import Hash
from inkgrove.pipeline.rot.cooking import TO_COOK, cook, value_task
from inkgrove.pipeline.rot.plan import Moment, decide, schemas_named
from inkgrove.pipeline.rot.policy import Policy, parse_schema, restore_policy
from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import PlannedSource, open_existing, place_of
from inkgrove.pipeline.tables import STAGED, STORED_COPIES, VALUES, spark_schema
from inkgrove.pipeline.views.fold_task import Snapshot
from inkgrove.store.db.files import BlobFiles
from inkgrove.store.db.locks import ExclusiveWork, hold_work_lock, start_pipeline_run
from inkgrove.store.db.rot_tables import SHOWN
from inkgrove.store.db.rot_tables import copies as copy_table
from inkgrove.store.logs.log_store import open_store
from inkgrove.store.logs.schema_registry import find_schema_number
from inkgrove.store.rot.copies import may_rot, note_copies, select_copies
from inkgrove.store.rot.runs import (
    EXPIRED,
    RotRun,
    apply_moves,
    begin_rot_run,
    blobs_left_by,
    commit_plan,
    count_steps,
    find_rot_run,
    finish_rot_run,
    next_tick,
    remove_blobs,
)
from inkgrove.store.views.catalog import open_views
from inkgrove.store.views.stages import drop_leftovers, drop_stages, find_stage_url, open_merge_transaction, open_stage
from inkgrove.store.views.tables import edges, gone

_ROWS: Final = 10_000


@dataclass
class Share(InputPartition):
    """What one task reads."""

    part: int


class CopySource(PlannedSource):
    """Registered as `inkgrove-copies`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove-copies"

    def schema(self) -> StructType:
        return spark_schema(STORED_COPIES)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.place = place_of(options)
        self.parts = int(options.get("partitions", 1))
        self.guards = [name for name in options.get("guards", "").split(",") if name]
        self.now, self.absence = int(options["now"]), int(options["absence"])

    def partitions(self) -> list[InputPartition]:
        return [Share(part) for part in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        # What is our own and stays takes nothing of the budgets.
        query = select_copies(self.guards, self.now, self.absence).where(may_rot(self.now))
        if self.parts > 1:
            query = query.where((copy_table.c.log + copy_table.c.create_seq) % self.parts == partition.part)
        with open_existing(self.place) as store, store.database.reading() as connection:
            found = connection.execute(query, execution_options={"yield_per": _ROWS})
            for rows in found.partitions(_ROWS):
                yield record_batch(rows, STORED_COPIES)


BINS: Final = 20
"""Freshness is told in so many bins."""
_STAGES: Final = 4
_FRESH: Final = ("instance", "freshness", "reads", "last_read", "new_reads")
_MOVES: Final = ("instance", "log", "create_seq", "to_step", "why", "is_cooked")


@dataclass(slots=True)
class RotOutcome:
    """What a run did, or would do."""

    tick: int
    moves: list[dict[str, Any]] = field(default_factory=list)
    """How many copies go from which step to which and why, with the bytes that frees."""
    kept: dict[str, int] = field(default_factory=dict)
    """How many copies each guard has spared."""
    freshness: list[int] = field(default_factory=list)
    """How many copies there are in each bin, from 0 to 1."""
    before: dict[str, dict[str, int]] = field(default_factory=dict)
    after: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(move["bytes"] for move in self.moves)


class Rot:
    """The rot of one store, computed by one Spark session."""

    def __init__(self, spark: SparkSession, place: str, home: Path, clock: Callable[[], int]) -> None:
        self.spark = spark
        self.place = place
        self.files = BlobFiles(home / "blobs")
        self.clock = clock
        self.store = open_store(place)
        self.views = open_views(place)
        self._run = start_pipeline_run(self.views.database)
        self._stage_place = find_stage_url(self.store.database.url)
        spark.dataSource.register(CopySource)
        drop_leftovers(self.views.database, self._run)

    def close(self) -> None:
        """Close the stores; the session is the caller's."""
        self._run.close()
        self.store.close()
        self.views.close()

    def plan(self, policy: Policy, out: Path | None = None) -> RotOutcome:
        """What a run would do now; nothing goes. `out` is a new directory for a table of every copy that would."""
        tick = self.store.database.read(next_tick)
        now = self.clock()
        self._note(tick, now)
        with self.decided(policy, Moment(policy.seed, tick, now)) as decided:
            if out is not None:
                victims(decided).write.mode("errorifexists").parquet(str(out))
            return self._outcome(decided, tick)

    def run(self, policy: Policy) -> RotOutcome:
        """Let copies rot, or end the run that was interrupted."""
        with hold_work_lock(self._run, ExclusiveWork.ROT):
            run = self._begin(policy)
            policy = restore_policy(run.policy)
            if run.state == "begun":
                self.commit(run, policy)
            return self.work_off(run, policy)

    def _begin(self, policy: Policy) -> RotRun:
        now = self.clock()
        tick = self.store.database.read(next_tick)
        run = self.store.database.write(lambda c: begin_rot_run(c, policy.seed, now, policy.render()))
        if run.state == "begun":
            self._note(tick, run.now)
        return run

    def _note(self, tick: int, now: int) -> None:
        while self.store.database.write(lambda connection: note_copies(connection, tick, now)):
            continue

    # Deciding

    @contextmanager
    def decided(self, policy: Policy, moment: Moment) -> Iterator[DataFrame]:
        """Every copy with what becomes of it; kept in memory until the end of the `with`, and no longer."""
        source = (
            self.spark.read.format("inkgrove-copies")
            .option("store", self.place)
            .option("partitions", self.spark.sparkContext.defaultParallelism)
            .option("guards", ",".join(policy.guards))
            .option("now", moment.now)
            .option("absence", policy.absence)
        )
        copies = source.load().persist(StorageLevel.MEMORY_AND_DISK)
        in_memory = [copies]
        try:
            decided = decide(copies, policy, self._schema_numbers(policy), moment, self._pointed_at())
            decided = self._without_gone(decided)
            in_memory.append(decided.persist(StorageLevel.MEMORY_AND_DISK))
            yield decided
        finally:
            for frame in in_memory:
                frame.unpersist()

    def _schema_numbers(self, policy: Policy) -> dict[str, int]:
        def work(connection: Connection) -> dict[str, int]:
            found = {name: find_schema_number(connection, parse_schema(name)) for name in schemas_named(policy)}
            return {name: number for name, number in found.items() if number is not None}

        return self.store.database.read(work)

    def _pointed_at(self) -> DataFrame | None:
        """The instances that rows cascade with; None if no copy has ended, which is all that they matter to."""
        ended = select(literal(1)).where(copy_table.c.ended.is_not(None)).limit(1)
        if self.store.database.read(lambda connection: connection.scalar(ended)) is None:
            return None
        source = self.spark.read.format("inkgrove-relations").option("store", self.place).option("of", "edges")
        found = source.option("tables", json.dumps([(None, edges.name, None)])).load()
        return found.select(f.col("target").alias("instance"))

    def _without_gone(self, decided: DataFrame) -> DataFrame:
        """Cook nothing that has gone from its view by cascade: it is no row any more."""
        is_any = select(literal(1)).select_from(gone).limit(1)
        if self.views.database.read(lambda connection: connection.scalar(is_any)) is None:
            return decided
        source = self.spark.read.format("inkgrove-relations").option("store", self.place).option("of", "gone")
        found = source.option("tables", json.dumps([(None, gone.name, None)])).load()
        marks = found.select("instance").distinct().withColumn("_is_gone", f.lit(True))
        is_row = f.col("is_cooked") & f.col("_is_gone").isNull()
        return decided.join(marks, on="instance", how="left").withColumn("is_cooked", is_row).drop("_is_gone")

    def _outcome(self, decided: DataFrame, tick: int) -> RotOutcome:
        # One pass for all that is told: a few hundred rows at most.
        counted = decided.groupBy(
            "step",
            "to_step",
            "guard",
            f.substring_index("why", ":", 1).alias("why"),
            f.least(f.floor(f.col("freshness") * BINS), f.lit(BINS - 1)).alias("bin"),
        ).agg(f.count("*").alias("copies"), f.sum(_freed()).alias("bytes"))
        outcome = RotOutcome(tick, freshness=[0] * BINS, before=self.store.database.read(count_steps))
        moves: dict[tuple[str, str, str], list[int]] = {}
        kept: Counter[str] = Counter()
        for row in counted.collect():
            if row["to_step"] is not None:
                told = moves.setdefault((row["step"], row["to_step"], row["why"]), [0, 0])
                told[0] += row["copies"]
                told[1] += row["bytes"]
                continue
            if row["guard"] is not None:
                kept[row["guard"]] += row["copies"]
            if row["step"] in SHOWN:
                outcome.freshness[row["bin"]] += row["copies"]
        names = ("step", "to_step", "why")
        outcome.moves = [
            dict(zip(names, key, strict=True)) | {"copies": told[0], "bytes": told[1]}
            for key, told in sorted(moves.items())
        ]
        outcome.kept = dict(sorted(kept.items()))
        return outcome

    # Committing

    def commit(self, run: RotRun, policy: Policy) -> None:
        """Decide, cook, and commit all of it at once."""
        stages: list[str] = []
        try:
            with self.decided(policy, Moment(run.seed, run.tick, run.now)) as decided:
                stages += self._stage_decisions(decided)
                stages += self._stage_summaries(decided)
                outcome = self._outcome(decided, run.tick)
            report = {
                "before": outcome.before,
                "moves": outcome.moves,
                "kept": outcome.kept,
                "freshness": outcome.freshness,
            }
            self._run.check()
            with open_merge_transaction(self.store.database, stages) as (connection, names):
                commit_plan(connection, names, run.tick, report)
        finally:
            drop_stages(self.store.database, stages)

    def _stage_decisions(self, decided: DataFrame) -> list[str]:
        columns = [f.col(name) for name in dict.fromkeys((*_FRESH, *_MOVES)) if name != "is_cooked"]
        chosen = decided.select(*columns, f.col("is_cooked").cast("long"), f.col("step").alias("from_step"))
        return self._stage(chosen.coalesce(_STAGES), _write_decisions)

    def _stage_summaries(self, decided: DataFrame) -> list[str]:
        told = decided.withColumn("bytes", f.col("payload_bytes") + f.col("blob_bytes"))
        to_cook = told.withColumn("is_expired", f.col("why") == EXPIRED).where("is_cooked").select(*TO_COOK)
        # By the list of registered schemas: what is cooked does not depend on how far views have come.
        registered = self.store.registered()
        snapshot = Snapshot(
            {schema_id: number for number, schema_id in enumerate(registered, 1)},
            {schema_id: self.store.payloads_of_schema(schema_id) for schema_id in registered},
        )
        values = to_cook.mapInArrow(value_task(self.place, snapshot), spark_schema(VALUES))
        return self._stage(cook(values).coalesce(2), _write_summaries)

    def _stage(self, rows: DataFrame, write: Callable[[Any, pa.RecordBatch], None]) -> list[str]:
        place, owner = self._stage_place, str(self._run.number)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            stage = open_stage(place, owner, {})
            try:
                for batch in batches:
                    write(stage, batch)
                stage.finish()
            except BaseException:
                stage.discard()
                raise
            yield pa.RecordBatch.from_pydict({"stage": [stage.name]}, schema=STAGED)

        found = rows.mapInArrow(task, spark_schema(STAGED)).toArrow().to_pylist()
        return [item["stage"] for item in found]

    # Working off

    def work_off(self, run: RotRun, policy: Policy) -> RotOutcome:
        """Do what the committed plan says, in small transactions."""
        database = self.store.database
        self._remove(database.read(lambda connection: blobs_left_by(connection, run)), run)
        while True:
            # What came since the plan may guard what is to go. It is new to the next run, and later than this one.
            self._note(run.tick + 1, max(self.clock(), run.now + 1))
            applied = database.write(lambda connection: apply_moves(connection, run, policy.guards))
            if not applied.moves:
                break
            self._remove(applied.blobs, run)

        def end(connection: Connection) -> RotOutcome:
            after = count_steps(connection)
            finish_rot_run(connection, run.tick, self.clock(), {"after": after})
            return outcome_of(connection, run.tick)

        return database.write(end)

    def _remove(self, blobs: Sequence[Hash], run: RotRun) -> None:
        if blobs:
            self.store.database.write(lambda connection: remove_blobs(connection, self.files, blobs, run.now))


def victims(decided: DataFrame) -> DataFrame:
    """Every copy that moves: from where to where, why, and the bytes that frees."""
    moved = decided.where(f.col("to_step").isNotNull())
    return moved.select(f.lower(f.hex("instance")).alias("instance"), "step", "to_step", "why", _freed().alias("bytes"))


def _freed() -> Column:
    return (
        f.when(f.col("to_step") == "no-blobs", f.col("blob_bytes"))
        .when(f.col("to_step") == "cooked", f.col("payload_bytes") + f.col("blob_bytes"))
        .otherwise(f.col("payload_bytes"))
    )


def outcome_of(connection: Connection, tick: int) -> RotOutcome:
    """What the record of a run says."""
    found = find_rot_run(connection, tick)
    report = {} if found is None else found.report
    names = ("moves", "kept", "freshness", "before", "after")
    return RotOutcome(tick, **{name: report[name] for name in names if name in report})


def _write_decisions(stage: Any, batch: pa.RecordBatch) -> None:
    rows = batch.to_pylist()
    fresh = [tuple(row[name] for name in _FRESH) for row in rows if row["from_step"] in ("full", "no-blobs")]
    moves = [tuple(row[name] for name in _MOVES) for row in rows if row["to_step"] is not None]
    for table, found in (("rot_fresh", fresh), ("rot_moves", moves)):
        if found:
            stage.write(table, found)


def _write_summaries(stage: Any, batch: pa.RecordBatch) -> None:
    rows = [tuple(row.values()) for row in batch.to_pylist()]
    if rows:
        stage.write("rot_summaries", rows)
