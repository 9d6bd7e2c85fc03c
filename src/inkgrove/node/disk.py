"""A reserve of disk space: what is stored for people stops before the disk is full (docs/operating.md).

Below the reserve, uploads, publishing, replication and large deliveries are refused; sign-in, deletes and small
deliveries go on, which need little. Below a quarter of it deliveries are refused too.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Final

from inkgrove.node.errors import StorageError

SMALL_DELIVERY: Final = 64 * 1024
"""Bytes of a delivery that is taken below the reserve."""
_SECONDS: Final = 1.0
"""How long what the system said is believed."""


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
        """The same for so many bytes that another node delivers."""
        self.require(urgent=size <= SMALL_DELIVERY)
