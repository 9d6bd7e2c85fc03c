"""A budget of memory for what requests hold while they are under way, in all and for each network.

No network takes more than half of what the others leave. So a few networks never take all of it: the next one finds
less than those before it, and never nothing.
"""

from collections import Counter

from inkgrove.node.errors import TooMuchAtOnce


class MemoryBudget:
    """Counts bytes that are held; used on the event loop only."""

    def __init__(self, most: int, of_network: int, what: str) -> None:
        """`most` bytes in all, `of_network` of them for one network; `what` a refusal says there is too much of."""
        self._most, self._of_network, self._what = most, of_network, what
        self._by_network: Counter[str] = Counter()
        self._total = 0

    def take(self, network: str, size: int) -> None:
        """Count bytes as held; raises `TooMuchAtOnce` if they are more than there is room for."""
        held = self._by_network[network]
        left_by_others = self._most - (self._total - held)
        if held + size > min(self._of_network, left_by_others // 2):
            if not held:
                del self._by_network[network]
            raise TooMuchAtOnce(f"the node {self._what} at this moment: try again", retry_after=5)
        self._total += size
        self._by_network[network] += size

    def give_back(self, network: str, size: int) -> None:
        """Count bytes as held no more."""
        self._total -= size
        self._by_network[network] -= size
        if not self._by_network[network]:
            del self._by_network[network]
