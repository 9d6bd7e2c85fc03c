"""Buffers of writes in memory, written in batches, so that reading never costs a write.

`AccessLog` holds the accesses of services; those of a request count once it is answered. A batch is written when it is
full, about a second after its first access, before the log is read, and when the node closes. `ReadCounter` counts
reads of foreign copies, for rot. `SessionUses` holds when sign-ins were used. A process that is killed loses what is
not written yet.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from functools import partial
from threading import Condition, Event, Lock, Thread
from typing import Final, Self

from inkgrove.core import Hash, PublicKey
from inkgrove.core.errors import StoreError
from inkgrove.store.db import Connection, Database
from inkgrove.store.node import ServiceAccess, add_accesses, keep_hosted_authors, record_session_uses
from inkgrove.store.rot import add_reads

_BATCH: Final = 1000
_SECONDS: Final = 1.0
_KEPT: Final = 100_000
"""How many are kept in memory while the database cannot be written."""

_log = logging.getLogger(__name__)


class RequestAccesses:
    """The accesses of one request, each once; they count from the moment that it is confirmed."""

    def __init__(self, log: "AccessLog") -> None:
        self._log = log
        self._waiting: dict[tuple[object, ...], ServiceAccess] = {}
        self._is_confirmed = False
        self._before: Token[RequestAccesses | None] | None = None

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


_uses: ContextVar[RequestAccesses | None] = ContextVar("uses", default=None)


class AccessLog:
    """The accesses that are not written yet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[ServiceAccess] = []
        self._changed = Condition()
        self._writer: Thread | None = None
        self._is_closed = False

    def begin_request(self) -> RequestAccesses:
        """Whatever is noted inside waits to be confirmed, in this thread and in those that work for it."""
        return RequestAccesses(self)

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


# Rot compares how often copies are read: a sample is enough, so what is written does not grow with what is read.

_COUNT_SECONDS: Final = 5.0
_MOST: Final = 2_000
"""Once so many different copies were read, nothing more is counted until they are written.

Each is a random row of a table: to write 1,000 of them can mean to write 1,000 pages of the file.
"""
_AT_ONCE: Final = 1_000
"""How many are written in a transaction: others can write in between."""


class _PeriodicWriter:
    """A thread that calls `flush` every few seconds, from the first call of `_wake` until `close`."""

    name: str
    """Of the thread, and in the log where a write fails: what was to be written is lost then, which does no harm."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._closing = Event()
        self._writer: Thread | None = None

    def flush(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write the rest and stop."""
        self._closing.set()
        if self._writer is not None:
            self._writer.join()
        self.flush()

    def _wake(self) -> None:
        """Start the thread unless it runs; the caller has the lock."""
        if self._writer is None and not self._closing.is_set():
            self._writer = Thread(target=self._write_now_and_then, name=self.name, daemon=True)
            self._writer.start()

    def _write_now_and_then(self) -> None:
        while not self._closing.wait(_COUNT_SECONDS):
            try:
                self.flush()
            except StoreError as error:
                _log.warning("%s could not be written: %s", self.name, error.message)


class ReadCounter(_PeriodicWriter):
    """The reads that are not written yet."""

    name = "reads"

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._counts: Counter[tuple[Hash, PublicKey]] = Counter()

    def add(self, read: Iterable[tuple[Hash, PublicKey]]) -> None:
        """Count reads of instances, given with their authors."""
        with self._lock:
            if len(self._counts) < _MOST:
                self._counts.update(read)
            if self._counts:
                self._wake()

    def flush(self) -> None:
        """Write what has been counted so far; what is our own is not counted."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        found = list(counts.items())
        for start in range(0, len(found), _AT_ONCE):
            some = dict(found[start : start + _AT_ONCE])
            self._database.write(partial(_write, counts=some))


def _write(connection: Connection, counts: Mapping[tuple[Hash, PublicKey], int]) -> None:
    own = keep_hosted_authors(connection, {author for _, author in counts})
    add_reads(connection, {instance: count for (instance, author), count in counts.items() if author not in own})


class SessionUses(_PeriodicWriter):
    """When sign-ins were last used, as far as it is not written yet."""

    name = "uses of sign-ins"

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._uses: dict[bytes, int] = {}

    def add(self, token: bytes, now: int) -> None:
        """Note that a sign-in is used, by the hash of its token."""
        with self._lock:
            if len(self._uses) < _KEPT:
                self._uses[token] = now
            self._wake()

    def flush(self) -> None:
        """Write what has been noted so far."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            self._database.write(partial(record_session_uses, uses=uses))
