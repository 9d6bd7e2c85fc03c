"""Replication of very many entries: they are written to a Parquet archive, which an `ArchiveImporter` takes in.

docs/protocol.md section 8. The process that serves requests only fetches and writes a file; the importer, which is
handed in, works in a process of its own. Whether entries were asked for and whether their key counts is checked before
they are written. An interrupted import keeps what it has taken in, and the next sync fetches the rest.
"""

import asyncio
import fcntl
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Protocol

from sqlalchemy import Connection

from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError, KeyRevoked
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.replicating import Taken, check, last_counted, take_in
from inkgrove.messages.replication import MAX_REPLICATION_BYTES, Entries, ReplicatedEntry
from inkgrove.node.identity import IDENTITY_LOG
from inkgrove.node.runtime import Node
from inkgrove.store.logs.preparation import LogKey

MOST_IN_ARCHIVE: Final = 500_000
"""How many entries are imported at a time."""
MOST_AT_HAND: Final = 5_000
"""How many entries are held in memory before they are written."""


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
        taken: Taken,
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
        self._place: _LockedPlace | None = None
        self._writer: Any = None
        self._count = 0

    async def use(self, answer: Entries, asked: set[LogKey]) -> None:
        """Put a batch into the archive, without what was not asked for or does not count."""
        await asyncio.to_thread(self._sort, answer, asked)
        if self._count >= MOST_IN_ARCHIVE:
            await self.finish()

    def _sort(self, answer: Entries, asked: set[LogKey]) -> None:
        """Identities have an effect here, so they are taken in at once, as in batches; the rest is for the archive."""
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
            take_in(self._node, check(Entries(identities, None), asked), self._taken)
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
            self._place = self._place or _LockedPlace(self._folder)
            self._writer = pq.ParquetWriter(self._place.archive, schema)
        encoded, payloads = zip(*self._at_hand, strict=True)
        self._writer.write_table(pa.table({"entry": list(encoded), "payload": list(payloads)}, schema))
        self._count += len(self._at_hand)
        self._at_hand = []

    async def finish(self) -> None:
        """Import what has gathered; if it is little, whatever was promised, take it in here."""
        if self._at_hand:
            await asyncio.to_thread(self._write if self._writer is not None else self._take_in_here)
        if self._writer is None or self._place is None:
            return
        await asyncio.to_thread(self._writer.close)
        self._writer = None
        count, self._count = self._count, 0
        async with self._importing:
            imported = await self._importer(self._node, self._place.archive)
        self._place.archive.unlink()
        self._taken.received += count
        self._taken.stored += imported.appended
        self._taken.refused.update(imported.rejected)

    def _take_in_here(self) -> None:
        items, self._at_hand = self._at_hand, []
        take_in(self._node, check(Entries(items, None), self._asked), self._taken)

    async def close(self) -> None:
        """Throw away what was not imported."""
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
            self._writer = None
        if self._place is not None:
            await asyncio.to_thread(self._place.remove)
            self._place = None


class _LockedPlace:
    """A directory of one's own, locked as long as the process lives; those of dead ones are removed when one is made.

    The node and a command may sync with the same peer at once.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as turn:
            # Nobody takes a directory for a dead one's between its making and its lock.
            fcntl.flock(turn, fcntl.LOCK_EX)
            for other in folder.iterdir():
                if other.is_dir() and (lock := _try_lock(other)) is not None:
                    shutil.rmtree(other)
                    os.close(lock)
            self._directory = Path(mkdtemp(dir=folder))
            lock = _try_lock(self._directory)
        assert lock is not None
        self._lock = lock
        self.archive: Path = self._directory / "archive.parquet"

    def remove(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self._directory)
        os.close(self._lock)


def _try_lock(directory: Path) -> int | None:
    file = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
