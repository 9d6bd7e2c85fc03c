"""The home of a node: its lock, the files with names of other nodes, and the reserve of disk space.

Many nodes and commands may work on a home at once, or one that restores a backup, and nobody else.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from inkgrove.node.errors import BackupError, StorageError
from inkgrove.store.files import make_directory
from inkgrove.store.locks import FileLock

_NAME = "home.lock"


class HomeLock:
    """Held until it is closed, or its process ends."""

    def __init__(self, home: Path, *, alone: bool = False) -> None:
        """Raises `backup.in-use` if somebody else works on the home, or, unless `alone`, has it for itself."""
        make_directory(home)
        try:
            self._lock = FileLock(home / _NAME, shared=not alone, wait=False)
        except BlockingIOError as err:
            text = (
                f"a process works on {home}: end it first" if alone else f"{home} is being restored: wait for its end"
            )
            raise BackupError("backup.in-use", text) from err

    def close(self) -> None:
        """Let others work on the home."""
        self._lock.close()


# The nodes that have had entries of ours, by a name there, in a file beside the database.
#
# A database that was put back from a copy does not know whom it has met since; whoever holds our logs must be asked
# (docs/protocol.md section 8.12). A line is written when a name is new, which is seldom.


RECEIVERS: Final = "receivers.txt"
"""To whom this node has sent something."""
READERS: Final = "readers.txt"
"""Who has fetched something that is public."""
_MOST: Final = 10_000
_MOST_OF_DOMAIN: Final = 100
"""Of readers alone: anybody can be one, and names under a domain cost nothing."""

log = structlog.get_logger("inkgrove.receivers")


class NameFile:
    """Names, one in a line; safe for threads and for several processes of one home.

    A file holds 10,000 names, that of readers 100 of a domain. Whoever is to be asked for what a restored database
    lacks must not be left out: for receivers no domain is full, and a name for which the file has no room is warned of.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noted: set[str] = set()
        self._lock = threading.Lock()
        self._has_warned = False

    def names(self) -> set[str]:
        """Every name, as other processes have left the file too."""
        try:
            return {line for line in self.path.read_text(errors="replace").split("\n") if line.strip()}
        except FileNotFoundError:
            return set()

    def add(self, fqdn: str) -> None:
        """Remember a name, if there is room; returns when it is on the disk.

        The first name that finds the file full is logged as a warning.
        """
        if fqdn in self._noted:
            return
        with self._lock:
            known = self.names()
            if fqdn not in known and self._has_room(fqdn, known):
                file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(file, f"{fqdn}\n".encode())
                    os.fsync(file)
                finally:
                    os.close(file)
            if len(self._noted) >= _MOST:
                self._noted.clear()
            self._noted.add(fqdn)

    def _has_room(self, fqdn: str, known: set[str]) -> bool:
        if len(known) >= _MOST:
            if not self._has_warned:
                self._has_warned = True
                advice = "after a restore, only a database that knows this name has it asked for what is lacking"
                log.warning("a list of names is full", file=self.path.name, most=_MOST, name=fqdn, advice=advice)
            return False
        if self.path.name != READERS:
            return True
        return sum(_domain_of(name) == _domain_of(fqdn) for name in known) < _MOST_OF_DOMAIN


def _domain_of(fqdn: str) -> str:
    return ".".join(fqdn.split(".")[-2:])


# A reserve of disk space: what is stored for people stops before the disk is full (docs/operating.md).
#
# Below the reserve, uploads, publishing, replication and large deliveries are refused; sign-in, deletes and small
# deliveries go on, which need little. Below a quarter of it deliveries are refused too.


SMALL_DELIVERY: Final = 64 * 1024
"""Bytes of a delivery that is taken below the reserve."""
_SECONDS: Final = 1.0
"""How long the free space that was read counts."""


def free_bytes(path: Path) -> int:
    """How much may be written where a path is, or will be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


class DiskReserve:
    """Watches the disks of a node; safe for threads."""

    def __init__(
        self,
        paths: Iterable[Path],
        reserve: int,
        *,
        free: Callable[[Path], int] = free_bytes,
        seconds: float = _SECONDS,
    ) -> None:
        self._paths, self._reserve, self._free, self._seconds = tuple(paths), reserve, free, seconds
        self._lock = Lock()
        self._known, self._until = 0, 0.0

    def free(self) -> int:
        """The bytes that are left on the fullest of the disks, as of the last second."""
        now = time.monotonic()
        if now >= self._until:
            with self._lock:
                self._known, self._until = min(map(self._free, self._paths)), now + self._seconds
        return self._known

    def require(self, *, urgent: bool = False) -> None:
        """Raise `storage.low-disk` below the reserve; what is urgent is refused below a quarter of it only."""
        if self._reserve and self.free() < (self._reserve // 4 if urgent else self._reserve):
            raise StorageError(
                "storage.low-disk",
                "the disk of this node is nearly full: until its administrator has made room, it publishes nothing but "
                "deletes and takes no uploads",
            )

    def require_for_delivery(self, size: int) -> None:
        """Raise `storage.low-disk` if there is no room for so many bytes that another node delivers."""
        self.require(urgent=size <= SMALL_DELIVERY)
