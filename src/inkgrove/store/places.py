"""Places for work that few may do at a time, fair to those on whose behalf it is done; for threads.

Nobody has all the places, so that somebody else finds one soon. Of those who wait, whoever was served longest ago comes
first.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Final

_WAITING_BESIDE_OTHERS: Final = 2
_SERVED_KEPT: Final = 1000


@dataclass(slots=True, eq=False)
class _Waiting:
    who: Hashable
    has_place: bool = False
    is_over: Event = field(default_factory=Event)


class Places:
    """So many places, and a queue before them; safe for threads."""

    def __init__(self, places: int, waiting: int) -> None:
        """Of the places nobody has all, if there are several; alone one has half of the queue, beside others two."""
        self._places, self._waiting = places, waiting
        self._of_one = max(1, places - 1)
        self._lock = Lock()
        self._taken: Counter[Hashable] = Counter()
        self._queue: list[_Waiting] = []
        self._served: dict[Hashable, int] = {}
        self._turns = 0

    def enter(self, who: Hashable, seconds: float) -> bool:
        """Take a place on behalf of somebody, within so many seconds; False if there is none."""
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
            return mine.has_place

    def leave(self, who: Hashable) -> None:
        """Give a place back: to the one of those who wait that was served longest ago."""
        with self._lock:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]
            fit = [item for item in self._queue if self._may_take(item.who)]
            if fit:
                chosen = min(fit, key=lambda item: (self._taken[item.who], self._served.get(item.who, -1)))
                self._queue.remove(chosen)
                self._take(chosen.who)
                chosen.has_place = True
                chosen.is_over.set()

    def _may_take(self, who: Hashable) -> bool:
        return self._taken.total() < self._places and self._taken[who] < self._of_one

    def _take(self, who: Hashable) -> None:
        self._taken[who] += 1
        self._turns += 1
        self._served.pop(who, None)
        self._served[who] = self._turns
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
