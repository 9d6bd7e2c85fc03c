"""Living pipelines: each owns its stages, and only one at a time does each kind of work on the views.

A run holds locks that end with its process however it ends: on SQLite locked files beside the views, on PostgreSQL
advisory locks of a session. So nothing has to be cleaned up after a crash, and nobody mistakes the living for dead.
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
from inkgrove.store.locks import (
    FileLock,
    is_advisory_locked,
    is_locked,
    release_advisory_lock,
    try_advisory_lock,
    try_file_lock,
)

_LOWEST_NUMBER: Final = 16
"""Below are the numbers of kinds of work; a run and a kind of work never have the same advisory lock."""


class ExclusiveWork(IntEnum):
    """What only one process at a time may do."""

    STREAM = 1
    REBUILD = 2
    ROT = 3


_MEANING: Final = {
    ExclusiveWork.STREAM: "keeps these views up to date",
    ExclusiveWork.REBUILD: "rebuilds a view of this store",
    ExclusiveWork.ROT: "lets copies of this store rot",
}


class PipelineRun(Protocol):
    """A living pipeline."""

    number: int

    def begin(self, work: ExclusiveWork) -> None:
        """Begin a kind of work, or go on with it; raises `AlreadyRunning` if another process does it."""

    def end(self, work: ExclusiveWork) -> None:
        """Let others begin it."""

    def check(self) -> None:
        """Make sure that the locks are held; a server that was restarted has forgotten them."""

    def is_dead(self, number: int) -> bool:
        """Whether the run of that number has ended."""

    def close(self) -> None:
        """End the run and all its work."""


def start_pipeline_run(database: Database) -> PipelineRun:
    """A new run on the views of a database."""
    number = secrets.randbelow(2**31 - _LOWEST_NUMBER) + _LOWEST_NUMBER
    if database.is_postgresql:
        return _PostgresRun(database, number)
    return _FileRun(Path(database.url.database or "").parent, number)


def is_work_running(database: Database, work: ExclusiveWork) -> bool:
    """Whether some process does a kind of work now."""
    if database.is_postgresql:
        return database.read(lambda connection: is_advisory_locked(connection, int(work)))
    return is_locked(_work_path(Path(database.url.database or "").parent, work))


def _work_path(folder: Path, work: ExclusiveWork) -> Path:
    return folder / f"inkgrove_{work.name.lower()}.lock"


def is_any_run_alive(folder: Path) -> bool:
    """Whether a run on the views in a directory lives; SQLite only."""
    return any(is_locked(path) for path in folder.glob("inkgrove_run_*.lock"))


@contextmanager
def hold_work_lock(run: PipelineRun, work: ExclusiveWork) -> Iterator[None]:
    """Do a kind of work that no other process does meanwhile."""
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
                time.sleep(0.05)  # it may be held for an instant by one who only looks (`is_work_running`)
                lock = try_file_lock(path)
            holder = "" if lock is not None else path.read_text().strip()
        except OSError as err:
            raise _not_writable(self._folder, err) from err
        if lock is None:
            raise _already_running(work, f"process {holder}" if holder else "another process")
        with suppress(OSError):  # a full disk does not make the lock less good
            lock.note(str(os.getpid()))
        self._works[work] = lock

    def end(self, work: ExclusiveWork) -> None:
        if lock := self._works.pop(work, None):
            lock.close()

    def check(self) -> None:
        """Locked files stay locked."""

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
            if not try_advisory_lock(connection, self.number):
                connection.close()
                raise StoreUnavailable("another process works under this run's number: try again", advice="try again")
        return connection

    def begin(self, work: ExclusiveWork) -> None:
        if work in self._works:
            return
        with self._database.translated():
            if not try_advisory_lock(self._connection, int(work)):
                raise _already_running(work, "another process")
        self._works.add(work)

    def end(self, work: ExclusiveWork) -> None:
        if work in self._works:
            self._works.discard(work)
            with self._database.translated():
                release_advisory_lock(self._connection, int(work))

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
            is_free = try_advisory_lock(self._connection, number)
            if is_free:
                release_advisory_lock(self._connection, number)
        return is_free

    def close(self) -> None:
        # By hand: the server may take a moment to notice that a session has ended.
        with suppress(DBAPIError):
            self._connection.execute(select(func.pg_advisory_unlock_all()))
        self._connection.invalidate()
        self._connection.close()


# Pipelines beside each other on one store: whose turn it is to change the views.
#
# On SQLite a turn is a lock on a file beside the views, on PostgreSQL an advisory lock. Both end with the process
# that
# holds them, so a crash leaves nothing to clear away.


@contextmanager
def hold_merge_lock(database: Database) -> Iterator[None]:
    """While it lasts no other pipeline merges into the views or swaps one; readers do not notice."""
    if database.is_postgresql:
        with database.writing() as connection:
            lock_name(connection, b"inkgrove turn")
            yield
        return
    with FileLock(Path(database.url.database or "").with_name("inkgrove_pipeline_turn.lock")):
        yield


def hold_write_lock(database: Database) -> AbstractContextManager[None]:
    """For a long write that others need not see.

    SQLite has one writer, and who waits for it gives up after a while, whereas turns are waited for; PostgreSQL needs
    none.
    """
    return nullcontext() if database.is_postgresql else hold_merge_lock(database)
