"""Tasks that bring checked entries into a store: clean logs in bulk, all others entry by entry.

docs/protocol.md section 2. A task gets whole logs, in order. Each transaction takes a chunk; a killed import leaves
what was committed, and doing it again takes the rest.
"""

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

from inkgrove.core import KEY_BYTES, Hash, PublicKey, decode_entry, trust_signed
from inkgrove.core.errors import StoreUnavailable
from inkgrove.pipeline.runtime.batches import BATCH_BYTES, record_batch
from inkgrove.pipeline.runtime.workers import open_once
from inkgrove.pipeline.tables import LOADED
from inkgrove.store.db import encode_log_key
from inkgrove.store.locks import FileLock
from inkgrove.store.logs import (
    IngestStatus,
    LogAtVerification,
    LogBatch,
    VerifiedLine,
    append_verified,
    find_held_payloads,
    read_content,
)

APPENDED, KNOWN, REJECTED, FAILED = "appended", "known", "rejected", "failed"
CHUNK: Final = 40_000
"""How many lines go into a transaction, unless they are large."""
_CAREFUL_CHUNK: Final = 5_000
_PAUSE: Final = 0.1
"""The part of its time that an import leaves a SQLite store to other writers."""


class ArchiveRow(NamedTuple):
    """A checked line of an archive, with the verdict on its log."""

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


def load_task(
    store_url: str, done: "Accumulator[int]", chunk: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`: `ArchiveRow`s ordered by log, sequence number and hash in, `LOADED` out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            loader = Loader(store_url, chunk)
            for batch in batches:
                columns = [batch.column(name).to_pylist() for name in ArchiveRow._fields]
                for row in map(ArchiveRow._make, zip(*columns, strict=True)):
                    loader.add(row)
                done.add(len(batch))
                yield from loader.refused()
            loader.flush()
            yield from loader.refused()
            counts = [(status, None, None, None, count) for status, count in loader.counts.items()]
            yield record_batch(counts, LOADED)
        except StoreUnavailable as error:
            yield record_batch([(FAILED, error.code, error.message, None, 1)], LOADED)

    return run


class Loader:
    """Gathers the lines of one task and writes them to the store in chunks."""

    def __init__(self, store_url: str, chunk: int, most_bytes: int = BATCH_BYTES) -> None:
        self.store = open_once(store_url)
        self.store_url = store_url
        self.chunk = chunk
        self.most_bytes = most_bytes
        self._bytes = 0
        """What the lines that have gathered come to."""
        self.counts: Counter[str] = Counter()
        self._refused: list[tuple[Any, ...]] = []
        self._clean: list[ArchiveRow] = []
        self._careful: list[ArchiveRow] = []
        self._last_hash: bytes | None = None
        self._logs: dict[bytes, LogAtVerification | None] = {}
        """The logs that this task has changed, as it left them; None for those that others have changed meanwhile."""

    def add(self, row: ArchiveRow) -> None:
        """Gather one line; writes a chunk when it is full."""
        if row.hash is None or row.log is None:
            self._refuse(row, row.code or "inkgrove", row.message)
            return
        (self._clean if row.is_clean else self._careful).append(row)
        self._bytes += _size(row)
        if self._bytes >= self.most_bytes:
            self.flush()
        elif len(self._clean) >= self.chunk:
            self._append()
        elif len(self._careful) >= min(self.chunk, _CAREFUL_CHUNK):
            self._ingest()

    def flush(self) -> None:
        """Write what has gathered."""
        self._append()
        self._ingest()

    def refused(self) -> Iterator[pa.RecordBatch]:
        """What was refused since the last call."""
        if self._refused:
            yield record_batch(self._refused, LOADED)
            self._refused = []

    def _append(self) -> None:
        rows, self._clean = self._clean, []
        new = self._keep_new(rows)
        runs = [run for log, group in groupby(new, attrgetter("log")) if (run := self._run(log, list(group)))]
        if runs:
            with self._hold_import_lock():
                moved = self.store.write(append_verified, runs)
            self._remember_logs(runs, {run.log for run in moved})
        for row in new:
            if self._is_moved(row):
                self._careful.append(row)
            else:
                self._count(row, APPENDED)
        self._bytes = sum(map(_size, self._careful))
        if len(self._careful) >= _CAREFUL_CHUNK:
            self._ingest()

    def _remember_logs(self, runs: list[LogBatch], moved: set[LogAtVerification]) -> None:
        for run in runs:
            log, lines = run.log, run.lines
            left = log._replace(height=max(log.height, lines[-1].seq_num), held=log.held + len(lines))
            self._logs[encode_log_key(log.author, log.log_id)] = None if log in moved else left

    def _is_moved(self, row: ArchiveRow) -> bool:
        return row.log in self._logs and self._logs[row.log] is None

    def _keep_new(self, rows: list[ArchiveRow]) -> list[ArchiveRow]:
        """Count what is there already; the payload of a held entry takes the careful way."""
        held = self.store.read(find_held_payloads, [Hash(row.hash or b"") for row in rows if row.seq_num <= row.height])
        new = []
        for row in rows:
            is_twin = row.hash == self._last_hash
            self._last_hash = row.hash
            has_payload = held.get(Hash(row.hash or b""))
            if self._is_moved(row):
                self._careful.append(row)
            elif is_twin or has_payload or (has_payload is not None and row.payload is None):
                # Of lines with one entry the first has the payload, if any has.
                self._count(row, KNOWN)
            elif has_payload is not None:
                self._careful.append(row)
            else:
                new.append(row)
        return new

    def _run(self, log: bytes, rows: list[ArchiveRow]) -> LogBatch | None:
        author, log_id = PublicKey(log[:KEY_BYTES]), int.from_bytes(log[KEY_BYTES:], "big")
        seen = self._logs.get(log, LogAtVerification(author, log_id, rows[0].height, rows[0].held))
        if seen is None:
            return None
        return LogBatch(seen, [_line(row) for row in rows])

    def _ingest(self) -> None:
        rows, self._careful = self._careful, []
        self._bytes = sum(map(_size, self._clean))
        if not rows:
            return
        # The signatures of these very bytes were verified before.
        items = [(trust_signed(decode_entry(row.entry or b""), Hash(row.hash or b"")), row.payload) for row in rows]
        with self._hold_import_lock():
            receipts = self.store.ingest(items)
        for row, receipt in zip(rows, receipts, strict=True):
            if receipt.error is not None:
                self._refuse(row, receipt.error.code, receipt.error.message)
            else:
                self._count(row, KNOWN if receipt.status is IngestStatus.KNOWN else APPENDED)

    def _count(self, row: ArchiveRow, status: str) -> None:
        if row.code is None:
            self.counts[status] += 1
        else:
            self._refuse(row, row.code, row.message)  # its payload was another's; the entry is taken without

    def _refuse(self, row: ArchiveRow, code: str, message: str | None) -> None:
        self._refused.append((REJECTED, code, message, row.entry, 1))

    @contextmanager
    def _hold_import_lock(self) -> Iterator[None]:
        """One task at a time on SQLite, and now and then nobody, so that a node can write meanwhile."""
        if "://" in self.store_url:
            yield
            return
        with FileLock(Path(self.store_url) / "import.lock"):
            start = monotonic()
            yield
            sleep(_PAUSE * (monotonic() - start))


def _size(row: ArchiveRow) -> int:
    return len(row.entry or b"") + len(row.payload or b"")


def _line(row: ArchiveRow) -> VerifiedLine:
    content = read_content(row.payload) if row.payload is not None else None
    return VerifiedLine(row.seq_num, Hash(row.hash or b""), row.entry or b"", row.payload, content, row.is_end)
