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
        window, left = divmod(self._clock(), _MINUTE)
        if window != self._window or len(self._used) >= _MOST_KEPT:
            self._window, self._used = window, {}
        used = self._used.get(who, 0)
        # What is larger than the whole quota goes through if it is the first.
        if used and used + size > self._most:
            wait = (_MINUTE - left) // 1_000_000 + 1
            raise QuotaUsedUp("that is enough for this minute", retry_after=wait)
        self._used[who] = used + max(size, _FLOOR)

    def add(self, who: Hashable, size: int) -> None:
        """Count what a request was found to cost besides: the next one is refused if that was too much."""
        self._used[who] = self._used.get(who, 0) + max(0, size - _FLOOR)


class LookupQuota:
    """How much strangers can make this node fetch and keep: whoever sends a request names an identity to be looked up.

    Names cost nothing to whoever has a domain, so those under one domain share a part of the whole.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._all = Quotas(bytes_per_minute, clock)
        self._domains = Quotas(bytes_per_minute // _PARTS, clock)

    def use(self, fqdn: str) -> None:
        """Count a look-up; raises if there were too many."""
        self._domains.use(_domain(fqdn), _FLOOR)
        self._all.use(None, _FLOOR)

    def add(self, fqdn: str, size: int) -> None:
        """Count how large the answer was."""
        self._domains.add(_domain(fqdn), size)
        self._all.add(None, size)


def _domain(fqdn: str) -> str:
    return ".".join(fqdn.split(".")[-2:])
