"""One task: read the messages of what is dirty, fold them, stage the results; only counts go back to the driver.

docs/protocol.md section 6. Runs in Spark's Python workers; the fold itself is `inkgrove.schema`, shared with the node.
The definitions of all views are one value, a `Snapshot`, that the driver makes and every task of a batch folds with.
"""

import gc
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark import Accumulator

from inkgrove.core import Hash
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import MEANINGS, Access, Message, Outcome, SchemaId, access_to_json, decode_message
from inkgrove.pipeline.runtime.workers import open_once
from inkgrove.pipeline.tables import FOLDED
from inkgrove.pipeline.views.plan import in_runs
from inkgrove.schema import (
    FoldedRow,
    LogContext,
    LogFold,
    LogMessage,
    ViewDefinition,
    fold_log,
    fold_schema,
)
from inkgrove.store.logs import (
    LogState,
    LogStore,
    Offset,
    OtherLogsInStore,
    SchemaLog,
    find_create_seqs,
    find_schema_of_log,
    has_schema_news,
    messages_between,
    newest_offset,
    payloads_of_schema,
    read_ends,
    read_ends_within,
    read_logs,
    schemas_of_logs,
)
from inkgrove.store.views import NO_VIEW, Stage, View, cell_encoder, names_and_types, open_stage


@dataclass(frozen=True)
class Snapshot:
    """The registered schemas as they were when a batch was planned; small, and sent to every task."""

    views: dict[SchemaId, int]
    """The number of each registered schema's view."""
    logs: dict[SchemaId, SchemaLog]
    """Of each schema: the payloads of its log, and where that turns invalid."""

    @cached_property
    def key(self) -> bytes:
        """A hash of the content: equal snapshots have equal keys."""
        parts = [
            (bytes(schema_id.author), schema_id.log_id, self.views[schema_id], sorted(log.payloads.items()), log[1])
            for schema_id, log in sorted(self.logs.items())
        ]
        return blake2b(repr(parts).encode(), digest_size=16).digest()

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.key == other.key

    def definition(self, schema_id: SchemaId) -> ViewDefinition | None:
        """The definition of a schema's view, if it is registered."""
        return _definition(self, schema_id) if schema_id in self.views else None

    def definitions(self) -> dict[SchemaId, ViewDefinition]:
        """Every view's definition."""
        return {schema_id: _definition(self, schema_id) for schema_id in self.logs}


@lru_cache(maxsize=4096)
def _definition(snapshot: Snapshot, schema_id: SchemaId) -> ViewDefinition:
    # A worker process folds batch after batch with the same definitions: each is made once, when it is asked for.
    return ViewDefinition(fold_schema(schema_id, *snapshot.logs[schema_id]), snapshot.views)


def take_snapshot(store: LogStore, views: dict[SchemaId, View]) -> Snapshot:
    """The registered schemas as they are now."""
    logs = {schema_id: store.read(payloads_of_schema, schema_id) for schema_id in views}
    return Snapshot({schema_id: view.id for schema_id, view in views.items()}, logs)


class Definitions:
    """A cache of the registered schemas: they are read anew only when an entry of one of them was ingested."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._read: tuple[Offset, Snapshot, dict[SchemaId, str]] | None = None

    def now(self, views: dict[SchemaId, View]) -> tuple[Snapshot, dict[SchemaId, str]]:
        """The snapshot, and the fingerprint of each definition in it."""
        numbers = {schema_id: view.id for schema_id, view in views.items()}
        newest = self._store.read(newest_offset)
        if self._read is not None:
            before, snapshot, prints = self._read
            if snapshot.views == numbers and not self._store.read(has_schema_news, before):
                self._read = newest, snapshot, prints
                return snapshot, prints
        snapshot = take_snapshot(self._store, views)
        prints = {schema_id: fingerprint(definition) for schema_id, definition in snapshot.definitions().items()}
        self._read = newest, snapshot, prints
        return snapshot, prints


def fingerprint(definition: ViewDefinition) -> str:
    """A hash of all that the rows of a view depend on: the live path with all it does, and where it ends."""
    schema = definition.schema
    parts = [
        definition.version,
        list(definition.live_path),
        [repr(schema.version(number)) for number in definition.live_path],
        len(schema.versions),
        schema.stopped_at,
        schema.invalid_from,
        [str(waiting) for waiting in definition.waits_for],
    ]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


# Folding

_CHUNK = 2_000


def fold_task(
    store_url: str,
    staging: tuple[str, str],
    snapshot: Snapshot,
    only: SchemaId | None = None,
    *,
    is_new: bool = False,
    is_rest: bool = False,
    done: "Accumulator[int] | None" = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: dirty groups in, one row of counts and the stage's name out.

    `staging` is where to stage and for whom. `only` keeps the results of one schema; with `is_new` they go into empty
    tables, and nothing says what they replace. With `is_rest` only outcomes of no view are counted: the builds of the
    views have counted theirs. `done` counts the messages of whole logs.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole: set[int] = set()
        parts: dict[int, set[int]] = defaultdict(set)
        newest = (-1, -1)
        for batch in batches:
            logs, seqs = batch.column("log").to_pylist(), batch.column("create_seq").to_pylist()
            for log, create_seq in zip(logs, seqs, strict=True):
                if log is None:
                    continue
                if create_seq is None:
                    whole.add(log)
                else:
                    parts[log].add(create_seq)
            offsets = zip(batch.column("xid").to_pylist(), batch.column("position").to_pylist(), strict=True)
            newest = max(newest, *offsets)
        if newest == (-1, -1):
            return
        worker = _Worker(store_url, staging, snapshot, only, is_new=is_new, is_rest=is_rest)
        gc.disable()  # what is folded has no cycles, and the collector would look at all of it again and again
        try:
            worker.stage_views(whole | parts.keys())
            for first, last in in_runs(whole):
                for folded in worker.fold_whole(first, last):
                    if done is not None:
                        done.add(folded)
            for log in sorted(parts.keys() - whole):
                worker.fold_parts(log, sorted(parts[log]))
            counts = worker.finish()
        except BaseException:
            worker.stage.discard()
            raise
        finally:
            gc.enable()
        result = {**counts, "stage": worker.stage.name, "xid": newest[0], "position": newest[1]}
        yield pa.RecordBatch.from_pylist([result], schema=FOLDED)

    return run


class _ViewWriter:
    """How rows of one view are staged."""

    def __init__(self, view: int, definition: ViewDefinition, snapshot: Snapshot) -> None:
        self.view = view
        self.columns = names_and_types(definition.fields)
        self.rows: list[tuple[Any, ...]] = []
        encoders = [cell_encoder(field.type) for field in definition.fields]
        self.encoders = [(column, encode) for column, encode in enumerate(encoders) if encode is not None]
        self.cascades = [
            (column, snapshot.views[field.schema], field.type == "relation[]")
            for column, field in enumerate(definition.fields)
            if field.cascade and field.schema is not None
        ]


class _Worker:
    def __init__(
        self,
        store_url: str,
        staging: tuple[str, str],
        snapshot: Snapshot,
        only: SchemaId | None,
        *,
        is_new: bool,
        is_rest: bool,
    ) -> None:
        self.store = open_once(store_url)
        self.snapshot = snapshot
        self.only = only
        self.is_new = is_new
        self.is_rest = is_rest
        self.fields: dict[int, tuple[tuple[str, str], ...]] = {}
        self.stage: Stage = open_stage(*staging, self.fields)
        self.writers: dict[SchemaId, _ViewWriter | None] = {}
        self.found: dict[SchemaId, ViewDefinition | None] = {}
        self.buffers: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.counts: Counter[str] = Counter()

    def find(self, schema_id: SchemaId) -> ViewDefinition | None:
        try:
            return self.found[schema_id]
        except KeyError:
            is_shown = self.only is None or schema_id == self.only
            self.found[schema_id] = self.snapshot.definition(schema_id) if is_shown else None
            return self.found[schema_id]

    def writer(self, schema_id: SchemaId) -> _ViewWriter | None:
        try:
            return self.writers[schema_id]
        except KeyError:
            definition = self.find(schema_id)
            made = None
            if definition is not None:
                view = self.snapshot.views[schema_id]
                made = _ViewWriter(view, definition, self.snapshot)
                self.fields[view] = made.columns
                self.buffers[f"rows_{view}"] = made.rows
            self.writers[schema_id] = made
            return made

    def stage_views(self, logs: set[int]) -> None:
        """Stage which views can hold anything of these logs: a merge touches only those."""
        if self.is_new:
            return
        views = self.snapshot.views
        for log, named in self.store.read(schemas_of_logs, logs).items():
            numbers = {views[schema_id] for schema_id in named if schema_id in views} | {NO_VIEW}
            self.buffers["log_views"] += [(log, number) for number in numbers]

    # Reading

    def fold_whole(self, first: int, last: int) -> Iterator[int]:
        """Fold every log from one number to another, in one read; yields how many messages each has."""
        ends = self.store.read(read_ends_within, first, last)
        for state, messages in self.store.whole_logs(first, last):
            others = OtherLogsInStore(self.store.database.read, state.author, ends)
            fold = fold_log(state.log_id, messages, self.find, others)
            self._stage(state, fold, messages)
            if not self.is_new:
                self.buffers["whole"].append((state.id,))
            self._flush(_CHUNK)
            yield len(messages)

    def fold_parts(self, log: int, create_seqs: list[int]) -> None:
        """Fold some groups of a log."""
        state = self.store.read(read_logs, [log])[log]
        context = self._context(log)
        owners = self.store.read(find_create_seqs, log, create_seqs)
        groups = self.store.messages_of(log, create_seqs)
        heads = [
            item.hash for create_seq, messages in groups.items() for item in messages if item.seq_num == create_seq
        ]
        others = OtherLogsInStore(self.store.database.read, state.author, self.store.read(read_ends, heads))
        for create_seq, messages in groups.items():
            fold = fold_log(state.log_id, messages, self.find, others, context)
            # The entry that the others name may itself belong to another group, which rules on it.
            own = [item for item in messages if owners.get(item.hash, create_seq) == create_seq]
            self._stage(state, fold, own)
            self.buffers["messages"] += [(log, item.seq_num, bytes(item.hash)) for item in own]
        self.counts["groups"] += len(create_seqs)
        self.buffers["groups"] += [(log, create_seq) for create_seq in create_seqs]
        for after, last in state.standing.ranges_behind_end:
            self.buffers["ends"].append((log, after, MAX_STORED_INTEGER if last is None else last))
        self._flush(_CHUNK)

    def _context(self, log: int) -> LogContext:
        first: Message | InkgroveError | None = None
        for item in self.store.read(messages_between, log, 1, 1):
            if item.invalid_code is None and item.payload is not None:
                try:
                    first = decode_message(item.payload)
                except InkgroveError as error:
                    first = error
        return LogContext(first, self.store.read(find_schema_of_log, log))

    # Staging

    def _stage(self, state: LogState, fold: LogFold, messages: list[LogMessage]) -> None:
        log, author, log_id = state.id, bytes(state.author), state.log_id
        shown = 0
        for instance in fold.instances:
            if instance.row is not None:
                writer = self.writer(instance.schema_id)
                if writer is not None:
                    shown += 1
                    self._stage_row(writer, instance.row, log, author, log_id)
        self.counts["rows"] += shown
        self.counts["applied"] += shown
        if len(fold.rulings) > shown:
            self._stage_rest(fold, {item.hash: item.seq_num for item in messages}, log, author, log_id)

    def _stage_row(self, writer: _ViewWriter, row: FoldedRow, log: int, author: bytes, log_id: int) -> None:
        values, seq_num = row.values, row.seq_num
        instance = bytes(row.instance)
        if writer.cascades:
            self._stage_edges(writer, row, log)
        for column, encode in writer.encoders:
            if values[column] is not None:
                values[column] = encode(values[column])
        is_changed = row.last_seq_num != seq_num
        writer.rows.append(
            (
                instance,
                author,
                log_id,
                seq_num,
                row.last_seq_num,
                bytes(row.last_hash) if is_changed else None,
                None if row.access is None else _access_json(row.access),
                None if row.expires is None else row.expires.microseconds,
                None if row.copied_from is None else bytes(row.copied_from),
                f"[{', '.join(map(str, row.field_seq_nums))}]" if is_changed else None,
                log,
                *values,
            )
        )

    def _stage_edges(self, writer: _ViewWriter, row: FoldedRow, log: int) -> None:
        instance = bytes(row.instance)
        for column, target_view, is_list in writer.cascades:
            value = row.values[column]
            for target in [] if value is None else value if is_list else [value]:
                edge = (writer.view, instance, is_list, target_view, bytes(target), log, row.seq_num)
                self.buffers["edges"].append(edge)

    def _stage_rest(self, fold: LogFold, seq_nums: dict[Hash, int], log: int, author: bytes, log_id: int) -> None:
        """Stage deletions and outcomes; a row itself is the outcome of its create."""
        rows = set()
        for instance in fold.instances:
            if instance.row is not None:
                rows.add(instance.instance)
            elif instance.continued_by is not None:
                if self.find(instance.schema_id) is not None:
                    self._stage_line(instance.instance, instance.continued_by, instance.schema_id, log, seq_nums)
            elif instance.is_deleted and self.find(instance.schema_id) is not None:
                view = self.snapshot.views[instance.schema_id]
                deleted = (view, bytes(instance.instance), log, seq_nums[instance.instance])
                self.buffers["deleted"].append(deleted)
        for entry_hash, (schema_id, ruling) in fold.rulings.items():
            if entry_hash in rows or entry_hash not in seq_nums:
                continue
            if self.only is not None and schema_id != self.only:
                continue
            view = self.snapshot.views[schema_id] if schema_id is not None else NO_VIEW
            outcome, code, reason = ruling.outcome.value, ruling.code, ruling.reason
            if view == NO_VIEW or not self.is_rest:
                self.counts[outcome] += 1
            own_reason = None if MEANINGS.get(code) == reason else reason
            entry = (log, seq_nums[entry_hash], bytes(entry_hash), author, log_id)
            self.buffers[f"outcomes_{view}"].append((*entry, outcome, code, own_reason))

    def _stage_line(
        self, instance: Hash, following: Hash, schema_id: SchemaId, log: int, seq_nums: dict[Hash, int]
    ) -> None:
        """Stage where the line of an instance without a row goes on: it is deleted if that one is."""
        view = self.snapshot.views[schema_id]
        edge = (view, bytes(instance), False, view, bytes(following), log, seq_nums[instance])
        self.buffers["edges"].append(edge)

    def _flush(self, least: int) -> None:
        for table, rows in self.buffers.items():
            if len(rows) >= least:
                self.stage.write(table, rows)
                rows.clear()

    def finish(self) -> dict[str, int]:
        self._flush(1)
        self.stage.finish()
        names = ["groups", "rows", *(outcome.value for outcome in Outcome)]
        return {name: self.counts[name] for name in names}


def _access_json(access: Access) -> str:
    return json.dumps(access_to_json(access))
