"""Progress of a job: its tasks count rows, and a thread on the driver reports the count now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

from pyspark import Accumulator

_SECONDS = 0.2


class Progress(NamedTuple):
    """How far a piece of the work has come, in rows."""

    what: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def tell_nobody(_: Progress) -> None:
    """Ignore progress: the default where nothing shows it."""


@contextmanager
def watched(done: "Accumulator[int]", what: str, total: int, on_progress: OnProgress) -> Iterator[None]:
    """Report now and then how many rows the tasks have done; a task's count arrives when the task ends."""
    with telling(lambda: on_progress(Progress(what, min(done.value, total), total))):
        yield
    on_progress(Progress(what, total, total))


@contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """Call a function now and then until the block ends."""
    is_over = Event()

    def watch() -> None:
        while not is_over.wait(_SECONDS):
            tell()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
