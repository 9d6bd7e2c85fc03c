"""`anterograde`: new things do not stick. The old core stays, what came lately goes first."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import chance, with_freshness, with_recency

_BIAS = 4


def anterograde(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """The more recent, the smaller the freshness that is drawn."""
    return with_freshness(with_recency(copies), f.pow(chance(seed, tick), 1 + _BIAS * f.col("_recency")))
