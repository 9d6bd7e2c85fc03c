"""Counts reads of foreign copies in memory and writes them in batches: to read never costs a write.

Rot asks which copies are read more often than others, not for every read: of a busy time a sample tells as much. So
what is written does not grow with what is read. A process that is killed loses what it counted since the last batch.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from threading import Event, Lock, Thread
from typing import Final

from sqlalchemy import Connection, select

from inkgrove.core.errors import StoreError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.store.db import Database, identities, identity_keys, in_lists
from inkgrove.store.rot import add_reads

_SECONDS: Final = 5.0
_MOST: Final = 2_000
"""Once so many different copies were read, nothing more is counted until they are written.

Each goes to a random place of a table: to write 1,000 of them can mean to write 1,000 pages of the file.
"""
_AT_ONCE: Final = 1_000
"""How many are written in a transaction: others can write in between."""

_log = logging.getLogger(__name__)


class ReadCounter:
    """The reads that are not written yet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: Counter[tuple[Hash, PublicKey]] = Counter()
        self._lock = Lock()
        self._closing = Event()
        self._writer: Thread | None = None

    def add(self, read: Iterable[tuple[Hash, PublicKey]]) -> None:
        """Count reads of instances, given with their authors."""
        with self._lock:
            if len(self._counts) < _MOST:
                self._counts.update(read)
            if self._writer is None and self._counts and not self._closing.is_set():
                self._writer = Thread(target=self._write_now_and_then, name="reads", daemon=True)
                self._writer.start()

    def flush(self) -> None:
        """Write what has been counted so far; what is our own is not counted."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        found = list(counts.items())
        for start in range(0, len(found), _AT_ONCE):
            some = dict(found[start : start + _AT_ONCE])
            self._database.write(partial(_write, counts=some))

    def close(self) -> None:
        """Write the rest and stop."""
        self._closing.set()
        if self._writer is not None:
            self._writer.join()
        self.flush()

    def _write_now_and_then(self) -> None:
        while not self._closing.wait(_SECONDS):
            try:
                self.flush()
            except StoreError as error:  # these reads are lost, which does no harm
                _log.warning("reads could not be counted: %s", error.message)


def _write(connection: Connection, counts: Mapping[tuple[Hash, PublicKey], int]) -> None:
    hosted = select(identity_keys.c.author).join_from(
        identity_keys, identities, identities.c.id == identity_keys.c.identity
    )
    own = {
        author
        for some in in_lists({author for _, author in counts})
        for author in connection.scalars(hosted.where(identity_keys.c.author.in_(some)))
    }
    add_reads(connection, {instance: count for (instance, author), count in counts.items() if author not in own})
