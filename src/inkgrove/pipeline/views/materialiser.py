"""Brings views up to date: folds dirty groups, builds new views, swaps rebuilt ones in (docs/protocol.md section 6).

Every batch's rows, outcomes and position are written in one transaction of one database, so a batch that is played
again changes nothing. A view whose definition changed is built beside the old one, caught up and swapped in.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any

from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

from inkgrove.core.errors import PipelineError
from inkgrove.messages import SchemaId
from inkgrove.pipeline.runtime.progress import OnProgress, tell_nobody, watched
from inkgrove.pipeline.tables import FOLDED, spark_schema
from inkgrove.pipeline.views.cascade import Relations, gone_stages
from inkgrove.pipeline.views.fold_task import Definitions, Snapshot, fingerprint, fold_task
from inkgrove.pipeline.views.plan import render_offset
from inkgrove.schema import ViewDefinition
from inkgrove.store.db import (
    Connection,
    ExclusiveWork,
    hold_merge_lock,
    hold_work_lock,
    hold_write_lock,
    start_pipeline_run,
)
from inkgrove.store.logs import (
    START,
    LogStore,
    Offset,
    logs_of_schema,
    newest_offset,
    open_store,
    read_ingests,
    read_logs,
    read_registered,
)
from inkgrove.store.views import (
    FEW_EDGES,
    KEEP_SECONDS,
    MOST_FILES,
    STREAM,
    CascadeMode,
    View,
    ViewState,
    ViewStore,
    begin_build,
    correct_build,
    drop_build,
    drop_left_builds,
    drop_leftovers,
    drop_stages,
    edges,
    edges_of,
    find_stage_url,
    has_few_edges,
    has_undone_cascade,
    index_build,
    load_build,
    merge_stages,
    names_and_types,
    open_merge_transaction,
    open_stages,
    open_views,
    read_progress,
    read_views,
    recompute_cascade,
    record_batch,
    record_changes,
    replace_gone,
    shadow_edges,
    swap_view,
    write_progress,
)

_PARTS = 8
"""A batch is not worth more tasks, unless somebody says so."""
_SHARE = 50_000
"""A view of more entries is folded in shares."""
_SHARES = 4
_SHARES_AT_ONCE = 2
"""The second job's tasks begin when the first has no more for every core."""
_FEW = 1_000
"""So many positions a build may lag behind when it takes the merge lock and lets the others wait."""


@dataclass(slots=True)
class Report:
    """Counts of what a materialiser has done so far."""

    batches: int = 0
    rebuilt: list[SchemaId] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """groups, rows, applied, pending, quarantined, obsolete"""
    written: int = 0
    """Rows written to views."""

    def add(self, results: list[dict[str, Any]]) -> None:
        """Count what tasks report."""
        for item in results:
            for name in ("groups", "rows", "applied", "pending", "quarantined", "obsolete"):
                self.counts[name] += item[name]


class Materialiser:
    """The views of one store, kept by one Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        store_url: str,
        listener: Callable[[Report], None] | None = None,
        *,
        parts: int = 0,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        self.spark = spark
        self.store_url = store_url
        self.store: LogStore = open_store(store_url)
        self.views: ViewStore = open_views(store_url)
        self.parts = parts or min(_PARTS, spark.sparkContext.defaultParallelism)
        if not self.views.database.is_postgresql:
            self.parts = min(self.parts, MOST_FILES)
        self.on_progress = on_progress
        self.report = Report()
        self.listener = listener
        self.few_edges = FEW_EDGES
        self._definitions = Definitions(self.store)
        self._batch_began = time()
        self.run = start_pipeline_run(self.views.database)
        self.staging = find_stage_url(self.views.database.url), str(self.run.number)
        drop_leftovers(self.views.database, self.run)
        self._drop_builds()

    def close(self) -> None:
        """Close the stores; the session is the caller's."""
        self.run.close()
        self.store.close()
        self.views.close()

    def _drop_builds(self) -> None:
        """Remove builds of pipelines that were killed, and tables that were replaced some time ago."""
        now = time()
        self.views.database.write(
            lambda connection: drop_left_builds(connection, lambda owner: not self.run.is_dead(int(owner)), now)
        )
        self._sweep_at = now + KEEP_SECONDS

    # Streaming

    def follow(self, checkpoint: Path, *, once: bool = False, max_entries: int = 10_000) -> Any:
        """Start a streaming query that keeps the views up to date until it is stopped; `once`: until it caught up."""
        self.begin()
        _, offset = self.views.progress()
        # Our own position is the one that counts: Spark's checkpoint starts from it and is made anew each time.
        stream = (
            self.spark.readStream.format("inkgrove")
            .option("store", self.store_url)
            .option("partitions", self.parts)
            .option("maxEntriesPerBatch", max_entries)
            .option("startingOffset", render_offset(offset))
            .load()
            .writeStream.foreachBatch(lambda dirty, number: self.fold_batch(dirty))
            .option("checkpointLocation", str(checkpoint))
        )
        return (stream.trigger(availableNow=True) if once else stream.trigger(processingTime="0 seconds")).start()

    def catch_up(self, max_entries: int = 10_000) -> None:
        """Bring the views up to date with the store, batch by batch, without a streaming query."""
        self.begin()
        while True:
            _, after = self.views.progress()
            _, until = self.store.read(read_ingests, after, max_entries)
            if until == after:
                return
            self.fold_batch(self._dirty(after=render_offset(after), until=render_offset(until)))

    def begin(self) -> None:
        """Claim the stream of the views; raises if another process has it.

        If no batch was merged yet, all views are built, each entry folded once, and the stream goes on from there.
        """
        self.run.begin(ExclusiveWork.STREAM)
        reached = self.store.read(newest_offset)
        if self.views.progress()[1] != START or reached == START:
            self.build_changed()
            return
        known = self.views.sync(self.store.read(read_registered))
        snapshot, prints = self._definitions.now(known)
        for schema_id in prints:
            self._build(schema_id, snapshot)
        # Every other message belongs to no view. The stream goes on from here.
        self.fold_batch(self._dirty(schema="", until=render_offset(reached)), is_rest=True)

    def fold_batch(self, dirty: DataFrame, *, is_rest: bool = False) -> None:
        """Fold one batch of dirty groups and merge it; again if another process swapped a view in meanwhile.

        `is_rest`: the builds of all views came before, so that only outcomes of no view are counted.
        """
        while not self._fold_and_merge(dirty, is_rest=is_rest):
            continue
        if time() > self._sweep_at:
            self._drop_builds()
        self.report.batches += 1
        if self.listener is not None:
            self.listener(self.report)

    def _dirty(self, **options: str) -> DataFrame:
        source = self.spark.read.format("inkgrove").option("store", self.store_url).option("partitions", self.parts)
        return source.options(**options).load()

    def _fold_and_merge(self, dirty: DataFrame, *, is_rest: bool) -> bool:
        self._batch_began = time()
        snapshot, folded_with = self._build_changed()
        results = self._fold(dirty, snapshot, is_rest=is_rest)
        offset = max((Offset(item["xid"], item["position"]) for item in results), default=None)
        stages = [item["stage"] for item in results]
        try:
            self.run.check()
            with hold_merge_lock(self.views.database):
                is_merged = self._merge(stages, folded_with, offset)
        finally:
            drop_stages(self.views.database, stages)
        if is_merged:
            self.report.add(results)
        return is_merged

    def _merge(self, stages: list[str], folded_with: dict[int, str | None], offset: Offset | None) -> bool:
        cascaded: list[str] | None = None
        try:
            while True:
                with open_merge_transaction(self.views.database, [*stages, *(cascaded or ())]) as (connection, names):
                    current = read_views(connection)
                    if {view.id: view.fingerprint for view in current.values()} != folded_with:
                        return False
                    known = list(current.values())
                    staged = open_stages(connection, names, {view.id: view.fields for view in known})
                    is_loose = cascaded is None and has_undone_cascade(connection, staged, known)
                    if not is_loose or has_few_edges(connection, self.few_edges, edges, *edges_of(staged)):
                        cascade: CascadeMode = "anew" if is_loose else "forward" if cascaded is None else "staged"
                        batch, before = read_progress(connection, STREAM)
                        self.report.written += merge_stages(connection, staged, known, cascade)
                        reached = max(before, offset or before)
                        write_progress(connection, STREAM, batch + 1, reached)
                        self._record_batch(connection, reached.position - before.position)
                        return True
                    contents = {stage: item.contents for stage, item in zip(stages, staged, strict=True)}
                # Nothing was written yet, and we hold the lock: what Spark reads now is still so afterwards.
                cascaded = gone_stages(self.spark, self.store_url, self.staging, Relations.after_merge(contents))
        finally:
            drop_stages(self.views.database, cascaded or ())

    def _record_batch(self, connection: Connection, moved: int) -> None:
        now = time()
        micros = int((now - self._batch_began) * 1_000_000)
        record_batch(connection, STREAM, at=int(now * 1_000_000), moved=moved, micros=micros)

    def _fold(
        self,
        dirty: DataFrame,
        snapshot: Snapshot,
        only: SchemaId | None = None,
        *,
        is_new: bool = False,
        is_rest: bool = False,
        done: "Accumulator[int] | None" = None,
    ) -> list[dict[str, Any]]:
        task = fold_task(self.store_url, self.staging, snapshot, only, is_new=is_new, is_rest=is_rest, done=done)
        results: list[dict[str, Any]] = dirty.mapInArrow(task, spark_schema(FOLDED)).toArrow().to_pylist()
        return results

    # Builds

    def build_changed(self) -> Snapshot:
        """Build every view whose schema has another definition than its rows were folded with."""
        return self._build_changed()[0]

    def _build_changed(self) -> tuple[Snapshot, dict[int, str | None]]:
        known = self.views.sync(self.store.read(read_registered))
        snapshot, prints = self._definitions.now(known)
        for schema_id, wanted in prints.items():
            if known[schema_id].fingerprint != wanted:
                self._build(schema_id, snapshot)
        return snapshot, {snapshot.views[schema_id]: wanted for schema_id, wanted in prints.items()}

    def rebuild(self, schema_id: SchemaId) -> None:
        """Fold a view from scratch beside the one that is there, and swap it in; raises if it is not registered."""
        known = self.views.sync(self.store.read(read_registered))
        if schema_id not in known:
            raise PipelineError(
                "pipeline.not-registered",
                f"{schema_id} is not registered: inkgrove index {schema_id.author} {schema_id.log_id}",
            )
        with hold_work_lock(self.run, ExclusiveWork.REBUILD):
            self._build(schema_id, self._definitions.now(known)[0])

    def _build(self, schema_id: SchemaId, snapshot: Snapshot) -> None:
        while not self._build_once(schema_id, snapshot):
            snapshot = self._definitions.now(self.views.sync(self.store.read(read_registered)))[0]

    def _build_once(self, schema_id: SchemaId, snapshot: Snapshot) -> bool:
        """Build a view to a definition; False if the schema has another one by the time the build is ready."""
        definition = snapshot.definition(schema_id)
        if definition is None:
            return True  # unregistered meanwhile
        database = self.views.database
        reached = self.store.read(newest_offset)
        with hold_merge_lock(database), database.writing() as connection:
            old = read_views(connection).get(schema_id)
            if old is None or old.id != snapshot.views[schema_id]:
                return True
            new = replace(
                _begin(connection, old, str(self.run.number), definition, snapshot), version=definition.version
            )
        try:
            folded = self._fill(schema_id, snapshot, new)
            while self._behind(reached) > _FEW:
                reached = self._catch_up_build(schema_id, snapshot, new, reached)
            with hold_merge_lock(database):
                # A newer version may be shown already, by another pipeline; from here on nobody else can show one.
                known = self.views.views()
                _, prints = self._definitions.now(known)
                is_wanted = prints.get(schema_id) == fingerprint(definition) and known[schema_id].id == new.id
                if is_wanted:
                    if self._behind(reached):
                        self._catch_up_build(schema_id, snapshot, new, reached)
                    self._swap(known[schema_id], definition, new)
        except BaseException:
            self._drop_build(new)
            raise
        if is_wanted:
            self.report.rebuilt.append(schema_id)
            self.report.add(folded)
            self.report.written += sum(item["rows"] for item in folded)
        else:
            self._drop_build(new)
        return is_wanted

    def _drop_build(self, new: View) -> None:
        self.views.database.write(lambda connection: drop_build(connection, new.id, new.generation))

    def _fill(self, schema_id: SchemaId, snapshot: Snapshot, new: View) -> list[dict[str, Any]]:
        """Fold all logs of a schema into a build; a large one in shares, each loaded while the next are folded.

        Returns the reports of the tasks, which count if the build is swapped in.
        """
        held = sum(log.held for log in self.store.read(read_logs, self.store.read(logs_of_schema, schema_id)).values())
        shares = _SHARES if held >= _SHARE else min(held, 1)
        done = self.spark.sparkContext.accumulator(0)

        def fold(share: int) -> list[dict[str, Any]]:
            dirty = self._dirty(schema=str(schema_id), share=f"{share}/{shares}")
            return self._fold(dirty, snapshot, schema_id, is_new=True, done=done)

        results: list[dict[str, Any]] = []
        title = f"building {schema_id.short}"
        with watched(done, title, held, self.on_progress), ThreadPoolExecutor(_SHARES_AT_ONCE) as pool:
            waiting = [pool.submit(fold, share + 1) for share in range(shares)]
            try:
                for folded in as_completed(waiting):
                    self._load(folded.result(), new)
                    results += folded.result()
            except BaseException:
                for item in waiting:
                    item.cancel()
                raise
        with hold_write_lock(self.views.database), self.views.database.writing() as connection:
            index_build(connection, new)
        return results

    def _load(self, results: list[dict[str, Any]], new: View) -> None:
        stages = [item["stage"] for item in results]
        try:
            with (
                hold_write_lock(self.views.database),
                open_merge_transaction(self.views.database, stages) as (connection, names),
            ):
                load_build(connection, open_stages(connection, names, {new.id: new.fields}), new)
        finally:
            drop_stages(self.views.database, stages)

    def _behind(self, reached: Offset) -> int:
        """How many positions the views have taken in since, which a build that is to replace one of them lacks."""
        _, position = self.views.progress()
        if position <= reached:
            return 0
        found, _ = self.store.read(read_ingests, reached, _FEW + 1)
        return len(found)

    def _catch_up_build(self, schema_id: SchemaId, snapshot: Snapshot, new: View, reached: Offset) -> Offset:
        """Fold into a build what became dirty since `reached`; returns the new offset, at least that of the views."""
        until = self.store.read(newest_offset)
        between = {"after": render_offset(reached), "until": render_offset(until)}
        results = self._fold(self._dirty(schema=str(schema_id), **between), snapshot, schema_id)
        stages = [item["stage"] for item in results]
        try:
            with open_merge_transaction(self.views.database, stages) as (connection, names):
                correct_build(connection, open_stages(connection, names, {new.id: new.fields}), new)
        finally:
            drop_stages(self.views.database, stages)
        self.report.add(results)
        self.report.written += sum(item["rows"] for item in results)
        return until

    def _swap(self, old: View, definition: ViewDefinition, new: View) -> None:
        database = self.views.database
        others = [view for view in self.views.views().values() if view.id != new.id]
        has_cascade = bool(old.cascades or new.cascades or any(view.cascades for view in others))
        cascaded = []
        is_small = has_cascade and database.read(
            lambda c: has_few_edges(c, self.few_edges, edges, shadow_edges(new)[1])
        )
        if has_cascade and not is_small:
            cascaded = gone_stages(self.spark, self.store_url, self.staging, Relations.after_swap(new))
        try:
            with (
                open_merge_transaction(database, cascaded) as (connection, names),
                record_changes(connection, others if has_cascade else [], None),
            ):
                swap_view(connection, old, new, _state(definition), time())
                if is_small:
                    recompute_cascade(connection)
                elif has_cascade:
                    replace_gone(connection, open_stages(connection, names, {}))
        finally:
            drop_stages(database, cascaded)


def _begin(connection: Connection, old: View, owner: str, definition: ViewDefinition, snapshot: Snapshot) -> View:
    cascades = {
        item.name: snapshot.views[item.schema] for item in definition.fields if item.cascade and item.schema is not None
    }
    return begin_build(connection, old, owner, names_and_types(definition.fields), cascades)


def _state(definition: ViewDefinition) -> ViewState:
    schema = definition.schema
    return ViewState(
        schema.meta.name if schema.meta else None,
        fingerprint(definition),
        [(waiting.author.hex(), waiting.log_id) for waiting in definition.waits_for],
        None if schema.stopped_by is None else f"version {schema.stopped_at}: {schema.stopped_by.message}",
    )
