"""`rot`: what nobody reads goes. Least recently and seldom read first; what has just come has a grace period."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import HALF_LIFE, decayed, with_freshness, with_recency

GRACE: Final = HALF_LIFE
"""Until a copy has been here for some time it counts as read as often as all are: the average weighs so many ticks."""

_LEFT_AFTER_A_TICK: Final = 0.5 ** (1 / HALF_LIFE)
_SELDOM: Final = 1e-9


def rot(copies: DataFrame, _seed: int, tick: int) -> DataFrame:
    """Freshness grows with the reads in a tick, the late ones first; among the unread the older ones are less fresh.

    Reads are counted for the time in which there could be any: else whatever came later could never catch up with what
    has been read for long. What has come since the last tick is fresher than all the others: nobody has had the time to
    read it.
    """
    reads, time = decayed(f.col("reads"), _since_read(tick)), _time_here(tick)
    average = copies.agg(_exact_sum(reads) / _exact_sum(time)).scalar()
    often = (reads / f.greatest(average, f.lit(_SELDOM)) + GRACE) / (time + GRACE)
    # From 0.1 of the recency, if it were never read, up to 0.9; written so that `often` is computed once.
    freshness = 0.9 - (0.9 - 0.1 * f.col("_recency")) / (1 + often)
    is_new = f.col("born") >= tick
    return with_freshness(with_recency(copies), f.when(is_new, 0.9 + 0.1 * f.col("_recency")).otherwise(freshness))


def _exact_sum(values: Column) -> Column:
    """In thousandths: a sum of doubles depends on who adds up first, and a plan and its run must agree."""
    return f.sum((values * 1000).cast("long"))


def _since_read(tick: int) -> Column:
    return f.lit(tick) - f.coalesce(f.col("last_read"), f.col("born"))


def _time_here(tick: int) -> Column:
    """The ticks in which a copy could be read, each counted for as much as a read in it still is."""
    ticks = f.greatest(f.lit(tick) - f.col("born"), f.lit(1))
    total: Column = (1 - f.pow(f.lit(_LEFT_AFTER_A_TICK), ticks)) / (1 - _LEFT_AFTER_A_TICK)
    return total
