"""Takes the least fresh copies until a budget is met; nothing is collected, nothing is sorted as a whole.

docs/protocol.md section 9. Copies are counted in narrow bands of freshness; whole bands go, and only the band in which
the budget is met is put in order.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import chance

_BANDS: Final = 4096


def least_fresh(copies: DataFrame, excess: DataFrame, weight: Column, *, seed: int, tick: int) -> DataFrame:
    """The victims: of each `scope` the least fresh copies, as few as weigh its `excess` together.

    `copies` have a `scope`; `excess` has a row for each scope that is over its budget. Ties are broken by chance.
    """
    marked = copies.join(f.broadcast(excess), on="scope", how="inner").withColumn("_weight", weight)
    banded = marked.withColumn("_band", f.least(f.floor(f.col("freshness") * _BANDS), f.lit(_BANDS)))
    # A few thousand rows: no matter that one task puts them in order.
    earlier = Window.partitionBy("scope").orderBy("_band").rowsBetween(Window.unboundedPreceding, -1)
    bands = (
        banded.groupBy("scope", "_band")
        .agg(f.sum("_weight").alias("_in_band"))
        .withColumn("_before", f.coalesce(f.sum("_in_band").over(earlier), f.lit(0)))
    )
    placed = banded.join(f.broadcast(bands), on=["scope", "_band"], how="inner")
    is_whole = f.col("_before") + f.col("_in_band") <= f.col("excess")
    is_cut = ~is_whole & (f.col("_before") < f.col("excess"))
    in_band = (
        Window.partitionBy("scope")
        .orderBy("freshness", chance(seed, tick), "instance")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    cut = placed.where(is_cut)
    reached = f.col("_before") + f.coalesce(f.sum("_weight").over(in_band), f.lit(0))
    partly = cut.withColumn("_reached", reached).where(f.col("_reached") < f.col("excess"))
    columns = copies.columns
    return placed.where(is_whole).select(*columns).unionByName(partly.select(*columns))
