"""What a fungus knows of a foreign copy, and the one source of its randomness (docs/protocol.md section 9).

A fungus is a pure function from copies to the same copies with a new `freshness`, a number from 0 to 1. Time is
counted in ticks, one for each run. Further columns of the copies pass through a fungus as they are.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType

COPIES: Final = StructType(
    [
        StructField("instance", BinaryType(), False),
        StructField("stratum", StringType(), False),  # owner and schema: what `stratified` keeps a share of each of
        StructField("arrival", LongType(), False),  # the position at which it came; two copies never share one
        StructField("born", LongType(), False),  # the tick in which it came
        StructField("bytes", LongType(), False),
        StructField("reads", DoubleType(), False),  # decayed count, as of the last read
        StructField("last_read", LongType()),  # the tick; none if nobody ever read it
        StructField("freshness", DoubleType(), False),  # 1 when it came
    ]
)

Fungus = Callable[[DataFrame, int, int], DataFrame]
"""(copies, seed, tick) -> the copies with their new freshness."""

HALF_LIFE: Final = 8
"""After so many ticks a read counts half."""

_MANTISSA: Final = 52


def chance(seed: int, tick: int, of: Column | str = "instance") -> Column:
    """A number from 0 to 1 for each copy: hash(seed, tick, id), so that a plan and its run agree."""
    digest = f.xxhash64(f.lit(seed), f.lit(tick), f.col(of) if isinstance(of, str) else of)
    return f.shiftrightunsigned(digest, 64 - _MANTISSA).cast("double") / float(2**_MANTISSA)


def decayed(reads: Column, ticks: Column) -> Column:
    """What a count of reads is worth after some ticks."""
    return reads * f.pow(f.lit(0.5), ticks / HALF_LIFE)


def with_recency(copies: DataFrame) -> DataFrame:
    """Adds `_recency`: 0 for the oldest arrival, 1 for the newest."""
    # As values rather than by a join: where nobody looks at the column, Spark leaves the look at the ends out too.
    oldest, newest = (copies.agg(end("arrival")).scalar() for end in (f.min, f.max))
    return copies.withColumn("_recency", (f.col("arrival") - oldest) / f.greatest(newest - oldest, f.lit(1)))


def with_freshness(copies: DataFrame, freshness: Column) -> DataFrame:
    """The copies with this freshness; columns that a fungus has added, which begin with an underscore, go."""
    known = COPIES.fieldNames()
    others = [name for name in copies.columns if name not in known and not name.startswith("_")]
    return copies.withColumn("freshness", freshness.cast("double")).select(*known, *others)
