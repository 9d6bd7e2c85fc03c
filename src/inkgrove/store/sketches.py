"""Reads the sketches of summaries: quantiles (KLL) and distinct values (HLL), of any number of them together.

Spark makes them (Apache DataSketches). A node that answers without Spark only has to read them: of a KLL sketch the
items it kept, each with its weight; of an HLL sketch its coupons or registers.
"""

import math
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final

RANK_ERROR: Final = 0.0165
"""By how much of all ranks a quantile of a KLL sketch with k = 200 is off, in 99 of 100 cases."""
DISTINCT_ERROR: Final = 0.0325
"""By how much a count of an HLL sketch with 4096 registers is off: two standard errors."""

_EMPTY: Final = 1
_SINGLE: Final = 4
_ADDRESS_BITS: Final = 26
_LIST, _SET = 0, 1


def quantiles(sketches: Iterable[bytes], ranks: Iterable[float]) -> list[float]:
    """The values at some ranks (0 to 1) of all values that the sketches have seen together; none if there are none."""
    items = sorted(item for sketch in sketches for item in _kll_items(sketch))
    reached = list(accumulate(weight for _, weight in items))
    if not items:
        return []
    return [items[bisect_left(reached, rank * reached[-1])][0] for rank in ranks]


def _kll_items(sketch: bytes) -> Iterable[tuple[float, int]]:
    """What a sketch of doubles kept: items of level n stand for 2^n values each."""
    flags = sketch[3]
    if flags & _EMPTY:
        return
    if flags & _SINGLE:
        yield struct.unpack_from("<d", sketch, 8)[0], 1
        return
    levels_count = sketch[18]
    levels = list(struct.unpack_from(f"<{levels_count}i", sketch, 20))
    start = 20 + 4 * levels_count + 16  # behind the least and the greatest item
    count = (len(sketch) - start) // 8
    values = struct.unpack_from(f"<{count}d", sketch, start)
    bounds = [level - levels[0] for level in levels] + [count]
    for level, (first, end) in enumerate(pairwise(bounds)):
        for value in values[first:end]:
            yield value, 1 << level


def count_distinct(sketches: Iterable[bytes]) -> float:
    """About how many different values the sketches have seen together."""
    coupons: set[int] = set()
    registers: bytearray | None = None
    log_k = 0
    for sketch in sketches:
        log_k = sketch[3]
        if sketch[7] & 3 in (_LIST, _SET):
            coupons.update(_coupons(sketch))
            continue
        own = sketch[40 : 40 + (1 << log_k)]
        registers = bytearray(own) if registers is None else bytearray(map(max, registers, own))
    if registers is None:
        return float(len(coupons))
    for coupon in coupons:
        place = coupon & ((1 << log_k) - 1)
        registers[place] = max(registers[place], coupon >> _ADDRESS_BITS)
    return _estimate(registers)


def _coupons(sketch: bytes) -> Iterable[int]:
    """While there are few values each is kept, as a part of its hash; 0 is an empty place."""
    start = 8 if sketch[7] & 3 == _LIST else 12
    if sketch[5] & 4:
        return
    count = (len(sketch) - start) // 4
    yield from (coupon for coupon in struct.unpack_from(f"<{count}I", sketch, start) if coupon)


def _estimate(registers: bytearray) -> float:
    """How many values leave registers like these: the estimator of Otmar Ertl, good for few and for many alike."""
    size, highest = len(registers), 63
    counts = Counter(min(value, highest + 1) for value in registers)
    found = size * _tau(1 - counts[highest + 1] / size)
    for value in range(highest, 0, -1):
        found = (found + counts[value]) / 2
    found += size * _sigma(counts[0] / size)
    return size * size / (2 * math.log(2) * found)


def _sigma(share: float) -> float:
    if share == 1:
        return math.inf
    result, factor, before = share, 1.0, math.nan
    while result != before:
        share, before = share * share, result
        result += share * factor
        factor *= 2
    return result


def _tau(share: float) -> float:
    if share in (0, 1):
        return 0.0
    result, factor, before = 1 - share, 1.0, math.nan
    while result != before:
        share, before = math.sqrt(share), result
        factor /= 2
        result -= (1 - share) ** 2 * factor
    return result / 3
