"""How much others may send in a minute, or make this node fetch; counted in each process for itself.

docs/protocol.md section 8.9.
"""

from collections.abc import Callable, Hashable
from typing import Final

from inkgrove.federation.errors import QuotaUsedUp

_MINUTE: Final = 60_000_000
_MOST_KEPT: Final = 10_000
_FLOOR: Final = 4096
"""What a request counts at least: many small ones cost too."""
_PARTS: Final = 16


class Quotas:
    """Bytes by node, or by whatever else they are counted for, in windows of a minute."""

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._most = bytes_per_minute
        self._clock = clock
        self._window = 0
        self._used: dict[Hashable, int] = {}

    def use(self, who: Hashable, size: int) -> None:
        """Count a request; raises if too much was counted for them in this minute."""
        used = self._used_by(who)
        # What is larger than the whole quota goes through if it is the first.
        if used and used + size > self._most:
            raise self.refusal()
        self._used[who] = used + max(size, _FLOOR)

    def left(self, who: Hashable) -> int:
        """How much of this minute's is left for them."""
        return max(0, self._most - self._used_by(who))

    def refusal(self) -> QuotaUsedUp:
        """What is raised when nothing is left: it says when there will be."""
        wait = (_MINUTE - self._clock() % _MINUTE) // 1_000_000 + 1
        return QuotaUsedUp("that is enough for this minute", retry_after=wait)

    def _used_by(self, who: Hashable) -> int:
        window = self._clock() // _MINUTE
        if window != self._window or len(self._used) >= _MOST_KEPT:
            self._window, self._used = window, {}
        return self._used.get(who, 0)

    def add(self, who: Hashable, size: int) -> None:
        """Count what a request was found to cost besides: the next one is refused if that was too much."""
        self._used[who] = self._used.get(who, 0) + max(0, size - _FLOOR)

    def spend(self, who: Hashable, size: int) -> None:
        """The same for what they would get: raises if others of their requests have left nothing meanwhile."""
        is_left = self.left(who) > 0
        self.add(who, size)
        if not is_left:
            raise self.refusal()


class LookupQuota:
    """How much strangers can make this node fetch and keep: whoever sends a request names an identity to be looked up.

    Names cost nothing to whoever has a domain, so those under one domain share a part of the whole.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._all = Quotas(bytes_per_minute, clock)
        self._domains = Quotas(bytes_per_minute // _PARTS, clock)

    def use(self, fqdn: str) -> None:
        """Count a look-up; raises if there were too many."""
        self._domains.use(domain_of(fqdn), _FLOOR)
        self._all.use(None, _FLOOR)

    def left(self, fqdn: str) -> int:
        """How large the answer to a look-up that was counted may be."""
        return _FLOOR + min(self._domains.left(domain_of(fqdn)), self._all.left(None))

    def add(self, fqdn: str, size: int) -> None:
        """Count how large the answer was."""
        self._domains.add(domain_of(fqdn), size)
        self._all.add(None, size)


def domain_of(fqdn: str) -> str:
    """Whoever has a name has all those below: the last two labels."""
    return ".".join(fqdn.split(".")[-2:])
