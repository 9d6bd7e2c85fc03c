"""The lipmaa function: which earlier entry the second link of an entry points to.

docs/protocol.md section 2. Near 2^64 the intermediate values need more than 64 bits, so this stays in Python.
"""

from bisect import bisect_left
from functools import lru_cache

# R(k) = (3^k - 1) / 2 for k = 1, 2, ...: enough for every u64.
_REPUNITS: list[int] = [(3**k - 1) // 2 for k in range(1, 43)]


def least_repunit_at_or_above(n: int) -> int:
    """The least R(k) >= n: the far end of the certificate pool of n."""
    return _REPUNITS[bisect_left(_REPUNITS, n)]


@lru_cache(maxsize=1 << 14)
def lipmaa(n: int) -> int:
    """The sequence number that entry `n` (from 1) links to besides its predecessor; 0 for entry 1."""
    k = bisect_left(_REPUNITS, n)
    if _REPUNITS[k] == n:
        return n - int(3**k)
    x = n
    while True:
        k = bisect_left(_REPUNITS, x)
        if _REPUNITS[k] == x:
            return n - x
        x -= _REPUNITS[k - 1]


@lru_cache(maxsize=1 << 16)
def has_lipmaa_link(n: int) -> bool:
    """Whether entry `n` carries a lipmaa link: only where it differs from the backlink."""
    return n > 1 and lipmaa(n) != n - 1
