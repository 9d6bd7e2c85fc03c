"""Collects accesses in memory and writes them in batches: a service's reading never costs a write.

What was refused was not done: the accesses of a request wait until it is known that it will be answered.

A batch is written when it is full, about a second after its first access, before somebody reads the record, and when
the node closes. A process that is killed loses at most the last second of the record.
"""

import logging
from contextvars import ContextVar, Token
from threading import Condition, Thread
from typing import Final, Self

from inkgrove.core.errors import StoreError
from inkgrove.store.db import Database
from inkgrove.store.node import ServiceAccess, add_accesses

_BATCH: Final = 1000
_SECONDS: Final = 1.0
_KEPT: Final = 100_000
"""How many are kept in memory while the database cannot be written."""

_log = logging.getLogger(__name__)


class Uses:
    """The accesses of one request, each once; they count from the moment that it is confirmed."""

    def __init__(self, log: "AccessLog") -> None:
        self._log = log
        self._waiting: dict[tuple[object, ...], ServiceAccess] = {}
        self._is_confirmed = False
        self._before: Token[Uses | None] | None = None

    def __enter__(self) -> Self:
        self._before = _uses.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _uses.reset(self._before)

    def add(self, access: ServiceAccess) -> None:
        """Note an access."""
        if self._is_confirmed:  # a stream goes on after its answer has begun
            self._log.write(access)
        else:
            self._waiting.setdefault((access.grant, access.action, access.schema, access.instance), access)

    def confirm(self) -> None:
        """What was noted has been done."""
        self._is_confirmed = True
        for access in self._waiting.values():
            self._log.write(access)
        self._waiting.clear()


_uses: ContextVar[Uses | None] = ContextVar("uses", default=None)


class AccessLog:
    """The accesses that are not written yet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[ServiceAccess] = []
        self._changed = Condition()
        self._writer: Thread | None = None
        self._is_closed = False

    def request(self) -> Uses:
        """Whatever is noted inside waits to be confirmed, in this thread and in those that work for it."""
        return Uses(self)

    def add(self, access: ServiceAccess) -> None:
        """Note an access of the request under way, if there is one."""
        uses = _uses.get()
        if uses is None:
            self.write(access)
        else:
            uses.add(access)

    def write(self, access: ServiceAccess) -> None:
        """Keep an access; it is written soon."""
        with self._changed:
            if len(self._waiting) >= _KEPT:
                _log.error("the record of accesses cannot be written: %d are lost", len(self._waiting))
                self._waiting.clear()
            self._waiting.append(access)
            if self._writer is None and not self._is_closed:
                self._writer = Thread(target=self._write_now_and_then, name="accesses", daemon=True)
                self._writer.start()
            if len(self._waiting) in (1, _BATCH):
                self._changed.notify()

    def flush(self) -> None:
        """Write what has been noted so far."""
        with self._changed:
            batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            self._database.write(lambda connection: add_accesses(connection, batch))
        except StoreError:
            with self._changed:
                self._waiting = batch + self._waiting
            raise

    def close(self) -> None:
        """Write the rest and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._writer is not None:
            self._writer.join()
        self.flush()

    def _write_now_and_then(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                self._changed.wait_for(lambda: len(self._waiting) >= _BATCH or self._is_closed, timeout=_SECONDS)
                if self._is_closed:
                    return
            try:
                self.flush()
            except StoreError as error:
                _log.warning("the record of accesses waits: %s", error.message)
