"""Files that must outlive a power cut: whole and on the disk, with their names, before anybody relies on them.

A file is written under another name, synced, and then given its own; the directory that has the name is synced too. So
there is never half a file under the right name, and no name that is gone after a power cut.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Final

from inkgrove.core import Flavour, Hash, is_hash
from inkgrove.core.errors import StoreUnavailable


def write_new_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that does not exist yet; raises `FileExistsError` if one does, and leaves that as it is."""
    make_directory(path.parent)
    draft = _write_draft(path, data, mode)
    try:
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise
        except OSError:  # a disk without hard links, such as a USB stick: the name first, then the bytes
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file, in place of one that may be there."""
    make_directory(path.parent)
    draft = _write_draft(path, data, mode)
    try:
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rename_durably(draft: Path, path: Path) -> None:
    """Give a file or directory that is synced the name it shall have, in place of a file that may have it."""
    draft.replace(path)
    sync_directory(path.parent)


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Make a directory and those above it, as far as they are missing, for their owner alone."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=mode, exist_ok=True)
        sync_directory(directory.parent)


def sync_file(path: Path) -> None:
    """Return when the bytes of a file are on the disk."""
    _sync(path)


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on the disk."""
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_draft(path: Path, data: bytes, mode: int) -> Path:
    draft = path.with_name(f".{path.name[:200]}.{token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    return draft


# The bytes of blobs: files under one directory, named by their hash (docs/protocol.md section 8).
#
# A file has its name only once it is whole and on the disk: it is written under a draft's name, synced, then renamed.
# Which blobs there are and who may read them stands in the database (`store/views/blob_index.py`).


_DRAFT: Final = "draft-"


class Draft:
    """A blob that is being written; nothing is left of it unless it is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._digest = blake2b()
        self._file = path.open("xb")

    @property
    def hash(self) -> Hash:
        """The hash of what was written so far."""
        return Hash(Flavour.YAMF.value + self._digest.digest())

    def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        try:
            self._file.write(data)
        except OSError as err:
            raise _unavailable(self.path, err) from err
        self._digest.update(data)
        self.size += len(data)

    def sync(self) -> None:
        """Return when everything is on the disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as err:
            raise _unavailable(self.path, err) from err

    def discard(self) -> None:
        """Leave nothing behind; without effect on a draft that was kept."""
        with suppress(OSError):  # a full disk complains again when the buffer is flushed
            self._file.close()
        self.path.unlink(missing_ok=True)


class BlobFiles:
    """The directory of all blobs of a node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path_of(self, content: Hash) -> Path:
        """Where a blob is, if it is here; 256 directories share the files."""
        name = content.hex()
        return self.directory / name[4:6] / name

    def new_draft(self) -> Draft:
        """A file to write a blob to."""
        try:
            make_directory(self.directory)
            return Draft(self.directory / f"{_DRAFT}{token_hex(16)}")
        except OSError as err:
            raise _unavailable(self.directory, err) from err

    def keep(self, draft: Draft) -> None:
        """Give a synced draft the name of its hash; what was there has the same bytes."""
        path = self.path_of(draft.hash)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(exist_ok=True)
                sync_directory(self.directory)
            rename_durably(draft.path, path)
        except OSError as err:
            raise _unavailable(path, err) from err

    def remove(self, content: Hash) -> int:
        """Remove a blob; how many bytes that freed."""
        path = self.path_of(content)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def old_drafts(self, before: int) -> Iterator[Path]:
        """Drafts that nobody has written to since a time in microseconds: their writers died."""
        yield from (path for path in self.directory.glob(f"{_DRAFT}*") if _is_older(path, before))

    def old_blobs(self, before: int) -> Iterator[Hash]:
        """The hashes of the files that were written before a time in microseconds."""
        for path in self.directory.glob("[0-9a-f][0-9a-f]/*"):
            with suppress(ValueError):
                content = bytes.fromhex(path.name)
                if is_hash(content) and _is_older(path, before):
                    yield Hash(content)


def _is_older(path: Path, before: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1000 < before
    except FileNotFoundError:
        return False


def _unavailable(path: Path, err: OSError) -> StoreUnavailable:
    advice = "free some space and try again" if err.errno == errno.ENOSPC else "check the disk and who may write there"
    return StoreUnavailable(f"the blobs in {path.parent} cannot be written ({err.strerror}): {advice}", advice=advice)
