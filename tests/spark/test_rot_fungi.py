"""The fungi and the choice of victims, against plain Python."""

import random
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.fungi import CHUNK, FUNGI, chance, spread
from inkgrove.pipeline.rot.plan import find_cuts, is_cut
from inkgrove.pipeline.tables import COPIES, spark_schema
from tests.support.tiers import amount

SEED, TICK = 11, 5
pytestmark = pytest.mark.usefixtures("uncompiled")


def least_fresh(copies: DataFrame, excess: DataFrame, weight: Column, *, seed: int, tick: int) -> DataFrame:
    """The victims: of each `scope` the least fresh copies, as few as weigh its `excess` together.

    `copies` have a `scope`; `excess` has a row for each scope that is over its budget. What weighs nothing stays.
    """
    excess = excess.where("excess > 0")
    cuts = find_cuts(copies, excess, weight, seed=seed, tick=tick)
    placed = copies.join(f.broadcast(cuts), on="scope", how="inner")
    return placed.where(is_cut(seed, tick) & (weight > 0)).select(*copies.columns)


def copy(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "instance": number.to_bytes(8, "big"),
        "stratum": "a",
        "arrival": number,
        "born": 0,
        "bytes": 1,
        "reads": 0.0,
        "last_read": None,
        "freshness": 1.0,
        **facts,
    }


def frame(spark: SparkSession, copies: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(item[name] for name in COPIES.names) for item in copies], spark_schema(COPIES))


def fresh(copies: DataFrame) -> dict[int, float]:
    return {row.arrival: row.freshness for row in copies.collect()}


def choose(copies: DataFrame, excess: dict[str, int], scope: Any = None) -> list[Row]:
    scoped = copies.withColumn("scope", f.lit("node") if scope is None else scope)
    wanted = copies.sparkSession.createDataFrame(list(excess.items()), "scope string, excess long")
    victims = least_fresh(scoped, wanted, f.col("bytes"), seed=SEED, tick=TICK)
    return sorted(victims.collect(), key=lambda row: row.freshness)


@pytest.mark.parametrize("seed", range(amount(2, 4)))
def test_victims_are_the_least_fresh_and_no_more_than_needed(spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    copies = [
        copy(n, freshness=source.choice([0.0, 0.25, 1.0, source.random()]), bytes=source.randint(1, 900))
        for n in range(300)
    ]
    excess = source.randint(1, 60_000)
    victims = choose(frame(spark, copies), {"node": excess})
    freed = sum(row.bytes for row in victims)
    assert freed >= excess
    assert freed - max(row.bytes for row in victims) < excess
    gone = {row.arrival for row in victims}
    assert max(row.freshness for row in victims) <= min(
        item["freshness"] for item in copies if item["arrival"] not in gone
    )


def test_each_scope_gives_its_own_excess(spark: SparkSession) -> None:
    copies = frame(spark, [copy(n, freshness=n / 100) for n in range(100)])
    parity = f.when(f.col("arrival") % 2 == 0, f.lit("even")).otherwise(f.lit("odd"))
    victims = choose(copies, {"even": 3, "odd": 1}, parity)
    assert sorted(row.arrival for row in victims) == [0, 1, 2, 4]


def test_scope_within_its_budget_gives_nothing(spark: SparkSession) -> None:
    assert choose(frame(spark, [copy(1)]), {"elsewhere": 5}) == []
    assert choose(frame(spark, [copy(1)]), {"node": 0}) == []


def test_excess_beyond_everything_takes_everything(spark: SparkSession) -> None:
    assert len(choose(frame(spark, [copy(n) for n in range(10)]), {"node": 1000})) == 10


@pytest.mark.parametrize("name", FUNGI)
def test_fungus_gives_every_copy_a_freshness_and_the_same_one_again(spark: SparkSession, name: str) -> None:
    source = random.Random(3)
    copies = frame(
        spark,
        [
            copy(n, stratum=source.choice("abc"), born=n // 50, reads=float(source.randint(0, 5)), last_read=n // 60)
            for n in range(200)
        ],
    )
    once = FUNGI[name](copies, SEED, TICK)
    assert once.schema.fieldNames() == COPIES.names
    result = fresh(once)
    assert len(result) == 200
    assert all(0 <= value <= 1 for value in result.values())
    assert fresh(FUNGI[name](copies.repartition(7), SEED, TICK)) == result


@pytest.mark.parametrize("name", FUNGI)
def test_fungus_takes_no_copies_and_one_copy(spark: SparkSession, name: str) -> None:
    assert FUNGI[name](frame(spark, []), SEED, TICK).collect() == []
    assert len(FUNGI[name](frame(spark, [copy(1)]), SEED, TICK).collect()) == 1


def test_chance_is_even_and_depends_on_seed_tick_and_copy(spark: SparkSession) -> None:
    copies = frame(spark, [copy(n) for n in range(2000)])
    drawn = copies.select(chance(1, 1).alias("a"), chance(2, 1).alias("b"), chance(1, 2).alias("c")).collect()
    for name in "abc":
        assert 0.47 < sum(row[name] for row in drawn) / 2000 < 0.53
    assert len({row.a for row in drawn} | {row.b for row in drawn} | {row.c for row in drawn}) == 6000


def test_fifo_orders_by_arrival(spark: SparkSession) -> None:
    result = fresh(FUNGI["fifo"](frame(spark, [copy(n) for n in (10, 20, 30)]), SEED, TICK))
    assert result == {10: 0.0, 20: 0.5, 30: 1.0}


def test_rot_spares_what_is_read_and_what_has_just_come(spark: SparkSession) -> None:
    copies = [
        copy(1, born=0),
        copy(2, born=0, reads=4.0, last_read=TICK),
        copy(3, born=0, reads=4.0, last_read=TICK - 16),
        copy(4, born=TICK - 1),
        copy(5, born=TICK),
    ]
    result = fresh(FUNGI["rot"](frame(spark, copies), SEED, TICK))
    assert result[1] < result[3] < result[4] < result[2] < result[5]


def test_rot_asks_how_often_rather_than_how_many_times_in_all(spark: SparkSession) -> None:
    old = copy(1, born=0, reads=8.0, last_read=20)  # about once in every tick
    late = copy(2, born=18, reads=4.0, last_read=20)  # twice
    result = fresh(FUNGI["rot"](frame(spark, [old, late]), SEED, 20))
    assert result[1] < result[2]


def test_overexposed_takes_the_most_read(spark: SparkSession) -> None:
    result = fresh(FUNGI["overexposed"](frame(spark, [copy(1, reads=9.0), copy(2)]), SEED, TICK))
    assert result[1] < result[2]


def test_stratified_takes_from_the_large_strata_first(spark: SparkSession) -> None:
    copies = [copy(n, stratum="large" if n < 90 else "small") for n in range(100)]
    victims = choose(FUNGI["stratified"](frame(spark, copies), SEED, TICK), {"node": 80})
    assert {row.stratum for row in victims} == {"large"}


def test_anterograde_takes_the_new_rather_than_the_old(spark: SparkSession) -> None:
    victims = choose(FUNGI["anterograde"](frame(spark, [copy(n) for n in range(1000)]), SEED, TICK), {"node": 300})
    assert sum(row.arrival for row in victims) / len(victims) > 600


def test_spots_spread_by_distance_to_the_nearest_seed(spark: SparkSession) -> None:
    arrivals = sorted(random.Random(1).sample(range(3 * CHUNK), 400))
    seeds = set(random.Random(9).sample(arrivals, 3))
    result = fresh(spread(frame(spark, [copy(n) for n in arrivals]), f.col("arrival").isin(*seeds)))
    for n in arrivals:
        near = [abs(n - seed) for seed in seeds if abs(n // CHUNK - seed // CHUNK) <= 1]
        assert result[n] == pytest.approx(1 - 1 / (1 + min(near, default=2 * CHUNK)))


def test_what_a_spot_took_stays_lost(spark: SparkSession) -> None:
    copies = frame(spark, [copy(n, freshness=0.5) for n in range(10)])
    assert max(fresh(spread(copies, f.col("arrival") == 4)).values()) <= 0.5
