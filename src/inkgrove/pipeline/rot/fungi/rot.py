"""`rot`: what nobody reads goes. Least recently and seldom read first; what has just come has a grace period."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import with_freshness, with_recency

HALF_LIFE: Final = 8
"""After so many ticks a read counts half."""

GRACE: Final = 1
"""For so many ticks after its arrival a copy is as fresh as one that was just read once."""


def rot(copies: DataFrame, _seed: int, tick: int) -> DataFrame:
    """Freshness grows with the decayed number of reads; among the unread the older ones are less fresh."""
    age_of_read = f.lit(tick) - f.coalesce(f.col("last_read"), f.col("born"))
    reads = f.col("reads") * f.pow(f.lit(0.5), age_of_read / HALF_LIFE)
    counted = f.greatest(reads, f.when(f.col("born") >= tick - GRACE, f.lit(1.0)).otherwise(f.lit(0.0)))
    share_of_reads = counted / (1 + counted)
    return with_freshness(with_recency(copies), 0.9 * share_of_reads + 0.1 * f.col("recency") / (1 + counted))
