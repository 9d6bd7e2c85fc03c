"""Pipelines beside each other on one store: whose turn it is to change the views.

On SQLite a turn is a lock on a file beside the views, on PostgreSQL an advisory lock. Both end with the process that
holds them, so a crash leaves nothing to clear away.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from inkgrove.store.database import Database, lock_name
from inkgrove.store.locks import FileLock


@contextmanager
def turn(database: Database) -> Iterator[None]:
    """While it lasts no other pipeline merges into the views or swaps one; readers do not notice."""
    if database.is_postgresql:
        with database.writing() as connection:
            lock_name(connection, b"inkgrove turn")
            yield
        return
    with FileLock(Path(database.url.database or "").with_name("inkgrove_pipeline_turn.lock")):
        yield


def turn_to_write(database: Database) -> AbstractContextManager[None]:
    """For a long write that others need not see.

    SQLite has one writer, and who waits for it gives up after a while, whereas turns are waited for; PostgreSQL needs
    none.
    """
    return nullcontext() if database.is_postgresql else turn(database)
