"""Pipelines beside each other on one store: whose turn it is to change the views.

On SQLite a turn is a lock on a file beside the views, on PostgreSQL an advisory lock. Both end with the process that
holds them, so a crash leaves nothing to clear away.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from inkgrove.store.database import Database, lock_name

_TURN: Final = "turn"


@contextmanager
def turn(database: Database) -> Iterator[None]:
    """While it lasts no other pipeline merges into the views or swaps one; readers do not notice."""
    if database.is_postgresql:
        with database.writing() as connection:
            lock_name(connection, f"inkgrove {_TURN}".encode())
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
