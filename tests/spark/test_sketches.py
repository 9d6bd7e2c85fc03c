"""The sketches that Spark makes, read without Spark: as good as Spark's own reading of them."""

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from inkgrove.store.rot import DISTINCT_ERROR, RANK_ERROR, count_distinct, quantiles


@pytest.mark.parametrize("count", [1, 2, 150, 30_000])
def test_quantiles_are_where_the_values_say(spark: SparkSession, count: int) -> None:
    source = random.Random(count)
    values = [source.gauss(50, 20) for _ in range(count)]
    halves = [values[::2], values[1::2]]
    sketches = []
    for half in halves:
        if half:
            frame = spark.createDataFrame([(value,) for value in half], "v double").coalesce(1)
            row = frame.agg(f.kll_sketch_agg_double("v", f.lit(200)).alias("s")).first()
            assert row is not None
            sketches.append(bytes(row.s))
    ordered = sorted(values)
    for rank, found in zip((0.25, 0.5, 0.75), quantiles(sketches, (0.25, 0.5, 0.75)), strict=True):
        place = sum(value <= found for value in ordered) / count
        assert abs(place - rank) <= max(RANK_ERROR, 0.75 if count == 1 else 0.26 if count == 2 else 0.01)


@pytest.mark.parametrize("count", [1, 7, 40, 3_000, 60_000])
def test_distinct_values_are_counted_across_sketches(spark: SparkSession, count: int) -> None:
    def sketch(first: int, last: int) -> bytes:
        row = (
            spark.range(first, last)
            .select(f.concat(f.lit("value "), f.col("id")).alias("t"))
            .agg(f.hll_sketch_agg("t", 12).alias("s"), f.hll_sketch_estimate(f.hll_sketch_agg("t", 12)).alias("own"))
            .first()
        )
        assert row is not None
        assert count_distinct([bytes(row.s)]) == pytest.approx(row.own, rel=0.03, abs=0.5)
        return bytes(row.s)

    both = [sketch(0, count), sketch(count // 2, count + count // 2)]
    wanted = count + count // 2
    assert count_distinct(both) == pytest.approx(wanted, rel=DISTINCT_ERROR, abs=0.5)


def test_nothing_seen_is_nothing_found() -> None:
    assert quantiles([], (0.5,)) == []
    assert count_distinct([]) == 0
