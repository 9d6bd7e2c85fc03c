"""Pipelines beside each other on one store: who is alive, and whose turn it is to change the views.

On SQLite these are locks on files beside the views, on PostgreSQL advisory locks. Both end with the process that holds
them, so a crash leaves nothing to clear away.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, func, select

from inkgrove.store.database import Database

_TURN: Final = "turn"


class Owner:
    """A running pipeline: what bears its name is not to be swept away while it lives."""

    def __init__(self, database: Database) -> None:
        self.name = uuid.uuid4().hex[:12]
        self._file: int | None = None
        self._connection: Connection | None = None
        if database.is_postgresql:
            self._connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._connection.execute(select(func.pg_advisory_lock(_key(self.name))))
        else:
            self._path = _path(database, self.name)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def leave(self) -> None:
        """The pipeline ends."""
        if self._connection is not None:
            # The lock belongs to the session: it goes with the connection.
            self._connection.invalidate()
            self._connection.close()
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)


def is_alive(database: Database, owner: str) -> bool:
    """Whether a pipeline of this name runs."""
    if database.is_postgresql:
        with database.writing() as connection:
            return not connection.scalar(select(func.pg_try_advisory_xact_lock(_key(owner))))
    path = _path(database, owner)
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(file)


@contextmanager
def turn(database: Database) -> Iterator[None]:
    """While it lasts no other pipeline merges into the views or swaps one; readers do not notice."""
    if database.is_postgresql:
        with database.writing() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_key(_TURN))))
            yield
        return
    file = os.open(_path(database, _TURN), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def turn_to_write(database: Database) -> AbstractContextManager[None]:
    """For a long write that others need not see.

    SQLite has one writer, and who waits for it gives up after a while, whereas turns are waited for; PostgreSQL needs
    none.
    """
    return nullcontext() if database.is_postgresql else turn(database)


def _path(database: Database, name: str) -> Path:
    return Path(database.url.database or "").with_name(f"inkgrove_pipeline_{name}.lock")


def _key(name: str) -> int:
    """The number that PostgreSQL knows a lock by."""
    return int.from_bytes(blake2b(f"inkgrove {name}".encode(), digest_size=8).digest(), "big", signed=True)
