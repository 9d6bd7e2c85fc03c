"""`stratified`: a share for everyone. The largest owners and schemas give first, so that the small ones stay whole."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import chance, with_freshness


def stratified(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """In the order of chance the n-th copy of a stratum has a freshness of about 1/n."""
    sizes = copies.groupBy("stratum").agg(f.count("*").alias("_size"))
    return with_freshness(
        copies.join(f.broadcast(sizes), on="stratum", how="inner"), 1 / (1 + chance(seed, tick) * f.col("_size"))
    )
