"""How much each node may send in a minute (docs/protocol.md section 8.9); counted in each process for itself."""

from collections.abc import Callable
from typing import Final

from inkgrove.core.keys import PublicKey
from inkgrove.federation.errors import QuotaUsedUp

_MINUTE: Final = 60_000_000
_MOST_NODES: Final = 10_000
_FLOOR: Final = 4096
"""What a request counts at least: many small ones cost too."""


class Quotas:
    """Bytes by node, in windows of a minute."""

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._most = bytes_per_minute
        self._clock = clock
        self._window = 0
        self._used: dict[PublicKey, int] = {}

    def use(self, node: PublicKey, size: int) -> None:
        """Count a request; raises if the node has sent too much."""
        window, left = divmod(self._clock(), _MINUTE)
        if window != self._window or len(self._used) >= _MOST_NODES:
            self._window, self._used = window, {}
        used = self._used.get(node, 0)
        # What is larger than the whole quota goes through if it is the first.
        if used and used + size > self._most:
            wait = (_MINUTE - left) // 1_000_000 + 1
            raise QuotaUsedUp("the node has sent enough for this minute", retry_after=wait)
        self._used[node] = used + max(size, _FLOOR)
