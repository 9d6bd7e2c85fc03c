"""The fungi: each lets copies of others' instances lose their freshness in its own way (docs/protocol.md section 9).

A fungus is a pure function from copies to the same copies with a new `freshness`, a number from 0 to 1; the least fresh
go first. Time is counted in ticks, one for each run, and all randomness is `chance`. Further columns of the copies pass
through a fungus as they are.

To add one, write a function here and put `@fungus` above it: its name is what policies and settings call it.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.tables import COPIES

Fungus = Callable[[DataFrame, int, int], DataFrame]
"""(copies, seed, tick) -> the copies with their new freshness."""

FUNGI: Final[dict[str, Fungus]] = {}
"""Every fungus by its name."""

HALF_LIFE: Final = 8
"""After so many ticks a read counts half."""

GRACE: Final = HALF_LIFE
"""Until a copy has been here for some time it counts as read as often as all are: the average weighs so many ticks."""

CHUNK: Final = 512
"""A seed of a spot reaches at least so many arrivals to either side."""

SEEDS_PER_COPY: Final = 1 / 512

_LEFT_AFTER_A_TICK: Final = 0.5 ** (1 / HALF_LIFE)
_SELDOM: Final = 1e-9
_BIAS: Final = 4
_MANTISSA: Final = 52


def fungus(function: Fungus) -> Fungus:
    """Decorator: puts a fungus on the list of those that policies can name."""
    FUNGI[function.__name__] = function
    return function


# What fungi are made of


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
    known = COPIES.names
    others = [name for name in copies.columns if name not in known and not name.startswith("_")]
    return copies.withColumn("freshness", freshness.cast("double")).select(*known, *others)


def spread(copies: DataFrame, is_seed: Column) -> DataFrame:
    """A seed loses all freshness, its neighbours in the order of arrival the more the nearer they are.

    What was lost before stays lost. Seeds are few: they are brought to the copies, and nothing is put in order.
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


# The fungi


@fungus
def fifo(copies: DataFrame, _seed: int, _tick: int) -> DataFrame:
    """First in, first out: a copy is as fresh as it is recent, whatever it is."""
    return with_freshness(with_recency(copies), f.col("_recency"))


@fungus
def uniform(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Everything goes with the same chance, drawn anew at every tick; what stays is a fair sample of the history."""
    return with_freshness(copies, chance(seed, tick))


@fungus
def anterograde(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """New things do not stick: the more recent, the smaller the freshness that is drawn; the old core stays."""
    return with_freshness(with_recency(copies), f.pow(chance(seed, tick), 1 + _BIAS * f.col("_recency")))


@fungus
def area(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Mould: every copy has the same chance to seed a spot that grows; between the spots everything stays whole."""
    return spread(copies, chance(seed, tick) < SEEDS_PER_COPY)


@fungus
def egi(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Evict grouped individuals: as `area`, but the chance to be a seed grows with the square of the age."""
    is_seed = chance(seed, tick) < 3 * SEEDS_PER_COPY * f.pow(1 - f.col("_recency"), 2)
    return spread(with_recency(copies), is_seed)


@fungus
def rot(copies: DataFrame, _seed: int, tick: int) -> DataFrame:
    """What nobody reads goes: freshness grows with the reads in a tick, the late ones first.

    Among the unread the older ones are less fresh. Reads are counted for the time in which there could be any: else
    whatever came later could never catch up with what has been read for long. What has come since the last tick is
    fresher than all the others: nobody has had the time to read it.
    """
    reads, time = decayed(f.col("reads"), _since_read(tick)), _time_here(tick)
    average = copies.agg(_exact_sum(reads) / _exact_sum(time)).scalar()
    often = (reads / f.greatest(average, f.lit(_SELDOM)) + GRACE) / (time + GRACE)
    # From 0.1 of the recency, if it were never read, up to 0.9; written so that `often` is computed once.
    freshness = 0.9 - (0.9 - 0.1 * f.col("_recency")) / (1 + often)
    is_new = f.col("born") >= tick
    return with_freshness(with_recency(copies), f.when(is_new, 0.9 + 0.1 * f.col("_recency")).otherwise(freshness))


def _exact_sum(values: Column) -> Column:
    """In thousandths: a sum of doubles depends on who adds up first, and a plan and its run must agree."""
    return f.sum((values * 1000).cast("long"))


def _since_read(tick: int) -> Column:
    return f.lit(tick) - f.coalesce(f.col("last_read"), f.col("born"))


def _time_here(tick: int) -> Column:
    """The ticks in which a copy could be read, each counted for as much as a read in it still is."""
    ticks = f.greatest(f.lit(tick) - f.col("born"), f.lit(1))
    total: Column = (1 - f.pow(f.lit(_LEFT_AFTER_A_TICK), ticks)) / (1 - _LEFT_AFTER_A_TICK)
    return total


@fungus
def overexposed(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """What everybody has seen goes: freshness falls with every read, chance decides among those read equally often."""
    return with_freshness(copies, (1 - 0.1 * chance(seed, tick)) / (1 + f.col("reads")))


@fungus
def stratified(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """A share for everyone: the largest owners and schemas give first, so that the small ones stay whole.

    In the order of chance the n-th copy of a stratum has a freshness of about 1/n.
    """
    sizes = copies.groupBy("stratum").agg(f.count("*").alias("_size"))
    return with_freshness(
        copies.join(f.broadcast(sizes), on="stratum", how="inner"), 1 / (1 + chance(seed, tick) * f.col("_size"))
    )
