"""Brings views up to date: fold what is dirty, build what is new, swap what was rebuilt (docs/protocol.md section 6).

Every batch's rows, outcomes and position are written in one transaction of one database, so a batch that is played
again changes nothing. A view whose definition changed is built beside the old one and swapped in.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Connection, Index, MetaData, update

from inkgrove.core.errors import NotRegistered, Overtaken
from inkgrove.messages.ids import SchemaId
from inkgrove.pipeline.definitions import Snapshot, fingerprint, take_snapshot
from inkgrove.pipeline.fold import fold_task
from inkgrove.pipeline.source import render_offset
from inkgrove.pipeline.tables import RESULT, spark_schema
from inkgrove.schema.definition import ViewDefinition
from inkgrove.store.indexes import index_fields
from inkgrove.store.ingests import Offset
from inkgrove.store.log_store import LogStore
from inkgrove.store.merge import merge_stages, replace_view
from inkgrove.store.opening import open_store
from inkgrove.store.staging import drop_leftovers, merging, stage_place
from inkgrove.store.view_store import STREAM, View, ViewStore, open_views, read_progress, read_views, write_progress
from inkgrove.store.view_tables import names_and_types, views

_ROUNDS = 5
"""How often a rebuild starts again because a stream beside it wrote to the views meanwhile."""


@dataclass(slots=True)
class Report:
    """What a run did."""

    batches: int = 0
    rebuilt: list[SchemaId] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """groups, rows, applied, pending, quarantined, obsolete"""
    written: int = 0
    """Rows written to views."""


class Materialiser:
    """The views of one store, kept by one Spark session."""

    def __init__(self, spark: SparkSession, place: str, listener: Callable[[Report], None] | None = None) -> None:
        self.spark = spark
        self.place = place
        self.store: LogStore = open_store(place)
        self.views: ViewStore = open_views(place)
        self.staging = stage_place(self.views.database.url)
        self.parts = max(1, min(8, spark.sparkContext.defaultParallelism))
        self.report = Report()
        self._listener = listener
        drop_leftovers(self.views.database, None if self.views.database.is_postgresql else Path(self.staging))

    def close(self) -> None:
        """Close the stores; the session is the caller's."""
        self.store.close()
        self.views.close()

    # streaming

    def follow(self, checkpoint: Path, *, once: bool = False, max_entries: int = 10_000) -> Any:
        """A streaming query that keeps the views up to date until it is stopped, or once and then ends."""
        self.settle()
        _, offset = self.views.progress()
        # Our own position is the one that counts: Spark's checkpoint starts from it and is made anew each time.
        stream = (
            self.spark.readStream.format("inkgrove")
            .option("store", self.place)
            .option("partitions", self.parts)
            .option("maxEntriesPerBatch", max_entries)
            .option("startingOffset", render_offset(offset))
            .load()
            .writeStream.foreachBatch(lambda dirty, number: self.take(dirty))
            .option("checkpointLocation", str(checkpoint))
        )
        return (stream.trigger(availableNow=True) if once else stream.trigger(processingTime="0 seconds")).start()

    def catch_up(self, max_entries: int = 10_000) -> None:
        """Bring the views up to date with the store, batch by batch, without a streaming query."""
        self.settle()
        while True:
            _, after = self.views.progress()
            _, until = self.store.read_ingests(after, max_entries)
            if until == after:
                return
            self.take(
                self.spark.read.format("inkgrove")
                .option("store", self.place)
                .option("partitions", self.parts)
                .option("after", render_offset(after))
                .option("until", render_offset(until))
                .load()
            )

    def take(self, dirty: DataFrame) -> None:
        """Fold one batch of dirty groups and merge it; again if another process swapped a view in meanwhile."""
        while not self._fold_and_merge(dirty):
            continue
        self.report.batches += 1
        if self._listener is not None:
            self._listener(self.report)

    def _fold_and_merge(self, dirty: DataFrame) -> bool:
        snapshot = self.settle()
        folded_with = {view.id: view.fingerprint for view in self.views.views().values()}
        results = self._fold(dirty, snapshot, None)
        offset = max((Offset(item["xid"], item["position"]) for item in results), default=None)
        with merging(self.views.database, [item["stage"] for item in results]) as (connection, stages):
            current = read_views(connection)
            if {view.id: view.fingerprint for view in current.values()} != folded_with:
                return False
            batch, before = read_progress(connection, STREAM)
            built = [view for view in current.values() if view.is_built]
            self.report.written += merge_stages(connection, stages, built)
            write_progress(connection, STREAM, batch + 1, max(before, offset or before))
        return True

    def _fold(self, dirty: DataFrame, snapshot: Snapshot, only: SchemaId | None) -> list[dict[str, Any]]:
        task = fold_task(self.place, self.staging, snapshot, only)
        results: list[dict[str, Any]] = dirty.mapInArrow(task, spark_schema(RESULT)).toArrow().to_pylist()
        for item in results:
            for name in ("groups", "rows", "applied", "pending", "quarantined", "obsolete"):
                self.report.counts[name] += item[name]
        return results

    # definitions

    def settle(self) -> Snapshot:
        """Let every view be built to the definition that its schema has now."""
        known = self.views.sync(self.store.registered())
        snapshot = take_snapshot(self.store, known)
        definitions = snapshot.definitions()
        for schema_id, definition in definitions.items():
            if known[schema_id].fingerprint != fingerprint(definition):
                self._build(schema_id, definition, snapshot)
        return snapshot

    def rebuild(self, schema_id: SchemaId) -> None:
        """Fold a view from scratch beside the one that is there, and swap it in."""
        known = self.views.sync(self.store.registered())
        if schema_id not in known:
            raise NotRegistered(f"{schema_id} is not registered: inkgrove index {schema_id.author} {schema_id.log_id}")
        snapshot = take_snapshot(self.store, known)
        self._build(schema_id, snapshot.definitions()[schema_id], snapshot)

    def _build(self, schema_id: SchemaId, definition: ViewDefinition, snapshot: Snapshot) -> None:
        dirty = (
            self.spark.read.format("inkgrove")
            .option("store", self.place)
            .option("partitions", self.parts)
            .option("schema", str(schema_id))
            .load()
        )
        # What another process merges from now on is not in the new table: the swap waits for a moment without.
        for _ in range(_ROUNDS):
            _, before = self.views.progress()
            results = self._fold(dirty, snapshot, schema_id)
            if self._swap(schema_id, definition, snapshot, [item["stage"] for item in results], before):
                self.report.rebuilt.append(schema_id)
                return
        raise Overtaken(f"another pipeline wrote to the views {_ROUNDS} times meanwhile; stop it, or try again later")

    def _swap(
        self,
        schema_id: SchemaId,
        definition: ViewDefinition,
        snapshot: Snapshot,
        stages: list[str],
        before: Offset,
    ) -> bool:
        with merging(self.views.database, stages) as (connection, names):
            known = read_views(connection)
            old = known[schema_id]
            _, now = read_progress(connection, STREAM)
            if now != before:
                return False
            new = replace(
                old,
                generation=old.generation + 1,
                version=definition.version,
                fields=tuple(names_and_types(definition.fields)),
                cascades={
                    item.name: snapshot.views[item.schema]
                    for item in definition.fields
                    if item.cascade and item.schema is not None
                },
            )
            table = new.table(MetaData())  # its own: an index stays with the object
            table.create(connection)
            others = [view for view in known.values() if view.id != old.id]
            self.report.written += replace_view(connection, names, old, new, others)
            Index(f"{table.name}_by_entry", table.c._author, table.c._log_id, table.c._seq_num).create(connection)
            index_fields(connection, new)
            if old.is_built:
                old.table(MetaData()).drop(connection)
            _write_view(connection, new, definition)
        return True


def _write_view(connection: Connection, view: View, definition: ViewDefinition) -> None:
    schema = definition.schema
    stopped = None if schema.stopped_by is None else f"version {schema.stopped_at}: {schema.stopped_by.message}"
    fields = [{"name": name, "type": kind, "target": view.cascades.get(name)} for name, kind in view.fields]
    connection.execute(
        update(views)
        .where(views.c.id == view.id)
        .values(
            name=schema.meta.name if schema.meta else None,
            generation=view.generation,
            version=view.version,
            fields=json.dumps(fields),
            fingerprint=fingerprint(definition),
            waits_for=json.dumps([[waiting.author.hex(), waiting.log_id] for waiting in definition.waits_for]),
            stopped=stopped,
        )
    )
