"""Locks of pipelines that work on one store: runs, exclusive kinds of work, and merging into the views.

A run is a living pipeline process and owns its stages. Its locks end with the process, however it ends: on SQLite
locked files beside the views, on PostgreSQL advisory locks of a session. So a crash leaves nothing to clean up, and no
living run is mistaken for a dead one. docs/adr/0007-locks-that-die-with-their-process.md has the reasons.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import IntEnum
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from inkgrove.core.errors import AlreadyRunning, StoreUnavailable
from inkgrove.store.db.connection import Database, lock_name
from inkgrove.store.locks import FileLock, is_locked, try_file_lock

_LOWEST_NUMBER: Final = 16
"""Below are the numbers of kinds of work; a run and a kind of work never have the same advisory lock."""
_LOCK_CLASS: Final = 0x696E6B67
"""The first half of the key of all our advisory locks of sessions; the other half is the number of the lock."""
_IS_LOCKED: Final = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class ExclusiveWork(IntEnum):
    """A kind of work that only one process at a time may do."""

    STREAM = 1
    REBUILD = 2
    ROT = 3


_MEANING: Final = {
    ExclusiveWork.STREAM: "keeps these views up to date",
    ExclusiveWork.REBUILD: "rebuilds a view of this store",
    ExclusiveWork.ROT: "lets copies of this store rot",
}


class PipelineRun(Protocol):
    """A living pipeline process, with its number and its locks."""

    number: int

    def begin(self, work: ExclusiveWork) -> None:
        """Lock a kind of work, unless this run has it already; raises `AlreadyRunning` if another process does it."""

    def end(self, work: ExclusiveWork) -> None:
        """Release a kind of work."""

    def check(self) -> None:
        """Take the locks again if they were lost: a database server that was restarted has forgotten them."""

    def is_dead(self, number: int) -> bool:
        """Whether the run of that number has ended."""

    def close(self) -> None:
        """Release all locks of the run."""


def start_pipeline_run(database: Database) -> PipelineRun:
    """Begin a run on the views of a database; raises `StoreUnavailable` if its locks cannot be made."""
    number = secrets.randbelow(2**31 - _LOWEST_NUMBER) + _LOWEST_NUMBER
    if database.is_postgresql:
        return _PostgresRun(database, number)
    return _FileRun(Path(database.url.database or "").parent, number)


def is_work_running(database: Database, work: ExclusiveWork) -> bool:
    """Whether some process holds the lock of a kind of work."""
    if database.is_postgresql:
        return database.read(lambda connection: _is_advisory_locked(connection, int(work)))
    return is_locked(_work_path(Path(database.url.database or "").parent, work))


def _work_path(folder: Path, work: ExclusiveWork) -> Path:
    return folder / f"inkgrove_{work.name.lower()}.lock"


def is_any_run_alive(folder: Path) -> bool:
    """Whether any run on the views in a directory is alive; SQLite only."""
    return any(is_locked(path) for path in folder.glob("inkgrove_run_*.lock"))


@contextmanager
def hold_work_lock(run: PipelineRun, work: ExclusiveWork) -> Iterator[None]:
    """Hold the lock of a kind of work; raises `AlreadyRunning` if another process holds it."""
    run.begin(work)
    try:
        yield
    finally:
        run.end(work)


def _already_running(work: ExclusiveWork, who: str) -> AlreadyRunning:
    return AlreadyRunning(f"{who} already {_MEANING[work]}: wait for it, or end it first", work=work.name.lower())


class _FileRun:
    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self._folder = folder
        self._works: dict[ExclusiveWork, FileLock] = {}
        try:
            # Locked before it has its name: a file that can be found is locked as long as its run lives.
            nameless = folder / f"inkgrove_run_{number}.new"
            self._life = FileLock(nameless)
            nameless.rename(self._path(number))
        except OSError as err:
            raise _not_writable(folder, err) from err

    def _path(self, number: int) -> Path:
        return self._folder / f"inkgrove_run_{number}.lock"

    def begin(self, work: ExclusiveWork) -> None:
        if work in self._works:
            return
        path = _work_path(self._folder, work)
        try:
            lock = try_file_lock(path)
            if lock is None:
                time.sleep(0.05)  # `is_work_running` of another process holds it for an instant
                lock = try_file_lock(path)
            holder = "" if lock is not None else path.read_text().strip()
        except OSError as err:
            raise _not_writable(self._folder, err) from err
        if lock is None:
            raise _already_running(work, f"process {holder}" if holder else "another process")
        with suppress(OSError):  # the lock holds even if the disk is full
            lock.write(str(os.getpid()))
        self._works[work] = lock

    def end(self, work: ExclusiveWork) -> None:
        if lock := self._works.pop(work, None):
            lock.close()

    def check(self) -> None:
        """Do nothing: locked files stay locked."""

    def is_dead(self, number: int) -> bool:
        if number == self.number:
            return False
        try:
            with FileLock(self._path(number), wait=False, create=False):
                self._path(number).unlink(missing_ok=True)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        for work in list(self._works):
            self.end(work)
        self._path(self.number).unlink(missing_ok=True)
        self._life.close()


def _not_writable(folder: Path, err: OSError) -> StoreUnavailable:
    advice = "check that it may be written and has space"
    return StoreUnavailable(
        f"the directory {folder} cannot be used ({err.strerror or err}): {advice}", advice=advice, where=str(folder)
    )


class _PostgresRun:
    def __init__(self, database: Database, number: int) -> None:
        self.number = number
        self._database = database
        self._works: set[ExclusiveWork] = set()
        self._connection: Connection = self._connect()

    def _connect(self) -> Connection:
        with self._database.translated():
            connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if not _try_advisory_lock(connection, self.number):
                connection.close()
                raise StoreUnavailable("another process works under this run's number: try again", advice="try again")
        return connection

    def begin(self, work: ExclusiveWork) -> None:
        if work in self._works:
            return
        with self._database.translated():
            if not _try_advisory_lock(self._connection, int(work)):
                raise _already_running(work, "another process")
        self._works.add(work)

    def end(self, work: ExclusiveWork) -> None:
        if work in self._works:
            self._works.discard(work)
            with self._database.translated():
                _release_advisory_lock(self._connection, int(work))

    def check(self) -> None:
        try:
            self._connection.execute(select(1))
        except DBAPIError:
            self._connection.invalidate()
            self._connection.close()
            self._connection = self._connect()
            works, self._works = self._works, set()
            for work in works:
                self.begin(work)

    def is_dead(self, number: int) -> bool:
        if number == self.number:
            return False
        with self._database.translated():
            is_free = _try_advisory_lock(self._connection, number)
            if is_free:
                _release_advisory_lock(self._connection, number)
        return is_free

    def close(self) -> None:
        # By hand: the server may take a moment to notice that a session has ended.
        with suppress(DBAPIError):
            self._connection.execute(select(func.pg_advisory_unlock_all()))
        self._connection.invalidate()
        self._connection.close()


def _try_advisory_lock(connection: Connection, number: int) -> bool:
    """Take a lock for the session of a connection; False if another session holds it."""
    query = "SELECT pg_try_advisory_lock(%s::int, %s::int)"
    return bool(connection.exec_driver_sql(query, (_LOCK_CLASS, number)).scalar())


def _release_advisory_lock(connection: Connection, number: int) -> None:
    """Let others have a lock that the session of a connection holds."""
    connection.exec_driver_sql("SELECT pg_advisory_unlock(%s::int, %s::int)", (_LOCK_CLASS, number))


def _is_advisory_locked(connection: Connection, number: int) -> bool:
    """Whether some session holds a lock."""
    return bool(connection.exec_driver_sql(_IS_LOCKED, (_LOCK_CLASS, number)).scalar())


@contextmanager
def hold_merge_lock(database: Database) -> Iterator[None]:
    """Hold the lock for merging into the views or swapping one: an advisory lock, or a locked file beside the views.

    Waits until no other pipeline holds it. Readers do not wait for it.
    """
    if database.is_postgresql:
        with database.writing() as connection:
            lock_name(connection, b"inkgrove turn")
            yield
        return
    with FileLock(Path(database.url.database or "").with_name("inkgrove_pipeline_turn.lock")):
        yield


def hold_write_lock(database: Database) -> AbstractContextManager[None]:
    """Hold the lock for a long write to a table that no view shows yet.

    SQLite has one writer and transactions that wait for it time out, but the merge lock is waited for; PostgreSQL
    needs no lock.
    """
    return nullcontext() if database.is_postgresql else hold_merge_lock(database)
