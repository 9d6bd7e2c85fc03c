"""Files that must outlive a power cut: whole and on the disk, with their names, before anybody relies on them.

A file is written under another name, synced, and then given its own; the directory that has the name is synced too. So
there is never half a file under the right name, and no name that is gone after a power cut.
"""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


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
        give_name(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def give_name(draft: Path, path: Path) -> None:
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
