"""Two who write at once, in an order that the test decides; on SQLite the second waits for the first anyway."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from sqlalchemy import Connection

from inkgrove.store.db import Database

_Result = TypeVar("_Result")
_SECONDS = 0.5
"""How long the second has to come to where it waits for the first, or to its end."""


def begin_before_commit(
    database: Database, first: Callable[[Connection], Any], second: Callable[[], _Result]
) -> _Result:
    """What the second gives, which begins when the first has written everything and not committed it yet."""
    with ThreadPoolExecutor(1) as pool:
        with database.writing() as connection:
            first(connection)
            beside = pool.submit(second)
            wait([beside], timeout=_SECONDS)
        return beside.result()


class Meanwhile:
    """Does something in another thread when it is called for the first time: in the midst of somebody else's work."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._pool = ThreadPoolExecutor(1)
        self._is_begun = False
        self._beside: Future[Any] | None = None

    def __call__(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._beside = self._pool.submit(self._work)
            wait([self._beside], timeout=_SECONDS)

    def result(self) -> Any:
        """What came of it; waits for it."""
        assert self._beside is not None, "it was never called"
        self._pool.shutdown()
        return self._beside.result()
