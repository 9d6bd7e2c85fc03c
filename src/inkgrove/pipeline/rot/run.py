"""Plans and runs rot: record the copies, decide in Spark, commit the plan with its summaries, carry it out.

docs/protocol.md section 9. Before the commit nothing has changed but the records of copies; after it the plan stands.
Whenever the process dies, the next run goes on with the same seed, clock and policy.

Spark reads the copies of a store that can rot, each with its guard, by the Python data source `inkgrove-copies`.
Options: `store`, `partitions`, `guards` (with commas), `now` and `absence` (microseconds).
"""

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

from inkgrove.core import Hash
from inkgrove.pipeline.rot.cooking import TO_COOK, cook, value_task
from inkgrove.pipeline.rot.plan import Moment, decide, schemas_named
from inkgrove.pipeline.rot.policy import Policy, parse_schema, restore_policy
from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import PlannedSource, StageRows, open_existing, stage_rows, store_url_of
from inkgrove.pipeline.tables import STORED_COPIES, VALUES, spark_schema
from inkgrove.pipeline.views.fold_task import Snapshot
from inkgrove.pipeline.views.relation_source import load_relations
from inkgrove.store.db import SHOWN, Connection, ExclusiveWork, hold_work_lock, start_pipeline_run
from inkgrove.store.files import BlobFiles
from inkgrove.store.logs import find_schema_number, open_store, payloads_of_schema, read_registered
from inkgrove.store.rot import (
    EXPIRED,
    RotRun,
    apply_moves,
    begin_rot_run,
    blobs_left_by,
    commit_plan,
    count_steps,
    find_rot_run,
    finish_rot_run,
    is_any_copy_ended,
    next_tick,
    note_copies,
    read_copies,
    remove_blobs,
)
from inkgrove.store.views import (
    CascadeTable,
    drop_leftovers,
    drop_stages,
    edges,
    find_stage_url,
    gone,
    is_any_gone,
    open_merge_transaction,
    open_views,
)


@dataclass
class CopyPart(InputPartition):
    """The part of the copies that one task reads."""

    part: int


class CopySource(PlannedSource):
    """The Spark data source `inkgrove-copies`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove-copies"

    def schema(self) -> StructType:
        return spark_schema(STORED_COPIES)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.store_url = store_url_of(options)
        self.parts = int(options.get("partitions", 1))
        self.guards = [name for name in options.get("guards", "").split(",") if name]
        self.now, self.absence = int(options["now"]), int(options["absence"])

    def partitions(self) -> list[InputPartition]:
        return [CopyPart(part) for part in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CopyPart)
        share = {"part": partition.part, "parts": self.parts}
        with open_existing(self.store_url) as store, store.database.reading() as connection:
            for rows in read_copies(connection, self.guards, self.now, self.absence, **share):
                yield record_batch(rows, STORED_COPIES)


BINS: Final = 20
"""Freshness is reported in so many bins."""
_STAGES: Final = 4
_FRESH: Final = ("instance", "freshness", "reads", "last_read", "new_reads")
_MOVES: Final = ("instance", "log", "create_seq", "to_step", "why", "is_cooked")


@dataclass(slots=True)
class RotReport:
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

    def __init__(self, spark: SparkSession, store_url: str, home: Path, clock: Callable[[], int]) -> None:
        self.spark = spark
        self.store_url = store_url
        self.files = BlobFiles(home / "blobs")
        self.clock = clock
        self.store = open_store(store_url)
        self.views = open_views(store_url)
        self._run = start_pipeline_run(self.views.database)
        self._staging = find_stage_url(self.store.database.url), str(self._run.number)
        spark.dataSource.register(CopySource)
        drop_leftovers(self.views.database, self._run)

    def close(self) -> None:
        """Close the stores; the session is the caller's."""
        self._run.close()
        self.store.close()
        self.views.close()

    def plan(self, policy: Policy, out: Path | None = None) -> RotReport:
        """What a run would do now; nothing goes. `out` is a new directory for a table of every copy that would go."""
        tick = self.store.database.read(next_tick)
        now = self.clock()
        self._record_copies(tick, now)
        with self.decided(policy, Moment(policy.seed, tick, now)) as decided:
            if out is not None:
                victims(decided).write.mode("errorifexists").parquet(str(out))
            return self._count(decided, tick)

    def run(self, policy: Policy) -> RotReport:
        """Let copies rot, or finish the run that was interrupted."""
        with hold_work_lock(self._run, ExclusiveWork.ROT):
            run = self._begin(policy)
            policy = restore_policy(run.policy)
            if run.state == "begun":
                self.commit(run, policy)
            return self.apply(run, policy)

    def _begin(self, policy: Policy) -> RotRun:
        now = self.clock()
        tick = self.store.database.read(next_tick)
        run = self.store.database.write(lambda c: begin_rot_run(c, policy.seed, now, policy.render()))
        if run.state == "begun":
            self._record_copies(tick, run.now)
        return run

    def _record_copies(self, tick: int, now: int) -> None:
        while self.store.database.write(lambda connection: note_copies(connection, tick, now)):
            continue

    # Deciding

    @contextmanager
    def decided(self, policy: Policy, moment: Moment) -> Iterator[DataFrame]:
        """Every copy with the step it moves to (`plan.decide`); kept in memory until the end of the `with`."""
        source = (
            self.spark.read.format("inkgrove-copies")
            .option("store", self.store_url)
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
        if not self.store.database.read(is_any_copy_ended):
            return None
        return self._read_all("edges", edges.name).select(f.col("target").alias("instance"))

    def _without_gone(self, decided: DataFrame) -> DataFrame:
        """Cook nothing that has gone from its view by cascade: it is no row any more."""
        if not self.views.database.read(is_any_gone):
            return decided
        marks = self._read_all("gone", gone.name).select("instance").distinct().withColumn("_is_gone", f.lit(True))
        is_row = f.col("is_cooked") & f.col("_is_gone").isNull()
        return decided.join(marks, on="instance", how="left").withColumn("is_cooked", is_row).drop("_is_gone")

    def _read_all(self, of: str, table: str) -> DataFrame:
        return load_relations(self.spark, self.store_url, of, [CascadeTable(None, table)])

    def _count(self, decided: DataFrame, tick: int) -> RotReport:
        # One pass for the whole report: a few hundred rows at most.
        counted = decided.groupBy(
            "step",
            "to_step",
            "guard",
            f.substring_index("why", ":", 1).alias("why"),
            f.least(f.floor(f.col("freshness") * BINS), f.lit(BINS - 1)).alias("bin"),
        ).agg(f.count("*").alias("copies"), f.sum(_freed()).alias("bytes"))
        report = RotReport(tick, freshness=[0] * BINS, before=self.store.database.read(count_steps))
        moves: dict[tuple[str, str, str], list[int]] = {}
        kept: Counter[str] = Counter()
        for row in counted.collect():
            if row["to_step"] is not None:
                total = moves.setdefault((row["step"], row["to_step"], row["why"]), [0, 0])
                total[0] += row["copies"]
                total[1] += row["bytes"]
                continue
            if row["guard"] is not None:
                kept[row["guard"]] += row["copies"]
            if row["step"] in SHOWN:
                report.freshness[row["bin"]] += row["copies"]
        names = ("step", "to_step", "why")
        report.moves = [
            dict(zip(names, key, strict=True)) | {"copies": total[0], "bytes": total[1]}
            for key, total in sorted(moves.items())
        ]
        report.kept = dict(sorted(kept.items()))
        return report

    # Committing

    def commit(self, run: RotRun, policy: Policy) -> None:
        """Decide, cook, and commit all of it at once."""
        stages: list[str] = []
        try:
            with self.decided(policy, Moment(run.seed, run.tick, run.now)) as decided:
                stages += self._stage_decisions(decided)
                stages += self._stage_summaries(decided)
                counted = self._count(decided, run.tick)
            report = {name: getattr(counted, name) for name in ("before", "moves", "kept", "freshness")}
            self._run.check()
            with open_merge_transaction(self.store.database, stages) as (connection, names):
                commit_plan(connection, names, run.tick, report)
        finally:
            drop_stages(self.store.database, stages)

    def _stage_decisions(self, decided: DataFrame) -> list[str]:
        columns = [f.col(name) for name in dict.fromkeys((*_FRESH, *_MOVES)) if name != "is_cooked"]
        chosen = decided.select(*columns, f.col("is_cooked").cast("long"), f.col("step").alias("from_step"))
        return stage_rows(chosen.coalesce(_STAGES), self._staging, _split_decisions)

    def _stage_summaries(self, decided: DataFrame) -> list[str]:
        sized = decided.withColumn("bytes", f.col("payload_bytes") + f.col("blob_bytes"))
        to_cook = sized.withColumn("is_expired", f.col("why") == EXPIRED).where("is_cooked").select(*TO_COOK)
        # By the list of registered schemas: what is cooked does not depend on how far views have come.
        registered = self.store.read(read_registered)
        snapshot = Snapshot(
            {schema_id: number for number, schema_id in enumerate(registered, 1)},
            {schema_id: self.store.read(payloads_of_schema, schema_id) for schema_id in registered},
        )
        values = to_cook.mapInArrow(value_task(self.store_url, snapshot), spark_schema(VALUES))
        return stage_rows(cook(values).coalesce(2), self._staging, _split_summaries)

    # Applying

    def apply(self, run: RotRun, policy: Policy) -> RotReport:
        """Do what the committed plan says, in small transactions."""
        database = self.store.database
        self._remove(database.read(lambda connection: blobs_left_by(connection, run)), run)
        while True:
            # What came since the plan may guard what is to go. It is new to the next run, and later than this one.
            self._record_copies(run.tick + 1, max(self.clock(), run.now + 1))
            applied = database.write(lambda connection: apply_moves(connection, run, policy.guards))
            if not applied.moves:
                break
            self._remove(applied.blobs, run)

        def end(connection: Connection) -> RotReport:
            after = count_steps(connection)
            finish_rot_run(connection, run.tick, self.clock(), {"after": after})
            return read_rot_report(connection, run.tick)

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


def read_rot_report(connection: Connection, tick: int) -> RotReport:
    """The report of a run, from its record."""
    found = find_rot_run(connection, tick)
    report = {} if found is None else found.report
    names = ("moves", "kept", "freshness", "before", "after")
    return RotReport(tick, **{name: report[name] for name in names if name in report})


def _split_decisions(batch: pa.RecordBatch) -> StageRows:
    rows = batch.to_pylist()
    yield "rot_fresh", [tuple(row[name] for name in _FRESH) for row in rows if row["from_step"] in SHOWN]
    yield "rot_moves", [tuple(row[name] for name in _MOVES) for row in rows if row["to_step"] is not None]


def _split_summaries(batch: pa.RecordBatch) -> StageRows:
    yield "rot_summaries", [tuple(row.values()) for row in batch.to_pylist()]
