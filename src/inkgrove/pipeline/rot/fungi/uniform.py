"""`uniform`: everything goes with the same chance; what stays is a fair sample of the history."""

from pyspark.sql import DataFrame

from inkgrove.pipeline.rot.copies import chance, with_freshness


def uniform(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Freshness is drawn anew at every tick."""
    return with_freshness(copies, chance(seed, tick))
