"""Spots that grow: how `area` and `egi` spread from a seed to its neighbours in the order of arrival."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import with_freshness

CHUNK: Final = 512
"""A seed reaches at least so many arrivals to either side."""

SEEDS_PER_COPY: Final = 1 / 512


def spread(copies: DataFrame, is_seed: Column) -> DataFrame:
    """A seed loses all freshness, its neighbours the more the nearer they are; what was lost before stays lost.

    Seeds are few: they are brought to the copies, and nothing is put in order.
    """
    chunk = f.floor(f.col("arrival") / CHUNK)
    reached = f.explode(f.array(chunk - 1, chunk, chunk + 1)).alias("_chunk")
    seeds = (
        copies.where(is_seed)
        .select("arrival", reached)
        .groupBy("_chunk")
        .agg(f.collect_list("arrival").alias("_seeds"))
    )
    placed = copies.withColumn("_chunk", chunk).join(f.broadcast(seeds), on="_chunk", how="left")
    distance = f.array_min(f.transform("_seeds", lambda seed: f.abs(f.col("arrival") - seed)))
    return with_freshness(placed, f.col("freshness") * (1 - 1 / (1 + f.coalesce(distance, f.lit(2 * CHUNK)))))
