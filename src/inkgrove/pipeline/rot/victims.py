"""Takes the least fresh copies until a budget is met; nothing is collected, nothing is sorted as a whole.

docs/protocol.md section 9. Copies are counted in narrow bands of freshness; whole bands go, and only the band in which
the budget is met is put in order. What comes of it is one place to cut for each scope: a few rows, which are brought to
the copies, while no copy moves.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.fungi import chance

BANDS: Final = 65_536
_NO_BAND: Final = BANDS + 1


def _band() -> Column:
    return f.least(f.floor(f.col("freshness") * BANDS), f.lit(BANDS))


def _place(seed: int, tick: int) -> Column:
    """The order within a band; ties are broken by chance."""
    return f.struct(f.col("freshness"), chance(seed, tick).alias("chance"), f.col("instance"))


def find_cuts(copies: DataFrame, excess: DataFrame, weight: Column, *, seed: int, tick: int) -> DataFrame:
    """For each scope with an excess, where to cut: (scope, cut_band, cut_place).

    All copies in bands below `cut_band` go, and of that band those up to `cut_place`.
    """
    # A cut is made among few scopes, but there may be many bands.
    marked = copies.join(f.broadcast(excess), on="scope", how="inner")
    banded = marked.withColumn("_weight", weight).where("_weight > 0").withColumn("_band", _band())
    so_far = Window.partitionBy("scope").orderBy("_band").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    bands = (
        banded.groupBy("scope", "_band", "excess")
        .agg(f.sum("_weight").alias("_in_band"))
        .withColumn("_until", f.sum("_in_band").over(so_far))
        .where(f.col("_until") > f.col("excess"))
        .groupBy("scope")
        .agg(f.min("_band").alias("cut_band"), f.min_by(f.col("_until") - f.col("_in_band"), "_band").alias("_before"))
    )
    in_band = Window.partitionBy("scope").orderBy("_place").rowsBetween(Window.unboundedPreceding, -1)
    cut = (
        banded.join(f.broadcast(bands), on="scope", how="inner")
        .where((f.col("_band") == f.col("cut_band")) & (f.col("_before") < f.col("excess")))
        .withColumn("_place", _place(seed, tick))
        .withColumn("_reached", f.col("_before") + f.coalesce(f.sum("_weight").over(in_band), f.lit(0)))
        .where(f.col("_reached") < f.col("excess"))
        .groupBy("scope")
        .agg(f.max("_place").alias("cut_place"))
    )
    return (
        excess.select("scope")
        .join(bands.select("scope", "cut_band"), on="scope", how="left")
        .join(cut, on="scope", how="left")
        .select("scope", f.coalesce("cut_band", f.lit(_NO_BAND)).alias("cut_band"), "cut_place")
    )


def is_cut(seed: int, tick: int) -> Column:
    """Whether a copy, with the cut of its scope beside it, is among those that go; no cut, no victim."""
    in_band = (_band() == f.col("cut_band")) & (_place(seed, tick) <= f.col("cut_place"))
    return f.coalesce((_band() < f.col("cut_band")) | in_band, f.lit(False))


def least_fresh(copies: DataFrame, excess: DataFrame, weight: Column, *, seed: int, tick: int) -> DataFrame:
    """The victims: of each `scope` the least fresh copies, as few as weigh its `excess` together.

    `copies` have a `scope`; `excess` has a row for each scope that is over its budget. What weighs nothing stays.
    """
    excess = excess.where("excess > 0")
    cuts = find_cuts(copies, excess, weight, seed=seed, tick=tick)
    placed = copies.join(f.broadcast(cuts), on="scope", how="inner")
    return placed.where(is_cut(seed, tick) & (weight > 0)).select(*copies.columns)
