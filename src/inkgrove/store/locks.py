"""File locks that die with their process, however it ends: nothing has to be cleaned up after a crash.

A lock is a file or directory that is locked with `flock`, which the kernel frees. Nothing else calls `flock`, and
nothing here needs a database. docs/adr/0007-locks-that-die-with-their-process.md has the reasons.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class FileLock:
    """A locked file or directory; held until it is closed or its process ends."""

    def __init__(self, path: Path, *, shared: bool = False, wait: bool = True, create: bool = True) -> None:
        """Wait until the lock is free, or with `wait=False` raise `BlockingIOError` if it is not.

        Many can hold a `shared` lock at once. A file that is not there is made, for its owner alone; with
        `create=False` that raises `FileNotFoundError`.
        """
        # A directory cannot be opened for writing, and a file may be read-only.
        flags = os.O_RDWR | os.O_CREAT if create and not path.is_dir() else os.O_RDONLY
        self._file: int | None = os.open(path, flags, 0o600)
        try:
            fcntl.flock(self._file, _how(shared=shared) | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            self.close()
            raise

    def write(self, text: str) -> None:
        """Replace the content of the locked file."""
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(), 0)

    def close(self) -> None:
        """Let others have the lock; the file stays."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def try_file_lock(path: Path, *, shared: bool = False) -> FileLock | None:
    """Lock a file or directory without waiting; None if somebody else holds it."""
    try:
        return FileLock(path, shared=shared, wait=False)
    except BlockingIOError:
        return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds a file exclusively; changes nothing, and a file that is not there is not locked."""
    try:
        FileLock(path, shared=True, wait=False, create=False).close()
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def locked_file(file: int, *, shared: bool = False) -> Iterator[None]:
    """Lock a file that is open already, for as long as the `with` lasts."""
    fcntl.flock(file, _how(shared=shared))
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _how(*, shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX
