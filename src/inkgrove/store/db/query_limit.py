"""A limit for queries whose cost the caller chooses: filters, sorting, counts, summaries (docs/node.md, limits).

SQLite asks every few hundred steps whether to go on: the processor time of the thread counts, however busy the machine
is. A query that is not cheap needs one of a few slots, so that many of them at once leave the processor to others, and
no caller has all slots. PostgreSQL works in processes of its own and knows only the clock: it gets ten times as long
for each statement.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from inkgrove.core.errors import InkgroveError, QueryTooExpensive, TooManyQueries

_WAITING_BESIDE_OTHERS: Final = 2
_SERVED_KEPT: Final = 1000


@dataclass(slots=True, eq=False)
class _Waiting:
    who: Hashable
    has_slot: bool = False
    is_over: Event = field(default_factory=Event)


class FairSemaphore:
    """A limited number of slots with a queue, fair to those on whose behalf they are taken; safe for threads.

    Of those who wait, the one who was served longest ago comes first.
    """

    def __init__(self, slots: int, waiting: int) -> None:
        """If there are several slots, nobody has all; alone one has half of the queue, beside others two in it."""
        self._slots, self._waiting = slots, waiting
        self._of_one = max(1, slots - 1)
        self._lock = Lock()
        self._taken: Counter[Hashable] = Counter()
        self._queue: list[_Waiting] = []
        self._served: dict[Hashable, int] = {}
        self._count = 0

    def enter(self, who: Hashable, seconds: float) -> bool:
        """Take a slot on behalf of somebody, within so many seconds; False if there is none."""
        mine = _Waiting(who)
        with self._lock:
            if self._may_take(who):  # whoever waits has as many as anybody may have
                self._take(who)
                return True
            if not self._make_room(who):
                return False
            self._queue.append(mine)
        mine.is_over.wait(seconds)
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
            return mine.has_slot

    def leave(self, who: Hashable) -> None:
        """Give a slot back: to the one of those who wait that was served longest ago."""
        with self._lock:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]
            fit = [item for item in self._queue if self._may_take(item.who)]
            if fit:
                chosen = min(fit, key=lambda item: (self._taken[item.who], self._served.get(item.who, -1)))
                self._queue.remove(chosen)
                self._take(chosen.who)
                chosen.has_slot = True
                chosen.is_over.set()

    def _may_take(self, who: Hashable) -> bool:
        return self._taken.total() < self._slots and self._taken[who] < self._of_one

    def _take(self, who: Hashable) -> None:
        self._taken[who] += 1
        self._count += 1
        self._served.pop(who, None)
        self._served[who] = self._count
        if len(self._served) > _SERVED_KEPT:
            del self._served[next(iter(self._served))]

    def _make_room(self, who: Hashable) -> bool:
        """Whether one more may wait on behalf of somebody; the last of whoever has most in a full queue goes for it."""
        waiting = Counter(item.who for item in self._queue)
        others = len(self._queue) - waiting[who]
        if waiting[who] >= (_WAITING_BESIDE_OTHERS if others else max(1, self._waiting // 2)):
            return False
        if len(self._queue) < self._waiting:
            return True
        most = max(waiting.values(), default=0)
        if waiting[who] + 1 >= most:
            return False
        last = next(item for item in reversed(self._queue) if waiting[item.who] == most)
        self._queue.remove(last)
        last.is_over.set()
        return True


NETWORK: Final = ContextVar("NETWORK", default="")
"""The network that asks, where a request is served."""
_STEPS: Final = 500
"""Few, since a step may read a long text; to ask takes as long as some ten of them."""
_CHEAP_SECONDS: Final = 0.01
"""A query that takes no more needs no slot."""
_WAIT_SECONDS: Final = 1.0
_CLOCK_FACTOR: Final = 10
_CANCELED: Final = "57014"
_ADVICE: Final = "filter by an indexed field, use fewer filters, sort by an indexed field or not at all, do not count"


class QueryLimit:
    """How long a query may take, and how many that are not cheap run at once in this process; safe for threads."""

    def __init__(self, seconds: float, *, running: int, waiting: int, advice: str = "") -> None:
        """`seconds` of processor, 0 is no limit; `waiting`: how many may wait a moment for a slot."""
        self.seconds = seconds
        self._slots = FairSemaphore(running, waiting)
        self._advice = _ADVICE + advice

    def of(self, who: Hashable) -> "LimitOf":
        """The limit as it holds for somebody: an identity, or the network of a stranger."""
        return LimitOf(self, who)

    @contextmanager
    def on(self, connection: Connection, who: Hashable = None) -> Iterator[None]:
        """Hold what is asked inside to the limit, all of it together; not to be nested on one connection.

        Slots are shared out between those who ask. Raises `QueryTooExpensive` or `TooManyQueries`. On PostgreSQL
        nothing can be asked in the transaction then, and the limit stays until its end.
        """
        if not self.seconds:
            yield
        elif connection.dialect.name == "postgresql":
            with self._on_postgresql(connection):
                yield
        else:
            with self._on_sqlite(connection, who):
                yield

    @contextmanager
    def _on_postgresql(self, connection: Connection) -> Iterator[None]:
        milliseconds = max(1, round(self.seconds * _CLOCK_FACTOR * 1000))
        if not connection.in_transaction():
            connection.begin()
        driver: Any = connection.connection.driver_connection
        driver.execute(f"SET LOCAL statement_timeout = {milliseconds}")
        try:
            yield
        except Exception as err:
            if getattr(_cause(err), "sqlstate", None) != _CANCELED:
                raise
            raise self.too_expensive() from err

    @contextmanager
    def _on_sqlite(self, connection: Connection, who: Hashable) -> Iterator[None]:
        driver: Any = connection.connection.driver_connection
        meter = _Meter(self, who)
        driver.set_progress_handler(meter, _STEPS)
        try:
            yield
        except Exception as err:
            if getattr(_cause(err), "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT or meter.refusal is None:
                raise
            raise meter.refusal from err
        finally:
            driver.set_progress_handler(None, 0)
            meter.end()

    def too_expensive(self) -> QueryTooExpensive:
        """The refusal of a query that has used up its time."""
        return QueryTooExpensive(f"this takes more than {self.seconds:g} s of processor: {self._advice}")

    def enter(self, who: Hashable = None) -> bool:
        """Take a slot, within a moment; False if there is none."""
        return self._slots.enter(who, _WAIT_SECONDS)

    def leave(self, who: Hashable = None) -> None:
        """Give the slot back."""
        self._slots.leave(who)


@dataclass(frozen=True, slots=True)
class LimitOf:
    """A limit with the one for whom it holds."""

    limit: QueryLimit
    who: Hashable

    def on(self, connection: Connection) -> AbstractContextManager[None]:
        """Hold what is asked inside to the limit; see `QueryLimit.on`."""
        return self.limit.on(connection, self.who)


class _Meter:
    """The progress handler that SQLite calls to ask whether to stop."""

    def __init__(self, limit: QueryLimit, who: Hashable) -> None:
        self.refusal: InkgroveError | None = None
        self._limit, self._who = limit, who
        self._has_slot = False
        self._began = time.thread_time()

    def __call__(self) -> bool:
        used = time.thread_time() - self._began
        if used > self._limit.seconds:
            self.refusal = self._limit.too_expensive()
        elif used > _CHEAP_SECONDS and not self._has_slot:
            self._has_slot = self._limit.enter(self._who)
            if not self._has_slot:
                self.refusal = TooManyQueries("too many expensive queries run at once: try again", retry_after=1)
        return self.refusal is not None

    def end(self) -> None:
        if self._has_slot:
            self._limit.leave(self._who)


def _cause(err: Exception) -> BaseException | None:
    return err.orig if isinstance(err, DBAPIError) else err
