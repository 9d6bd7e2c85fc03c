"""Link paths and certificate pools: which entries prove one entry (docs/protocol.md section 2, partial logs).

Pure arithmetic on sequence numbers; any two pools of one log contain a link path between their entries.
"""

from collections.abc import Iterable

from inkgrove.core.errors import EntryError
from inkgrove.core.lipmaa import least_repunit_at_or_above, lipmaa


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
