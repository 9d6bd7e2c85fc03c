"""Which entries an entry links to and which prove it: arithmetic on sequence numbers (docs/protocol.md section 2).

`lipmaa` says where the second link of an entry points to; a certificate pool is the shortest path from an entry to
entry 1 and the one to it from the next R(k). Any two pools of one log contain a link path between their entries. Near
2^64 the intermediate values need more than 64 bits, so this stays in Python.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
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


def linking_to(seq_num: int, height: int) -> Iterator[int]:
    """The sequence numbers up to `height` whose entries link to this one, by backlink or lipmaa link."""
    # lipmaa(n) is n - R(j), or for n = R(k) it is R(k - 1): so n - lipmaa(n) is some R(j) or a power of three.
    distance, power = 1, 1
    while seq_num + min(distance, power) <= height:
        for at in {seq_num + distance, seq_num + power}:
            if at <= height and (at == seq_num + 1 or lipmaa(at) == seq_num):
                yield at
        power *= 3
        distance = distance * 3 + 1


def shortest_path(start: int, target: int) -> list[int]:
    """The sequence numbers from `start` down to `target`, both included, along the fewest links."""
    if target < 1 or start < target:
        raise EntryError("entry.zero-seq-num", f"no path leads from entry {start} down to entry {target}")
    path = [start]
    while start > target:
        jump = lipmaa(start)
        start = jump if jump >= target else start - 1
        path.append(start)
    return path


def certificate_pool(seq_num: int, height: int | None = None) -> list[int]:
    """The pool of an entry in ascending order; with a log's `height`, as far as its entries exist."""
    path_to_first = shortest_path(seq_num, 1)
    pool = set(path_to_first) | set(shortest_path(least_repunit_at_or_above(seq_num), seq_num))
    return sorted(n for n in pool if height is None or n <= height)


def union_of_pools(seq_nums: Iterable[int], height: int | None = None) -> list[int]:
    """The entries that prove several entries of one log, in ascending order."""
    return sorted({member for n in seq_nums for member in certificate_pool(n, height)})
