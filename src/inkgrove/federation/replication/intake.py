"""Takes in entries that replication has fetched: batch by batch, verified, in the order in which they came.

docs/protocol.md section 8. Fetching, verifying and writing go on at the same time. What was written before an
interruption counts, and the next sync asks for the rest. Very many entries are written to a Parquet archive instead,
which an `ArchiveImporter` imports in a process of its own; whether they were asked for and whether their key counts is
checked before they are written.
"""

import asyncio
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Protocol

from inkgrove.core import AreSigned, decode_entry
from inkgrove.core.errors import InkgroveError, KeyRevoked
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.federation.errors import BadAnswer
from inkgrove.messages import MAX_REPLICATION_BYTES, Entries, LogHeight, ReplicatedEntry, Want
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log, check_author
from inkgrove.node.runtime import Node
from inkgrove.signature_process import are_signed
from inkgrove.store.db import Connection
from inkgrove.store.federation import count_seq_nums, find_missing_ranges
from inkgrove.store.locks import FileLock, try_file_lock
from inkgrove.store.logs import Batch, IngestReceipt, IngestStatus, LogKey, by_log, ingest_batch, prepare_items

_VERIFIERS: Final = 2
"""How many batches are checked at the same time: one is read while the signatures of another are with their process."""
_AHEAD: Final = 3
"""How many batches are fetched before they can be written: the memory for them is bounded."""
_RANGES_OF_LOG: Final = 1_000


@dataclass(slots=True)
class IntakeCounts:
    """Counts of the entries that a node sent."""

    received: int = 0
    stored: int = 0
    """Entries that are new here, or have their payloads now."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those that do not hold, by code."""


# What is missing


def find_missing(node: Node, logs: Collection[LogHeight]) -> list[Want]:
    """Find what this node lacks of the logs that another one lists.

    Log 0 of identities comes first: it says which keys count, and up to where.
    """

    def work(connection: Connection) -> list[Want]:
        wants = []
        for log in sorted(logs, key=lambda log: log.log_id != IDENTITY_LOG):
            ranges = find_missing_ranges(
                connection,
                log.author,
                log.log_id,
                log.height,
                most=_RANGES_OF_LOG,
                is_forked=log.proof is not None,
            )
            if ranges:
                wants.append(Want(log.author, log.log_id, ranges))
        return wants

    return node.database.read(work)


def count_missing(logs: Collection[LogHeight], wants: Collection[Want]) -> int:
    """Estimate how many entries will come."""
    offered = {(log.author, log.log_id): log.offered for log in logs}
    return sum(min(count_seq_nums(want.ranges), offered[want.author, want.log_id]) for want in wants)


# Batches


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch whose entries are signed, each on its own."""

    batch: Batch
    count: int
    refused: Counter[str]


def check_response(answer: Entries, asked: Collection[LogKey], are_signed: AreSigned = are_signed) -> CheckedBatch:
    """Check bytes, signatures and payloads, without the store; raises `BadAnswer` for logs that were not asked for."""
    prepared, rejected = prepare_items(answer.entries, are_signed)
    refused = Counter(item.error.code for item in rejected)
    batch = by_log(prepared)
    if not batch.keys() <= set(asked):
        raise BadAnswer("the node sends entries of logs that it was not asked for")
    return CheckedBatch(batch, len(answer.entries), refused)


def ingest_checked(node: Node, checked: CheckedBatch, taken: IntakeCounts) -> None:
    """Check forks, links and what is held already, and store, in one transaction; adds to the counts in `taken`."""
    node.disk.require()
    receipts, revoked = node.database.write(lambda connection: _ingest(connection, checked.batch))
    taken.received += checked.count
    taken.refused.update(checked.refused)
    if revoked:
        taken.refused[KeyRevoked.code] += revoked
    for receipt in receipts:
        if receipt.status in (IngestStatus.STORED, IngestStatus.COMPLETED, IngestStatus.EVIDENCE):
            taken.stored += 1
        elif receipt.status is IngestStatus.REFUSED and receipt.error is not None:
            taken.refused[receipt.error.code] += 1


def _ingest(connection: Connection, batch: Batch) -> tuple[list[IngestReceipt], int]:
    """Ingest log 0 of identities first: a batch can hold a revocation together with what that refuses."""
    receipts: list[IngestReceipt] = []
    revoked = 0
    for is_identity in (True, False):
        some: Batch = {}
        for key, items in batch.items():
            if (key[1] == IDENTITY_LOG) is is_identity:
                last = last_counted(connection, key)
                counted = [item for item in items if item.signed.entry.seq_num <= last]
                revoked += len(items) - len(counted)
                if counted:
                    some[key] = counted
        if some:
            receipts += ingest_batch(connection, some, must_be_next=False).values()
        if is_identity:
            for author, _ in some:
                apply_identity_log(connection, author)
    return receipts, revoked


def last_counted(connection: Connection, key: LogKey) -> int:
    """Return the last sequence number of a log that counts; what a revoked key has signed after it does not."""
    try:
        check_author(connection, *key, MAX_STORED_INTEGER)
    except KeyRevoked as err:
        last = err.data["last"]
        assert isinstance(last, int)
        return last
    return MAX_STORED_INTEGER


class Intake:
    """Verifies and writes what is fetched, in order, while more is fetched."""

    def __init__(
        self,
        node: Node,
        taken: IntakeCounts,
        on_progress: Callable[[int], None] = lambda _: None,
        *,
        in_place: bool = False,
    ) -> None:
        """`on_progress` gets how many entries have come; `in_place` works without threads, for simulations."""
        self._node = node
        self._taken = taken
        self._on_progress = on_progress
        self._in_place = in_place
        self._verifiers = ThreadPoolExecutor(_VERIFIERS, thread_name_prefix="verify")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="replicate")
        self._under_way: deque[asyncio.Future[None]] = deque()

    async def ingest(self, answer: Entries, asked: set[LogKey]) -> None:
        """Take a batch; returns as soon as another one can be fetched. Raises what an earlier batch raised."""
        if self._in_place:
            ingest_checked(self._node, check_response(answer, asked), self._taken)
            return
        checking = self._verifiers.submit(check_response, answer, asked, self._node.signatures.are_signed)
        loop = asyncio.get_running_loop()
        # One thread writes, so batches are written in the order in which they came.
        self._under_way.append(loop.run_in_executor(self._writer, self._write, checking))
        while len(self._under_way) > _AHEAD:
            await self._under_way.popleft()

    def _write(self, checking: "Future[CheckedBatch]") -> None:
        ingest_checked(self._node, checking.result(), self._taken)
        self._on_progress(self._taken.received)

    async def finish(self) -> None:
        """Wait until everything has been written."""
        while self._under_way:
            await self._under_way.popleft()

    async def close(self) -> None:
        """Let the threads go; what has begun is finished."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._verifiers.shutdown()
        self._writer.shutdown()


# Archives


MOST_IN_ARCHIVE: Final = 500_000
"""How many entries are imported at a time."""
MOST_AT_HAND: Final = 5_000
"""How many entries are kept in memory before they are written."""


@dataclass(frozen=True, slots=True)
class ImportedArchive:
    """The result of an import: how many entries were new, and how many were refused by error code."""

    appended: int
    rejected: Mapping[str, int]


class ArchiveImporter(Protocol):
    """Takes Parquet archives (columns `entry` and `payload`) into the store of a node, fully verified."""

    async def __call__(self, node: Node, archive: Path) -> ImportedArchive:
        """Import `archive` and return the counts; raises `federation.import-failed` if it does not come to its end."""


class BulkIntake:
    """Gathers fetched entries in archives and imports each, after the checks that the importer does not make."""

    def __init__(
        self,
        node: Node,
        taken: IntakeCounts,
        folder: Path,
        importer: ArchiveImporter,
        importing: asyncio.Semaphore,
        *,
        few: int = MOST_AT_HAND,
    ) -> None:
        """`folder`: where archives are made, by any number of processes at the same time.

        `importing`: how many imports there may be at the same time; fewer entries than `few` are not worth one.
        """
        self._importer = importer
        self._node = node
        self._taken = taken
        self._folder = folder
        self._importing = importing
        self._few = few
        self._at_hand: list[ReplicatedEntry] = []
        self._asked: set[LogKey] = set()
        self._directory: _LockedDirectory | None = None
        self._writer: Any = None
        self._count = 0

    async def ingest(self, answer: Entries, asked: set[LogKey]) -> None:
        """Put a batch into the archive, without what does not count; raises `BadAnswer` if it was not asked for."""
        await asyncio.to_thread(self._sort, answer, asked)
        if self._count >= MOST_IN_ARCHIVE:
            await self.finish()

    def _sort(self, answer: Entries, asked: set[LogKey]) -> None:
        """Ingest log 0 of identities at once, since it decides what else counts; the rest is for the archive."""
        identities: list[ReplicatedEntry] = []
        logs: dict[LogKey, list[tuple[int, ReplicatedEntry]]] = defaultdict(list)
        for item in answer.entries:
            try:
                entry = decode_entry(item[0])
            except InkgroveError as error:
                self._refuse(error.code, 1)
                continue
            if entry.log_id == IDENTITY_LOG:
                identities.append(item)
            else:
                logs[entry.author, entry.log_id].append((entry.seq_num, item))
        if not logs.keys() <= asked:
            raise BadAnswer("the node sends entries of logs that it was not asked for")
        if identities:
            ingest_checked(self._node, check_response(Entries(identities, None), asked), self._taken)
        self._at_hand += self._node.database.read(lambda connection: self._keep_counted(connection, logs))
        self._asked |= logs.keys()
        size = sum(len(entry) + len(payload or b"") for entry, payload in self._at_hand)
        if len(self._at_hand) >= self._few or size >= MAX_REPLICATION_BYTES:
            self._write()

    def _keep_counted(
        self, connection: Connection, logs: dict[LogKey, list[tuple[int, ReplicatedEntry]]]
    ) -> list[ReplicatedEntry]:
        kept: list[ReplicatedEntry] = []
        for key, items in logs.items():
            last = last_counted(connection, key)
            counted = [item for seq_num, item in items if seq_num <= last]
            if len(counted) < len(items):
                self._refuse(KeyRevoked.code, len(items) - len(counted))
            kept += counted
        return kept

    def _refuse(self, code: str, count: int) -> None:
        self._taken.received += count
        self._taken.refused[code] += count

    def _write(self) -> None:
        # Imported here: a node that never needs it starts faster.
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        schema = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
        if self._writer is None:
            self._directory = self._directory or _LockedDirectory(self._folder)
            self._writer = pq.ParquetWriter(self._directory.archive, schema)
        encoded, payloads = zip(*self._at_hand, strict=True)
        self._writer.write_table(pa.table({"entry": list(encoded), "payload": list(payloads)}, schema))
        self._count += len(self._at_hand)
        self._at_hand = []

    async def finish(self) -> None:
        """Import what has gathered; if it is little, ingest it here."""
        if self._at_hand:
            await asyncio.to_thread(self._write if self._writer is not None else self._ingest_here)
        if self._writer is None or self._directory is None:
            return
        await asyncio.to_thread(self._writer.close)
        self._writer = None
        count, self._count = self._count, 0
        async with self._importing:
            imported = await self._importer(self._node, self._directory.archive)
        self._directory.archive.unlink()
        self._taken.received += count
        self._taken.stored += imported.appended
        self._taken.refused.update(imported.rejected)

    def _ingest_here(self) -> None:
        items, self._at_hand = self._at_hand, []
        ingest_checked(self._node, check_response(Entries(items, None), self._asked), self._taken)

    async def close(self) -> None:
        """Throw away what was not imported."""
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
            self._writer = None
        if self._directory is not None:
            await asyncio.to_thread(self._directory.remove)
            self._directory = None


class _LockedDirectory:
    """A directory of one's own, locked while the process lives; those of dead processes are removed when it is made.

    The node and a command may sync with the same peer at once.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):  # else others could find the new directory before it is locked
            for other in folder.iterdir():
                if other.is_dir() and (lock := try_file_lock(other)) is not None:
                    with lock:
                        shutil.rmtree(other)
            self._directory = Path(mkdtemp(dir=folder))
            self._lock = FileLock(self._directory)
        self.archive: Path = self._directory / "archive.parquet"

    def remove(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self._directory)
        self._lock.close()
