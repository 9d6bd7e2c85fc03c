"""Cooking: what is about to be dropped is folded into summaries first (docs/protocol.md section 9).

A summary stands for one reader, owner, schema and month; of each field it keeps counts and sketches that can be merged
later. It is keyed by the run that made it, so cooking the same run again replaces it by itself.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.tables import SUMMARIES

KLL_K: Final = 200
HLL_LOG_K: Final = 12


def cook(values: DataFrame) -> DataFrame:
    """One summary for each reader, owner, schema, month and field."""
    return (
        values.groupBy("reader", "owner", "schema", "month", "field")
        .agg(
            f.count("*").alias("count"),
            f.sum("bytes").alias("bytes"),
            f.sum("number").alias("sum"),
            f.min("number").alias("min"),
            f.max("number").alias("max"),
            f.when(f.count("number") > 0, f.kll_sketch_agg_double("number", f.lit(KLL_K))).alias("quantiles"),
            f.when(f.count("text") > 0, f.hll_sketch_agg("text", HLL_LOG_K)).alias("distinct"),
            f.min_by("instance", "arrival").alias("first"),
            f.max_by("instance", "arrival").alias("last"),
        )
        .select(*SUMMARIES.names)
    )
