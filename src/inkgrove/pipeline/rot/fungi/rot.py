"""`rot`: what nobody reads goes. Least recently and seldom read first; what has just come has a grace period."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import decayed, with_freshness, with_recency

GRACE: Final = 1
"""For so many ticks after that of its arrival a copy is as fresh as one that was just read once."""


def rot(copies: DataFrame, _seed: int, tick: int) -> DataFrame:
    """Freshness grows with the decayed number of reads; among the unread the older ones are less fresh.

    What has come since the last tick is fresher than all the others: nobody has had the time to read it, and where
    everything is read often it would go before anyone has.
    """
    age_of_read = f.lit(tick) - f.coalesce(f.col("last_read"), f.col("born"))
    reads = decayed(f.col("reads"), age_of_read)
    counted = f.greatest(reads, f.when(f.col("born") >= tick - GRACE, f.lit(1.0)).otherwise(f.lit(0.0)))
    freshness = (0.9 * counted + 0.1 * f.col("_recency")) / (1 + counted)
    is_new = f.col("born") >= tick
    return with_freshness(with_recency(copies), f.when(is_new, 0.9 + 0.1 * f.col("_recency")).otherwise(freshness))
