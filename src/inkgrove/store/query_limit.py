"""A limit for queries whose cost the caller chooses: filters, sorting, counts, summaries (docs/node.md, limits).

SQLite asks every few hundred steps whether to go on: the processor time of the thread counts, however busy the machine
is. A query that is not cheap needs one of a few places, so that many of them at once leave the processor to others;
whoever asks much does not have all of them (`places.py`).
PostgreSQL works in processes of its own and knows only the clock: it gets ten times as long for each statement.
"""

import sqlite3
import time
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from inkgrove.core.errors import InkgroveError, QueryTooExpensive, TooManyQueries
from inkgrove.store.places import Places

NETWORK: Final = ContextVar("NETWORK", default="")
"""The network that asks, where a request is served."""
_STEPS: Final = 500
"""Few, since a step may read a long text; to ask takes as long as some ten of them."""
_CHEAP_SECONDS: Final = 0.01
"""A query that takes no more needs no place."""
_WAIT_SECONDS: Final = 1.0
_CLOCK_FACTOR: Final = 10
_CANCELED: Final = "57014"
_ADVICE: Final = "filter by an indexed field, use fewer filters, sort by an indexed field or not at all, do not count"


class QueryLimit:
    """How long a query may take, and how many that are not cheap run at once in this process; safe for threads."""

    def __init__(self, seconds: float, *, running: int, waiting: int, advice: str = "") -> None:
        """`seconds` of processor, 0 is no limit; `waiting`: how many may wait a moment for a place."""
        self.seconds = seconds
        self._places = Places(running, waiting)
        self._advice = _ADVICE + advice

    def of(self, who: Hashable) -> "LimitOf":
        """The limit as it holds for somebody: an identity, or the network of a stranger."""
        return LimitOf(self, who)

    @contextmanager
    def on(self, connection: Connection, who: Hashable = None) -> Iterator[None]:
        """Hold what is asked inside to the limit, all of it together; not to be nested on one connection.

        Places are shared out between those who ask. Raises `QueryTooExpensive` or `TooManyQueries`. On PostgreSQL
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
        """Take a place, within a moment; False if there is none."""
        return self._places.enter(who, _WAIT_SECONDS)

    def leave(self, who: Hashable = None) -> None:
        """Give the place back."""
        self._places.leave(who)


@dataclass(frozen=True, slots=True)
class LimitOf:
    """A limit with the one for whom it holds."""

    limit: QueryLimit
    who: Hashable

    def on(self, connection: Connection) -> AbstractContextManager[None]:
        """Hold what is asked inside to the limit; see `QueryLimit.on`."""
        return self.limit.on(connection, self.who)


class _Meter:
    """What SQLite asks whether to stop."""

    def __init__(self, limit: QueryLimit, who: Hashable) -> None:
        self.refusal: InkgroveError | None = None
        self._limit, self._who = limit, who
        self._has_place = False
        self._began = time.thread_time()

    def __call__(self) -> bool:
        used = time.thread_time() - self._began
        if used > self._limit.seconds:
            self.refusal = self._limit.too_expensive()
        elif used > _CHEAP_SECONDS and not self._has_place:
            self._has_place = self._limit.enter(self._who)
            if not self._has_place:
                self.refusal = TooManyQueries("too many expensive queries run at once: try again", retry_after=1)
        return self.refusal is not None

    def end(self) -> None:
        if self._has_place:
            self._limit.leave(self._who)


def _cause(err: Exception) -> BaseException | None:
    return err.orig if isinstance(err, DBAPIError) else err
