"""The journal of erased instances: a file beside the database that only grows (docs/protocol.md section 9.5).

A line has the hash of an instance. It is on the disk before the content goes, so a database that was put back from a
copy can be held against it: what was erased once is erased again.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from inkgrove.core import Hash, is_hash
from inkgrove.store.db import Connection, Database
from inkgrove.store.files import BlobFiles, make_directory, sync_directory
from inkgrove.store.rot import ErasedContent, erase_instances, read_applied, remove_marked_blobs, write_applied

ERASED: Final = "erased.txt"
CHUNK: Final = 200
"""How many instances are erased in one transaction."""


class ErasureJournal:
    """The file in a home; written by one process at a time, who holds the lock of `erase_due`."""

    def __init__(self, home: Path) -> None:
        self.path = home / ERASED

    @property
    def size(self) -> int:
        """How many bytes it has."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, start: int = 0) -> list[Hash]:
        """Read the instances from a byte on, each once; lines that are not whole are left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        return [*dict.fromkeys(found for line in lines if (found := _parse(line)) is not None)]

    def append(self, instances: Collection[Hash]) -> None:
        """Write instances; returns when they are on the disk."""
        if not instances:
            return
        is_new = not self.path.exists()
        make_directory(self.path.parent)
        # A line that a crash cut off must not swallow the next one: an empty line is no instance.
        text = "\n" + "".join(f"{instance.hex()}\n" for instance in instances)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, text.encode())
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            sync_directory(self.path.parent)


def _parse(line: bytes) -> Hash | None:
    try:
        value = bytes.fromhex(line.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return None
    return Hash(value) if is_hash(value) else None


def erase_content(database: Database, files: BlobFiles, instances: Collection[Hash], now: int) -> ErasedContent:
    """Erase instances in the node's tables, and the blobs that nothing else names."""
    erased = database.write(lambda connection: erase_instances(connection, instances, now), durable=True)
    remove_erased_blobs(database, files)
    return erased


def remove_erased_blobs(database: Database, files: BlobFiles) -> None:
    """Remove the blobs that erased instances named and nothing else does, also what a run that died has left."""
    while database.write(lambda connection: remove_marked_blobs(connection, files, CHUNK)) == CHUNK:
        pass


def apply_journal(database: Database, home: Path, now: int, *, from_start: bool = False) -> int:
    """Erase what the journal of a home has and the database has not; how many instances that were.

    `from_start`: the database may come from another home, so that it does not know this file.
    """
    journal = ErasureJournal(home)
    applied, compacted = database.read(read_applied)
    size = journal.size
    if size == applied and not (from_start and size):
        return 0
    # A shorter file is another one.
    instances = journal.read(0 if from_start or applied > size else applied)
    files = BlobFiles(home / "blobs")
    for start in range(0, len(instances), CHUNK):
        erase_content(database, files, instances[start : start + CHUNK], now)

    def finish(connection: Connection) -> None:
        write_applied(connection, size, compacted)

    database.write(finish, durable=True)
    return len(instances)
