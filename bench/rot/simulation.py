"""Rounds of arrivals, rot and reads; what readers miss, and how far averages are off, raw and with cooking."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.rot.streams import STREAMS
from inkgrove.pipeline.rot.cook import VALUES, cook
from inkgrove.pipeline.rot.copies import COPIES, Fungus
from inkgrove.pipeline.rot.fungi.rot import HALF_LIFE
from inkgrove.pipeline.rot.registry import FUNGI
from inkgrove.pipeline.rot.victims import least_fresh

SEED: Final = 20
READS_PER_ROUND: Final = 2000
READS_MATTER: Final = frozenset({"rot", "overexposed"})
_STRATA: Final = 20


@dataclass
class Outcome:
    """What one fungus did to one history."""

    fungus: str
    churn: float
    precision: dict[str, float]
    """By stream: the share of reads that found their copy, over the last half of the rounds."""
    raw_error: float
    """Of the average over the whole history, from what is held."""
    cooked_error: float
    """The same from what is held and the summaries."""
    held: list[NDArray[np.bool_]] = field(default_factory=list)
    """After each round: which arrivals are held."""


class History:
    """Everything that arrives; values drift, so that forgetting a part of it shows in averages."""

    def __init__(self, total: int) -> None:
        random = np.random.default_rng(SEED)
        self.total = total
        self.value = 100 + 50 * np.sin(np.arange(total) / total * 9) + random.normal(0, 10, total)
        self.stratum = np.minimum(random.zipf(1.5, total), _STRATA) - 1
        self.instance = [number.to_bytes(8, "big") * 4 for number in range(total)]


def simulate(spark: SparkSession, name: str, churn: float, streams: list[str], budget: int, rounds: int) -> Outcome:
    """Let one fungus work; with several streams, reads must not matter to it."""
    fungus: Fungus = FUNGI[name]
    assert len(streams) == 1 or name not in READS_MATTER
    arrivals = int(budget * churn)
    history = History(budget + arrivals * rounds)
    held = np.zeros(history.total, dtype=bool)
    reads, last_read = np.zeros(history.total), np.full(history.total, -1)
    born, freshness = np.zeros(history.total, dtype=int), np.ones(history.total)
    held[:budget] = True
    arrived = budget
    hits: dict[str, list[float]] = {stream: [] for stream in streams}
    cooked_sum, cooked_count = 0.0, 0
    outcome = Outcome(name, churn, {}, 0.0, 0.0)
    random = np.random.default_rng(SEED)
    for tick in range(1, rounds + 1):
        held[arrived : arrived + arrivals] = True
        born[arrived : arrived + arrivals] = tick
        arrived += arrivals
        present = np.flatnonzero(held)
        copies = _copies(spark, history, present, born, reads, last_read, freshness)
        fresh = fungus(copies, SEED, tick).withColumn("scope", f.lit("node")).persist()
        excess = spark.createDataFrame([("node", len(present) - budget)], "scope string, excess long")
        victims = least_fresh(fresh, excess, f.lit(1), seed=SEED, tick=tick)
        gone = np.array([row.arrival for row in victims.select("arrival").toLocalIterator()], dtype=int)
        for row in fresh.select("arrival", "freshness").toLocalIterator():
            freshness[row.arrival] = row.freshness
        fresh.unpersist()
        added, count = _cook(spark, history, gone)
        cooked_sum, cooked_count = cooked_sum + added, cooked_count + count
        held[gone] = False
        for stream in streams:
            asked = STREAMS[stream](random, arrived, budget, READS_PER_ROUND)
            hits[stream].append(float(held[asked].mean()))
            found, times = np.unique(asked[held[asked]], return_counts=True)
            since = tick - np.where(last_read[found] < 0, tick, last_read[found])
            reads[found] = reads[found] * 0.5 ** (since / HALF_LIFE) + times
            last_read[found] = tick
        outcome.held.append(held[:arrived].copy())
    outcome.precision = {stream: float(np.mean(shares[rounds // 2 :])) for stream, shares in hits.items()}
    truth = float(history.value[:arrived].mean())
    outcome.raw_error = abs(float(history.value[held].mean()) / truth - 1)
    whole = (float(history.value[held].sum()) + cooked_sum) / (int(held.sum()) + cooked_count)
    outcome.cooked_error = abs(whole / truth - 1)
    return outcome


def _copies(spark: SparkSession, history: History, present: NDArray[np.int64], *state: NDArray[Any]) -> Any:
    born, reads, last_read, freshness = state
    rows = [
        (
            history.instance[n],
            f"s{history.stratum[n]}",
            int(n),
            int(born[n]),
            1,
            float(reads[n]),
            int(last_read[n]) if last_read[n] >= 0 else None,
            float(freshness[n]),
        )
        for n in present
    ]
    return spark.createDataFrame(rows, COPIES)


def _cook(spark: SparkSession, history: History, gone: NDArray[np.int64]) -> tuple[float, int]:
    """Sum and count of the values that go, from their summaries."""
    if not len(gone):
        return 0.0, 0
    rows = [
        (b"reader", b"owner", "s", "2020-01", history.instance[n], int(n), "value", 0, float(history.value[n]), None)
        for n in gone
    ]
    summaries = cook(spark.createDataFrame(rows, VALUES))
    total = summaries.agg(f.sum("sum").alias("sum"), f.sum("count").alias("count")).first()
    assert total is not None
    return float(total["sum"]), int(total["count"])


def simulate_all(spark: SparkSession, budget: int = 1000, rounds: int = 10) -> list[Outcome]:
    """Every fungus at little and at much churn."""
    outcomes = []
    for churn in (0.2, 0.8):
        # So that the hot range comes and is asked for in both, there are more rounds where fewer copies arrive in each.
        number = max(rounds, round(4 / churn))
        for name in FUNGI:
            if name not in READS_MATTER:
                outcomes.append(simulate(spark, name, churn, list(STREAMS), budget, number))
                continue
            parts = [simulate(spark, name, churn, [stream], budget, number) for stream in STREAMS]
            precision = {stream: share for part in parts for stream, share in part.precision.items()}
            parts[-1].precision = precision
            outcomes.append(parts[-1])
    return outcomes
