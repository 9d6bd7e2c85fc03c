"""Cooking: what is about to be dropped is folded into summaries first (docs/protocol.md section 9).

A summary stands for one reader, owner, schema and month; of each field it keeps counts and sketches that can be merged
later. It is keyed by the run that made it, so cooking the same run again replaces it by itself.

Tasks fold the copies that are to be cooked and give out their values, once for everyone who could see them (sections 6
and 8). The fold is that of the views, at the newest version of each registered schema; what has no row there counts for
nothing. Of other schemas only the copies themselves are counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.core import Hash
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Access, Create, Update, decode_message
from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import open_once
from inkgrove.pipeline.tables import SUMMARIES, VALUES
from inkgrove.pipeline.views.fold_task import Snapshot
from inkgrove.schema import LogContext, LogMessage, OtherLogs, fold_log
from inkgrove.store.db import EVERYTHING, PUBLIC
from inkgrove.store.logs import LogStore, OtherLogsInStore, read_ends, read_logs
from inkgrove.store.rot import find_audience
from inkgrove.store.views import cell_encoder

TO_COOK: Final = ("instance", "log", "create_seq", "owner", "schema", "arrival", "noted", "bytes", "is_expired")
_NUMBERS: Final = ("integer", "float")


def value_task(store_url: str, snapshot: Snapshot) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: copies in, their values out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_once(store_url)
        for batch in batches:
            rows = [row for part in _by_log(batch.to_pylist()) for row in _values(store, snapshot, *part)]
            yield record_batch(rows, VALUES)

    return run


def _by_log(copies: list[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    logs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for copy in copies:
        logs[copy["log"]].append(copy)
    yield from logs.items()


def _values(store: LogStore, snapshot: Snapshot, log: int, copies: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    state = store.read(read_logs, [log])[log]
    messages = store.messages_of(log, [copy["create_seq"] for copy in copies])
    instances, owner = [copy["instance"] for copy in copies], copies[0]["owner"]
    recipients, followers, own = store.database.read(lambda c: find_audience(c, instances, owner))
    ends = store.read(read_ends, [Hash(instance) for instance in instances])
    others = OtherLogsInStore(store.database.read, state.author, ends)
    for copy in copies:
        own_messages = messages[copy["create_seq"]]
        fields = _fields(state.log_id, snapshot, own_messages, copy["instance"], others)
        if fields is None:
            continue
        # What expired was hidden from everybody before it went; of our own, which go in no other way, the owner knows.
        readers = {EVERYTHING} | own
        if not copy["is_expired"]:
            readers = readers_of(newest_access(own_messages), recipients.get(copy["instance"], set()), followers)
        month = datetime.fromtimestamp(copy["noted"] / 1_000_000, UTC).strftime("%Y-%m")
        for reader in sorted(readers):
            key = (reader, copy["owner"], copy["schema"], month)
            source = (copy["instance"], copy["arrival"])
            yield (*key, "", *source, copy["bytes"], None, None)
            for name, number, text in fields:
                yield (*key, name, *source, 0, number, text)


def _fields(
    log_id: int, snapshot: Snapshot, messages: list[LogMessage], instance: bytes, others: OtherLogs
) -> list[tuple[str, float | None, str | None]] | None:
    """The values of an instance that are not null, as a number or as a text; None if it has no row in its view."""
    folded = fold_log(log_id, messages, snapshot.definition, others, LogContext(None, None))
    fold = next((fold for fold in folded.instances if fold.instance == instance), None)
    definition = None if fold is None else snapshot.definition(fold.schema_id)
    if fold is None or definition is None:
        return []
    if fold.row is None:
        return None
    return [
        _field(field.name, field.type, value)
        for field, value in zip(definition.fields, fold.row.values, strict=True)
        if value is not None
    ]


def _field(name: str, kind: str, value: Any) -> tuple[str, float | None, str | None]:
    if kind in _NUMBERS:
        return name, float(value), None
    encode = cell_encoder(kind)
    cell = value if encode is None else encode(value)
    return name, None, cell.hex() if isinstance(cell, bytes) else str(cell)


def newest_access(messages: list[LogMessage]) -> Access | None:
    """The newest word on who may see an instance."""
    access = None
    for item in messages:
        if item.payload is None or item.invalid_code is not None:
            continue
        try:
            message = decode_message(item.payload)
        except InkgroveError:
            continue
        if isinstance(message, Create | Update) and message.access is not None:
            access = message.access
    return access


def readers_of(access: Access | None, sent: set[bytes], followers: set[bytes]) -> set[bytes]:
    """Who of this node can see a copy, and the administrator's account of everything."""
    mode = "listed" if access is None else access.mode
    if mode == "public":
        return {PUBLIC, EVERYTHING}
    if mode == "self":
        return {EVERYTHING}
    if mode == "closed":
        return {EVERYTHING} | (sent & set(access.to if access is not None else ()))
    return {EVERYTHING} | sent | (followers if mode == "relations" else set())


KLL_K: Final = 200
HLL_LOG_K: Final = 12


def cook(values: DataFrame) -> DataFrame:
    """One summary for each reader, owner, schema, month and field."""
    return (
        values.groupBy("reader", "owner", "schema", "month", "field")
        .agg(
            f.count("*").alias("count"),
            f.sum("bytes").alias("bytes"),
            f.sum("number").alias("sum"),
            f.min("number").alias("min"),
            f.max("number").alias("max"),
            f.when(f.count("number") > 0, f.kll_sketch_agg_double("number", f.lit(KLL_K))).alias("quantiles"),
            f.when(f.count("text") > 0, f.hll_sketch_agg("text", HLL_LOG_K)).alias("distinct"),
            f.min_by("instance", "arrival").alias("first"),
            f.max_by("instance", "arrival").alias("last"),
        )
        .select(*SUMMARIES.names)
    )
