"""One task: read the messages of what is dirty, fold them, stage the results; only counts go back to the driver.

docs/protocol.md section 6. Runs in Spark's Python workers; the fold itself is `inkgrove.schema`, the same for everyone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Access
from inkgrove.messages.message import Message, decode_message
from inkgrove.messages.outcomes import Outcome
from inkgrove.pipeline.definitions import Snapshot
from inkgrove.pipeline.plan import in_runs
from inkgrove.pipeline.tables import RESULT
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.fold import InstanceFold
from inkgrove.schema.log_fold import LogFacts, LogFold, LogMessage, fold_log
from inkgrove.store.cells import cell_encoder
from inkgrove.store.log_store import LogStore
from inkgrove.store.opening import open_store
from inkgrove.store.reading import LogState
from inkgrove.store.staging import Stage, StagePlace, open_stage
from inkgrove.store.view_tables import names_and_types

_CHUNK = 5_000


@lru_cache(maxsize=4)
def open_once(place: str) -> LogStore:
    """One open store per worker process."""
    return open_store(place)


def fold_task(
    place: str, staging: StagePlace, snapshot: Snapshot, only: SchemaId | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: dirty groups in, one row of counts and the stage's name out.

    `only` keeps the results of one schema: a rebuild of its view.
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
        worker = _Worker(place, staging, snapshot, only)
        try:
            for first, last in in_runs(whole):
                worker.fold_whole(first, last)
            for log in sorted(parts.keys() - whole):
                worker.fold_parts(log, sorted(parts[log]))
            counts = worker.finish()
        except BaseException:
            worker.stage.discard()
            raise
        facts = {**counts, "stage": worker.stage.name, "xid": newest[0], "position": newest[1]}
        yield pa.RecordBatch.from_pydict({field.name: [facts[field.name]] for field in RESULT}, schema=RESULT)

    return run


class _Worker:
    def __init__(self, place: str, staging: StagePlace, snapshot: Snapshot, only: SchemaId | None) -> None:
        self.store = open_once(place)
        self.snapshot = snapshot
        self.only = only
        definitions = snapshot.definitions()
        shown = definitions if only is None else {only: definitions[only]}
        self.definitions = definitions if only is None else shown
        self.stage: Stage = open_stage(
            staging, {snapshot.views[s]: names_and_types(d.fields) for s, d in shown.items()}
        )
        self.encoders = {
            schema_id: [cell_encoder(field.type) for field in definition.fields]
            for schema_id, definition in shown.items()
        }
        self.cascades = {
            schema_id: [
                (column, snapshot.views[field.schema], field.type == "relation[]")
                for column, field in enumerate(definition.fields)
                if field.cascade and field.schema is not None
            ]
            for schema_id, definition in shown.items()
        }
        self.buffers: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.counts: Counter[str] = Counter()

    def find(self, schema_id: SchemaId) -> ViewDefinition | None:
        return self.definitions.get(schema_id)

    # reading

    def fold_whole(self, first: int, last: int) -> None:
        """Every log from one number to another, in one read."""
        for state, messages in self.store.whole_logs(first, last):
            fold = fold_log(state.log_id, messages, self.find, self._is_elsewhere)
            self._stage(state, fold, messages, None)
            self._flush(_CHUNK)

    def fold_parts(self, log: int, create_seqs: list[int]) -> None:
        state = self.store.logs([log])[log]
        facts = self._facts(log)
        owners = self.store.owners_of(log, create_seqs)
        for create_seq, messages in self.store.messages_of(log, create_seqs).items():
            fold = fold_log(state.log_id, messages, self.find, self._is_elsewhere, facts)
            # The entry that the others name may itself belong to another group, which rules on it.
            own = [item for item in messages if owners.get(item.hash, create_seq) == create_seq]
            self._stage(state, fold, own, create_seq)
        self._flush(_CHUNK)

    def _facts(self, log: int) -> LogFacts:
        first: Message | InkgroveError | None = None
        for item in self.store.messages_between(log, 1, 1):
            if item.invalid_code is None and item.payload is not None:
                try:
                    first = decode_message(item.payload)
                except InkgroveError as error:
                    first = error
        return LogFacts(first, self.store.schema_of_log(log))

    def _is_elsewhere(self, instance: Hash) -> bool:
        """Whether a hash that the log does not hold is that of an entry of another log; seldom asked."""
        return bool(self.store.verified_among([instance]))

    # staging

    def _stage(self, state: LogState, fold: LogFold, messages: list[LogMessage], group: int | None) -> None:
        author, log_id = bytes(state.author), state.log_id
        seq_nums = {item.hash: item.seq_num for item in messages}
        groups = {group} if group is not None else set()
        for instance in fold.instances:
            create_seq = seq_nums[instance.instance]
            groups.add(create_seq)
            self._stage_instance(instance, author, log_id, create_seq)
        for entry_hash, (schema_id, ruling) in fold.rulings.items():
            if entry_hash not in seq_nums or (self.only is not None and schema_id != self.only):
                continue
            view = self.snapshot.views[schema_id] if schema_id is not None else None
            self.counts[ruling.outcome.value] += 1
            place = (bytes(entry_hash), view, author, log_id, seq_nums[entry_hash])
            self.buffers["outcomes"].append((*place, ruling.outcome.value, ruling.code, ruling.reason))
        self.counts["groups"] += len(groups)
        if self.only is None:
            self.buffers["groups"] += [(author, log_id, create_seq) for create_seq in groups]
            self.buffers["messages"] += [(bytes(item.hash),) for item in messages]

    def _stage_instance(self, instance: InstanceFold, author: bytes, log_id: int, create_seq: int) -> None:
        schema_id = instance.schema_id
        if schema_id not in self.encoders:
            return
        view = self.snapshot.views[schema_id]
        if instance.is_deleted:
            self.buffers["deleted"].append((view, bytes(instance.instance), author, log_id, create_seq))
        row = instance.row
        if row is None:
            return
        cells = [
            value if value is None or encode is None else encode(value)
            for value, encode in zip(row.values, self.encoders[schema_id], strict=True)
        ]
        self.counts["rows"] += 1
        self.buffers[f"rows_{view}"].append(
            (
                bytes(row.instance),
                author,
                log_id,
                row.seq_num,
                row.last_seq_num,
                bytes(row.last_hash),
                _access_json(row.access),
                None if row.expires is None else row.expires.microseconds,
                None if row.copied_from is None else bytes(row.copied_from),
                f"[{', '.join(map(str, row.field_seq_nums))}]",
                *cells,
            )
        )
        for column, target_view, is_list in self.cascades[schema_id]:
            value = row.values[column]
            for target in [] if value is None else value if is_list else [value]:
                self.buffers["edges"].append(
                    (view, bytes(row.instance), is_list, target_view, bytes(target), author, log_id, create_seq)
                )

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


def _access_json(access: Access | None) -> str | None:
    return None if access is None else json.dumps({"mode": access.mode, "to": [to.hex() for to in access.to]})
