"""The lipmaa function: which earlier entry the second link of an entry points to.

docs/protocol.md section 2. Near 2^64 the intermediate values need more than 64 bits, so this stays in Python.
"""

from bisect import bisect_left
from functools import lru_cache

from inkgrove.core.errors import EntryError, VarU64Error

# R(k) = (3^k - 1) / 2 for k = 1, 2, ...: the last is the least above every u64, where the pools of the highest end.
_REPUNITS: list[int] = [(3**k - 1) // 2 for k in range(1, 43)]


def least_repunit_at_or_above(n: int) -> int:
    """The least R(k) >= n: the far end of the certificate pool of n; raises for what is no sequence number."""
    _check_seq_num(n)
    return _REPUNITS[bisect_left(_REPUNITS, n)]


@lru_cache(maxsize=1 << 14)
def lipmaa(n: int) -> int:
    """The sequence number that entry `n` links to besides its predecessor; 0 for entry 1.

    Raises `entry.zero-seq-num` below 1 and `varu64.out-of-range` above the pools of all 64-bit numbers.
    """
    _check_seq_num(n)
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
    """Whether entry `n` carries a lipmaa link: only where it differs from the backlink; raises as `lipmaa`."""
    return n != 1 and lipmaa(n) != n - 1


def _check_seq_num(n: int) -> None:
    if n < 1:
        raise EntryError("entry.zero-seq-num", f"sequence numbers start at 1; there is no entry {n}", seq_num=n)
    if n > _REPUNITS[-1]:
        raise VarU64Error("varu64.out-of-range", f"{n} does not fit into 64 bits", value=n)
