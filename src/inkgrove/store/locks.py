"""Locks that die with their process, however it ends: nothing has to be cleaned up after a crash.

In a directory a lock is a file that is locked with `flock`, which the kernel frees; on PostgreSQL it is an advisory
lock of a session, which the server frees. Who holds which lock for what is said where they are used: `runs`, `turns`,
the home of a node, imports. docs/adr/0007-locks-that-die-with-their-process.md has the reasons.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:  # commands that lock a file load no database
    from sqlalchemy import Connection

# Files


class FileLock:
    """A locked file or directory; held until it is closed or its process ends."""

    def __init__(self, path: Path, *, shared: bool = False, wait: bool = True, create: bool = True) -> None:
        """Wait until the lock is free, or with `wait=False` raise `BlockingIOError` if it is not.

        Many can hold a `shared` lock at once. A file that is not there is made, for its owner alone; with
        `create=False` that raises `FileNotFoundError`.
        """
        # A directory, and a file that one only looks at, cannot be opened for writing.
        flags = os.O_RDWR | os.O_CREAT if create and not path.is_dir() else os.O_RDONLY
        self._file: int | None = os.open(path, flags, 0o600)
        try:
            fcntl.flock(self._file, _how(shared=shared) | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            self.close()
            raise

    def note(self, said: str) -> None:
        """Write something into the file, in place of what it says."""
        assert self._file is not None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, said.encode(), 0)

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
    """The lock of a file or directory, or None if others hold it."""
    try:
        return FileLock(path, shared=shared, wait=False)
    except BlockingIOError:
        return None


def is_locked(path: Path) -> bool:
    """Whether somebody has a file for itself; changes nothing, and a file that is not there is not locked."""
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


# PostgreSQL

_OURS: Final = 0x696E6B67
"""The first half of the key of all our advisory locks of sessions; the other half is the number of the lock."""
_IS_HELD: Final = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def try_advisory_lock(connection: "Connection", number: int) -> bool:
    """Take a lock for the session of a connection; False if another session holds it."""
    return bool(connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s::int, %s::int)", (_OURS, number)).scalar())


def release_advisory_lock(connection: "Connection", number: int) -> None:
    """Let others have a lock that the session of a connection holds."""
    connection.exec_driver_sql("SELECT pg_advisory_unlock(%s::int, %s::int)", (_OURS, number))


def is_advisory_locked(connection: "Connection", number: int) -> bool:
    """Whether some session holds a lock."""
    return bool(connection.exec_driver_sql(_IS_HELD, (_OURS, number)).scalar())
