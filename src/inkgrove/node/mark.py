"""The mark: the newest entries that were appended for people of this node, in a file beside the database.

A database that was put back from a copy lacks some of them. The file is written after each commit and not synced: a
power cut leaves it older than the database, never newer, and so raises no false alarm; a killed process loses nothing
of it. It holds the newest 64, not one: processes that commit at the same moment write in any order.
"""

import ctypes
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from inkgrove.core.hashing import Hash, is_hash
from inkgrove.store.db import write_new_file
from inkgrove.store.locks import locked_file

SLOTS: Final = 64
"""More than processes that publish at once: of each, at most one commit is not in the file yet."""
_MAGIC: Final = b"inkgrove mark 1\n"
_HEAD: Final = Struct(">16sQQQ")
"""What it is, which file it was written to (`_identity_of`), how many entries were ever written, and how often the
database had been resumed (`Epoch.resumed`) when entries that it lacks were last taken out."""
_SLOT: Final = Struct(">B67sI")
"""Length and bytes of a hash, and a checksum of both."""
_SIZE: Final = _HEAD.size + SLOTS * _SLOT.size
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800


def path_of(home: Path, name: str) -> Path:
    """Where the mark of a database is."""
    return home / f"signed-{name}.mark"


def all_marks(home: Path) -> list[Path]:
    """The marks in a home, of whatever databases."""
    return sorted(home.glob("signed-*.mark"))


class Mark:
    """An open mark; safe for threads, and for several processes of one home."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @property
    def is_own(self) -> bool:
        """Whether this is the file that was made here; a copy of it says nothing of what came after the copy."""
        magic, identity, _, _ = self._head()
        return magic == _MAGIC and identity == _identity_of(self._file)

    def hashes(self) -> list[Hash]:
        """The entries that the database must hold."""
        with self._locked(shared=True):
            return self._read()

    def add(self, entry: Hash) -> None:
        """Note an entry that is committed, in place of the oldest."""
        with self._locked():
            magic, identity, count, resumed = self._head()
            os.pwrite(self._file, _slot_of(entry), _HEAD.size + count % SLOTS * _SLOT.size)
            os.pwrite(self._file, _HEAD.pack(magic, identity, count + 1, resumed), 0)

    def reset(self, resumed: int = 0) -> None:
        """Begin anew without any entry; on the disk when this returns."""
        with self._locked():
            self._write([], resumed)

    @property
    def resumed(self) -> int:
        """How often the database had been resumed when entries that it lacks were last taken out of this file."""
        return self._head()[3]

    def take_out(self, gone: Collection[Hash], resumed: int) -> None:
        """Ask for some entries no longer: the database was resumed without them; on the disk when this returns."""
        with self._locked():
            self._write([entry for entry in self._read() if entry not in gone], resumed)

    def _read(self) -> list[Hash]:
        content = os.pread(self._file, _SIZE, 0)
        found = []
        for start in range(_HEAD.size, len(content) - _SLOT.size + 1, _SLOT.size):
            length, text, check = _SLOT.unpack_from(content, start)
            if check == _check(length, text) and is_hash(text[:length]):
                found.append(Hash(text[:length]))
        return found

    def _write(self, entries: list[Hash], resumed: int) -> None:
        head = _HEAD.pack(_MAGIC, _identity_of(self._file), len(entries), resumed)
        content = head + b"".join(_slot_of(entry) for entry in entries)
        os.pwrite(self._file, content.ljust(_SIZE, b"\0"), 0)
        os.fsync(self._file)

    def _head(self) -> tuple[bytes, int, int, int]:
        content = os.pread(self._file, _HEAD.size, 0).ljust(_HEAD.size, b"\0")
        magic, identity, count, resumed = _HEAD.unpack(content)
        return magic, identity, count, resumed

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        with self._lock, locked_file(self._file, shared=shared):
            yield


def find_mark(home: Path, name: str) -> Mark | None:
    """The mark of a database; None if there is none in this home."""
    try:
        return Mark(path_of(home, name))
    except FileNotFoundError:
        return None


def make_mark(home: Path, name: str) -> Mark:
    """The mark of a database, made if there is none: a new one asks for nothing yet."""
    with suppress(FileExistsError):
        write_new_file(path_of(home, name), bytes(_SIZE), 0o600)
        mark = Mark(path_of(home, name))
        mark.reset()
        return mark
    return Mark(path_of(home, name))


def _slot_of(entry: Hash) -> bytes:
    text = bytes(entry).ljust(67, b"\0")
    return _SLOT.pack(len(entry), text, _check(len(entry), text))


def _check(length: int, text: bytes) -> int:
    return crc32(bytes([length]) + text)


def _identity_of(file: int) -> int:
    """A number that a copy of a file does not share: of its inode, and of when that was made.

    The inode alone is not enough: who removes a home and copies a backup there may well get the same one.
    """
    made = f"{os.fstat(file).st_ino} {_birth_of(file)}"
    return int.from_bytes(blake2b(made.encode(), digest_size=8).digest(), "big")


def _birth_of(file: int) -> tuple[int, int]:
    """When a file was made (seconds, nanoseconds), which Python does not tell on Linux; zeros where nobody knows."""
    buffer = ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(file, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
    except (OSError, AttributeError):
        return 0, 0
    (mask,) = Struct("=I").unpack_from(buffer, 0)
    if failed or not mask & _STATX_BTIME:
        return 0, 0
    seconds, nanoseconds = Struct("=qI").unpack_from(buffer, 80)
    return seconds, nanoseconds
