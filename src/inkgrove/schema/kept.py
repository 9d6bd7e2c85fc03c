"""Things that can be made again, kept while there is room: their bytes are bounded, not their number."""

from collections.abc import Callable, Hashable
from random import Random
from threading import Lock
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Kept(Generic[_Key, _Value]):
    """What `make` made, as long as everything together has at most so many bytes; used by any thread.

    When there is no room for a new one, others go that are chosen at random. If the one that was not used for longest
    went, then whoever uses a few more in turns than there is room for would never find one; so most are still found.
    """

    def __init__(
        self, make: Callable[[_Key], tuple[_Value, int]], most_bytes: int, random: Random | None = None
    ) -> None:
        """`make` also says how many bytes the value takes at most."""
        self._make = make
        self._most_bytes = most_bytes
        self._random = random or Random()  # noqa: S311  (nothing is secret here)
        self._values: dict[_Key, _Value] = {}
        self._places: list[tuple[_Key, int]] = []
        """The keys with the bytes of their values, in no order."""
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bytes(self) -> int:
        """What everything that is kept takes at most."""
        return self._bytes

    def find(self, key: _Key) -> _Value:
        """The value of a key, made now if it is not kept; what `make` raises is raised again each time."""
        found = self._values.get(key)
        if found is not None:
            return found
        value, size = self._make(key)
        with self._lock:
            if key not in self._values and size <= self._most_bytes:
                while self._bytes + size > self._most_bytes:
                    self._drop_one()
                self._values[key] = value
                self._places.append((key, size))
                self._bytes += size
        return value

    def _drop_one(self) -> None:
        places = self._places
        chosen = self._random.randrange(len(places))
        places[chosen], places[-1] = places[-1], places[chosen]
        key, size = places.pop()
        del self._values[key]
        self._bytes -= size
