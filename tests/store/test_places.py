"""Places are shared out between those who ask, however often each of them does."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inkgrove.store.db import FairSemaphore

LONG = 30.0


class Asking:
    """Threads that ask for a place, and what each got."""

    def __init__(self, places: FairSemaphore) -> None:
        self.places = places
        self.got: dict[str, list[bool]] = {}
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def wait_on_behalf_of(self, who: str) -> None:
        """Return once one more thread waits in the queue, or has been refused."""
        waiting, done = len(self.places._queue), sum(map(len, self.got.values()))

        def work() -> None:
            has_place = self.places.enter(who, LONG)
            if has_place:
                self.order.append(who)
            self.got.setdefault(who, []).append(has_place)

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()
        until(lambda: len(self.places._queue) > waiting or sum(map(len, self.got.values())) > done)

    def served(self, count: int) -> None:
        until(lambda: len(self.order) == count)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(LONG)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


@contextmanager
def asking(places: int, waiting: int) -> Iterator[Asking]:
    found = Asking(FairSemaphore(places, waiting))
    yield found
    while found.places._queue:  # nobody is left behind
        who = next(iter(found.places._taken))
        found.places.leave(who)
    found.end()


def test_nobody_has_all_places() -> None:
    places = FairSemaphore(2, 16)
    assert places.enter("loops", 0)
    assert not places.enter("loops", 0)
    assert places.enter("other", 0)
    assert not places.enter("third", 0)
    places.leave("other")
    assert places.enter("third", 0)


def test_two_of_one_wait_while_others_do_and_half_of_the_queue_if_nobody_else_does() -> None:
    with asking(2, 8) as alone:
        assert alone.places.enter("loops", 0)
        for _ in range(5):
            alone.wait_on_behalf_of("loops")
        assert alone.got == {"loops": [False]}, "four wait"
    with asking(2, 8) as together:
        assert together.places.enter("loops", 0)
        assert together.places.enter("other", 0)
        together.wait_on_behalf_of("third")
        for _ in range(3):
            together.wait_on_behalf_of("loops")
        assert together.got == {"loops": [False]}, "two wait"


def test_who_was_served_longest_ago_comes_first() -> None:
    with asking(2, 16) as found:
        assert found.places.enter("loops", 0)
        assert found.places.enter("loops too", 0)
        for who in ("loops", "loops", "loops too", "loops too", "other"):
            found.wait_on_behalf_of(who)
        found.places.leave("loops")
        found.served(1)
        assert found.order == ["other"], "though it came last"


def test_full_queue_has_room_for_somebody_new() -> None:
    with asking(2, 4) as found:
        assert found.places.enter("first", 0)
        assert found.places.enter("second", 0)
        for who in ("first", "first", "second", "second"):
            found.wait_on_behalf_of(who)
        found.wait_on_behalf_of("new")
        until(lambda: bool(found.got))
        assert found.got == {"second": [False]}, "the last one of those who have most there"
        found.places.leave("first")
        found.served(1)
        assert found.order == ["new"]


def test_who_waits_too_long_leaves_the_queue() -> None:
    places = FairSemaphore(1, 4)
    assert places.enter("one", 0)
    assert not places.enter("other", 0.01)
    places.leave("one")
    assert places.enter("other", 0)
    places.leave("other")
    assert places.enter("one", 0)
