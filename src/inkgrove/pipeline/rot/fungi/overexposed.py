"""`overexposed`: what everybody has seen goes. Often read copies make room for those that nobody has read yet."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import chance, with_freshness


def overexposed(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Freshness falls with every read; chance decides among those read equally often."""
    return with_freshness(copies, (1 - 0.1 * chance(seed, tick)) / (1 + f.col("reads")))
