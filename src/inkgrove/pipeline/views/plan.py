"""From the ingests of a store to the groups of messages that must be folded anew, called dirty.

docs/protocol.md section 6. A group is named by the entry that its messages are folded with: their instance's create.
Spark reads the groups by the Python data source `inkgrove`, as a stream of positions or all of them at once:

    spark.readStream.format("inkgrove").option("store", store_url).load()    # groups dirtied since the last batch
    spark.read.format("inkgrove").option("store", store_url).load()          # every log, to be folded from scratch

Rows are small (which group, and the position); payloads are fetched by the tasks that fold them. Options: `store`
(directory or URL), `partitions`, `maxEntriesPerBatch`; for a stream `startingOffset`; for a batch `schema` (AUTHOR/LOG:
only the logs that speak of it; empty: those that speak of none), `after` and `until` (offsets: only what became dirty
between them; `until` alone: the position that a batch of logs brings), `share` (K/N: the K-th of N shares of the logs,
of about the same size).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from inkgrove.messages import parse_schema_id
from inkgrove.pipeline.runtime.workers import PlannedSource, open_existing, store_url_of
from inkgrove.pipeline.tables import DIRTY, spark_schema
from inkgrove.store.logs import (
    VERDICTS,
    Ingest,
    IngestKind,
    LogStore,
    Offset,
    create_seqs_from,
    find_unresolved_references,
    first_payloads,
    hashes_from,
    logs_of_schema,
    logs_without_schema,
    newest_offset,
    read_ingests,
    read_logs,
)


class Group(NamedTuple):
    """The messages of one instance; without `create_seq`, all of a log."""

    log: int
    create_seq: int | None


_LATE = frozenset({IngestKind.PAYLOAD, IngestKind.PAYLOAD_DROPPED})


def dirty_groups(store: LogStore, ingests: Iterable[Ingest]) -> set[Group]:
    """The groups whose fold may have changed by these ingests."""
    groups: set[Group] = set()
    hashes = []
    late: list[tuple[int, int]] = []
    for item in ingests:
        if item.log is None or item.seq_num is None:
            continue
        if item.what is IngestKind.BRANCH:
            groups.add(Group(item.log, None))  # also what was shown of entries that are no rows of it any more
        if item.what in VERDICTS:
            groups.update(Group(item.log, seq) for seq in store.read(create_seqs_from, item.log, item.seq_num))
            # What names an entry there by its hash is touched as well.
            hashes += store.read(hashes_from, item.log, item.seq_num)
            continue
        if item.hash is not None:
            hashes.append(item.hash)
        # Messages may name the entry as theirs before anyone knows what it is.
        groups.add(Group(item.log, item.seq_num))
        if item.create_seq is not None:
            groups.add(Group(item.log, item.create_seq))
        if item.what in _LATE:
            late.append((item.log, item.seq_num))
    first_held = store.read(first_payloads, {log for log, _ in late})
    # A payload that came or went before all others can change what its whole log is taken for.
    groups.update(Group(log, None) for log, seq_num in late if seq_num <= first_held.get(log, seq_num) or seq_num == 1)
    for waiting in store.read(find_unresolved_references, hashes):
        groups.add(Group(waiting.log, waiting.seq_num))
    return groups


def in_parts(groups: Iterable[Group], parts: int) -> list[list[Group]]:
    """The groups in at most `parts` lists, each log whole in one of them."""
    ordered = sorted(groups, key=lambda group: (group.log, group.create_seq or 0))
    size = max(1, -(-len(ordered) // parts))
    result: list[list[Group]] = []
    for group in ordered:
        if not result or (len(result[-1]) >= size and result[-1][-1].log != group.log and len(result) < parts):
            result.append([])
        result[-1].append(group)
    return result


def logs_in_parts(heights: Sequence[tuple[int, int]], parts: int) -> list[list[Group]]:
    """Whole logs, given with their sizes, in parts of neighbours with about the same number of entries each."""
    total = sum(size for _, size in heights)
    result: list[list[Group]] = [[] for _ in range(parts)]
    before = 0
    for log, size in sorted(heights):
        result[min(parts - 1, before * parts // max(total, 1))].append(Group(log, None))
        before += size
    return [part for part in result if part]


def in_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as the first and last of each unbroken run."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


# The data source

DEFAULT_PARTITIONS = 2
MAX_ENTRIES_PER_BATCH = 10_000


@dataclass
class DirtyPart(InputPartition):
    """The groups that one task folds, and the offset they were dirtied at."""

    groups: list[Group]
    offset: Offset


class InkgroveSource(PlannedSource):
    """The Spark data source `inkgrove`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove"

    def schema(self) -> StructType:
        return spark_schema(DIRTY)

    # The options are passed on as Spark gives them: a plain dict of them has its keys in lower case only.

    def reader(self, schema: StructType) -> DataSourceReader:
        return _AllReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _DirtyReader(self.options)


def _read_part(part: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, DirtyPart)
    groups, count = part.groups, len(part.groups)
    columns: tuple[list[Any], ...] = (
        [group.log for group in groups] if groups else [None],
        [group.create_seq for group in groups] if groups else [None],
        [part.offset.xid] * max(count, 1),
        [part.offset.position] * max(count, 1),
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DIRTY, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=DIRTY)


def _dirty_parts(
    store: LogStore, after: Offset, until: Offset, parts: int, logs: set[int] | None = None
) -> list[InputPartition]:
    ingests, reached = store.read(read_ingests, after, MAX_ENTRIES_PER_BATCH)
    while reached < until:
        more, reached = store.read(read_ingests, reached, MAX_ENTRIES_PER_BATCH)
        ingests += more
    groups = dirty_groups(store, (item for item in ingests if item.offset <= until))
    if logs is not None:
        groups = {group for group in groups if group.log in logs}
    return [DirtyPart(part, until) for part in in_parts(groups, parts) or [[]]]


def render_offset(offset: Offset) -> str:
    """An offset as an option."""
    return f"{offset.xid}/{offset.position}"


def parse_offset(text: str) -> Offset:
    """An offset from an option."""
    xid, _, position = text.partition("/")
    return Offset(int(xid), int(position))


class _Opened:
    """Opens the store where it is needed: readers are made in one process and used in others."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.store_url = store_url_of(options)
        self.parts = int(options.get("partitions", DEFAULT_PARTITIONS))
        self._store: LogStore | None = None

    def store(self) -> LogStore:
        if self._store is None:
            self._store = open_existing(self.store_url)
        return self._store

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}


class _AllReader(_Opened, DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.wanted = options.get("schema")
        self.after, self.until = options.get("after"), options.get("until")
        self.share, self.shares = map(int, options.get("share", "1/1").split("/"))

    def partitions(self) -> list[InputPartition]:
        store = self.store()
        numbers = None
        if self.wanted == "":
            numbers = store.read(logs_without_schema)
        elif self.wanted is not None:
            schema = parse_schema_id(self.wanted)
            assert schema is not None, self.wanted
            numbers = store.read(logs_of_schema, schema)
        if self.after is not None and self.until is not None:
            between = parse_offset(self.after), parse_offset(self.until)
            return _dirty_parts(store, *between, self.parts, None if numbers is None else set(numbers))
        offset = store.read(newest_offset) if self.until is None else parse_offset(self.until)
        heights = [(log.id, log.held) for log in store.read(read_logs, numbers).values()]
        parts = logs_in_parts(heights, self.parts * self.shares)
        mine = parts[(self.share - 1) * self.parts : self.share * self.parts]
        return [DirtyPart(part, offset) for part in mine or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_part(partition)


class _DirtyReader(_Opened, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.limit = int(options.get("maxEntriesPerBatch", MAX_ENTRIES_PER_BATCH))
        self.start = parse_offset(options.get("startingOffset", "0/0"))
        self._stop_at: Offset | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return self.start._asdict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stop_at = self.store().read(newest_offset)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        after = Offset(**start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.limit
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable)
        _, end = self.store().read(read_ingests, after, most)
        if self._stop_at is not None:
            end = min(end, self._stop_at)
        return max(end, after)._asdict()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return _dirty_parts(self.store(), Offset(**start), Offset(**end), self.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_part(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the position that counts is written with the rows."""
