"""Tasks that bring checked entries into a store: clean logs in bulk, all others entry by entry.

docs/protocol.md section 2. A task gets whole logs, in order. Each transaction takes a chunk; a killed import leaves
what was committed, and doing it again takes the rest.
"""

import fcntl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import Accumulator

from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError, StoreUnavailable
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import KEY_BYTES, PublicKey
from inkgrove.core.verify import SignedEntry
from inkgrove.pipeline.fold import open_once
from inkgrove.store.bulk import Line, LogAsSeen, Run
from inkgrove.store.decide import Status
from inkgrove.store.prepare import read_content

RESULT: Final = pa.schema(
    [
        ("status", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("entry", pa.binary()),
        ("rows", pa.int64()),
    ]
)
"""What became of lines: of refused ones each on its own, of others only how many."""
RESULT_DDL: Final = "status string, code string, message string, entry binary, rows long"
APPENDED, KNOWN, REJECTED, FAILED = "appended", "known", "rejected", "failed"
CHUNK: Final = 20_000
_CAREFUL_CHUNK: Final = 5_000
_PAUSE: Final = 0.1
"""The part of its time that an import leaves a SQLite store to other writers."""


class Row(NamedTuple):
    """A checked line, and what is known of its log."""

    log: bytes | None
    seq_num: int
    hash: bytes | None
    entry: bytes | None
    payload: bytes | None
    is_end: bool
    code: str | None
    message: str | None
    is_clean: bool
    height: int
    held: int


def load_task(place: str, done: "Accumulator[int]") -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows like `Row`, ordered by log, place and hash, in; `RESULT` out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loader = Loader(place)
        try:
            for batch in batches:
                columns = [batch.column(name).to_pylist() for name in Row._fields]
                for row in map(Row._make, zip(*columns, strict=True)):
                    loader.take(row)
                done.add(len(batch))
                yield from loader.refused()
            loader.flush()
            yield from loader.refused()
        except StoreUnavailable as error:
            yield _result([(FAILED, error.code, error.message, None, 1)])
        yield _result([(status, None, None, None, count) for status, count in loader.counts.items()])

    return run


class Loader:
    """One task's way into the store."""

    def __init__(self, place: str) -> None:
        self.store = open_once(place)
        self.place = place
        self.counts: Counter[str] = Counter()
        self._refused: list[tuple[Any, ...]] = []
        self._clean: list[Row] = []
        self._careful: list[Row] = []
        self._moved: dict[bytes, LogAsSeen | None] = {}
        """The logs that this task has changed, as it left them; None for those it could not take in bulk."""

    def take(self, row: Row) -> None:
        """Take one line, sooner or later."""
        if row.hash is None or row.log is None:
            self._refuse(row, row.code or "inkgrove", row.message)
        elif row.is_clean:
            self._clean.append(row)
            if len(self._clean) >= CHUNK:
                self._append()
        else:
            self._careful.append(row)
            if len(self._careful) >= _CAREFUL_CHUNK:
                self._ingest()

    def flush(self) -> None:
        """Take what has gathered."""
        self._append()
        self._ingest()

    def refused(self) -> Iterator[pa.RecordBatch]:
        """What was refused since the last call."""
        if self._refused:
            yield _result(self._refused)
            self._refused = []

    def _append(self) -> None:
        rows, self._clean = self._clean, []
        new = self._keep_new(rows)
        runs = [run for log, group in groupby(new, attrgetter("log")) if (run := self._run(log, list(group)))]
        if not runs:
            return
        with self._turn():
            moved = self.store.append_clean(runs)
        names = {run.log[:2] for run in moved}
        for run in runs:
            name = run.log.author + run.log.log_id.to_bytes(8, "big")
            if run.log[:2] in names:
                self._moved[name] = None
            else:
                height = max(run.log.height, run.lines[-1].seq_num)
                self._moved[name] = run.log._replace(height=height, held=run.log.held + len(run.lines))
        for row in new:
            self._careful_or_count(row)

    def _careful_or_count(self, row: Row) -> None:
        if self._moved[row.log or b""] is None:
            self._careful.append(row)
        else:
            self._count(row, APPENDED)

    def _keep_new(self, rows: list[Row]) -> list[Row]:
        """Count what is there already; the payload of a held entry takes the careful way."""
        held = self.store.held_among([Hash(row.hash or b"") for row in rows if row.seq_num <= row.height])
        new, before = [], None
        for row in rows:
            if row.hash == before:
                # Of lines with one entry the first has the payload, if any has.
                self._count(row, KNOWN)
                continue
            before = row.hash
            has_payload = held.get(Hash(row.hash or b""))
            if has_payload is None:
                new.append(row)
            elif has_payload or row.payload is None:
                self._count(row, KNOWN)
            else:
                self._careful.append(row)
        return new

    def _run(self, log: bytes, rows: list[Row]) -> Run | None:
        author, log_id = PublicKey(log[:KEY_BYTES]), int.from_bytes(log[KEY_BYTES:], "big")
        seen = self._moved.get(log, LogAsSeen(author, log_id, rows[0].height, rows[0].held))
        if seen is None:
            return None
        return Run(seen, [_line(row) for row in rows])

    def _ingest(self) -> None:
        rows, self._careful = self._careful, []
        if not rows:
            return
        # The signatures of these very bytes were verified before.
        items = [(SignedEntry(decode_entry(row.entry or b""), Hash(row.hash or b"")), row.payload) for row in rows]
        with self._turn():
            receipts = self.store.ingest(items)
        for row, receipt in zip(rows, receipts, strict=True):
            if receipt.status in (Status.REFUSED, Status.EVIDENCE):
                error = receipt.error or InkgroveError("")
                self._refuse(row, error.code, error.message)
            else:
                self._count(row, KNOWN if receipt.status is Status.KNOWN else APPENDED)

    def _count(self, row: Row, status: str) -> None:
        if row.code is None:
            self.counts[status] += 1
        else:
            self._refuse(row, row.code, row.message)  # its payload was another's; the entry is taken without

    def _refuse(self, row: Row, code: str, message: str | None) -> None:
        self._refused.append((REJECTED, code, message, row.entry, 1))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One task at a time on SQLite, and now and then nobody, so that a node can write meanwhile."""
        if "://" in self.place:
            yield
            return
        with (Path(self.place) / "import.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start = monotonic()
            yield
            sleep(_PAUSE * (monotonic() - start))


def _line(row: Row) -> Line:
    content = read_content(row.payload) if row.payload is not None else None
    return Line(row.seq_num, Hash(row.hash or b""), row.entry or b"", row.payload, content, row.is_end)


def _result(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(RESULT)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, RESULT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULT)
