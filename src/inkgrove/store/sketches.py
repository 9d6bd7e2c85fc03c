"""Reads the sketches of summaries: quantiles (KLL) and distinct values (HLL), of any number of them together.

Spark makes them with Apache DataSketches for Java; here the same library for Python reads them, so that a node answers
without Spark.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from datasketches import hll_sketch, hll_union, kll_doubles_sketch

RANK_ERROR: Final = 0.0165
"""By how much of all ranks a quantile of a KLL sketch with k = 200 is off, in 99 of 100 cases."""
DISTINCT_ERROR: Final = 0.0325
"""By how much a count of an HLL sketch with 4096 registers is off: two standard errors."""
_LOG_REGISTERS: Final = 12


def quantiles(sketches: Iterable[bytes], ranks: Iterable[float]) -> list[float]:
    """The values at some ranks (0 to 1) of all values that the sketches have seen together; none if there are none."""
    # The values that each kept, with their weights: to merge sketches is a matter of chance, and answers are not.
    items: list[tuple[float, int]] = sorted(
        item for sketch in sketches for item in kll_doubles_sketch.deserialize(sketch)
    )
    if not items:
        return []
    reached = list(accumulate(weight for _, weight in items))
    return [items[bisect_left(reached, rank * reached[-1])][0] for rank in ranks]


def count_distinct(sketches: Iterable[bytes]) -> float:
    """About how many different values the sketches have seen together."""
    union = hll_union(_LOG_REGISTERS)
    for sketch in sketches:
        union.update(hll_sketch.deserialize(sketch))
    return float(union.get_estimate())
