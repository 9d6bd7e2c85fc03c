"""Rounds of arrivals, rot and reads; what readers miss, and how far averages are off, raw and with cooking.

The fungi, the choice of victims and the cooking are the real ones. Of each round one table goes to Spark and one comes
back. Where reads matter to a fungus, every stream of reads has copies of its own, all in the same table.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.rot.streams import STREAMS
from inkgrove.pipeline.rot.cook import VALUES, cook
from inkgrove.pipeline.rot.copies import HALF_LIFE
from inkgrove.pipeline.rot.registry import FUNGI
from inkgrove.pipeline.rot.victims import find_cuts, is_cut

SEED: Final = 20
READS_PER_ROUND: Final = 2000
READS_MATTER: Final = frozenset({"rot", "overexposed"})
_STRATA: Final = 20
_ALL_STREAMS: Final = "all"


@dataclass
class Outcome:
    """What one fungus did to one history."""

    fungus: str
    churn: float
    precision: dict[str, float] = field(default_factory=dict)
    """By stream: the share of reads that found their copy, over the last half of the rounds."""
    raw_error: float = 0.0
    """Of the average over the whole history, from what is held."""
    cooked_error: float = 0.0
    """The same from what is held and the summaries."""
    fair: float = 0.0
    """Budget through history, over the last half of the rounds."""
    held: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """At the end: which arrivals are held."""


class History:
    """Everything that arrives; values drift, so that forgetting a part of it shows in averages."""

    def __init__(self, total: int) -> None:
        random = np.random.default_rng(SEED)
        self.value = 100 + 50 * np.sin(np.arange(total) / total * 9) + random.normal(0, 10, total)
        self.stratum = [f"s{min(number, _STRATA)}" for number in random.zipf(1.5, total)]


class Shelf:
    """The copies that readers of one stream see, with all that is known of each arrival."""

    def __init__(self, total: int, budget: int) -> None:
        self.held = np.zeros(total, dtype=bool)
        self.held[:budget] = True
        self.reads = np.zeros(total)
        self.last_read = np.full(total, -1)
        self.born = np.zeros(total, dtype=np.int64)
        self.freshness = np.ones(total)

    def arrive(self, first: int, end: int, tick: int) -> None:
        self.held[first:end] = True
        self.born[first:end] = tick

    def read(self, asked: NDArray[np.int64], tick: int) -> None:
        found, times = np.unique(asked[self.held[asked]], return_counts=True)
        since = tick - np.where(self.last_read[found] < 0, tick, self.last_read[found])
        self.reads[found] = self.reads[found] * 0.5 ** (since / HALF_LIFE) + times
        self.last_read[found] = tick


def simulate(spark: SparkSession, name: str, churn: float, budget: int, rounds: int) -> Outcome:
    """Let one fungus work on a history with so many arrivals in each round, as a share of the budget."""
    arrivals = int(budget * churn)
    total = budget + arrivals * rounds
    history = History(total)
    scopes = list(STREAMS) if name in READS_MATTER else [_ALL_STREAMS]
    shelves = {scope: Shelf(total, budget) for scope in scopes}
    random = np.random.default_rng(SEED)
    hits: dict[str, list[float]] = {stream: [] for stream in STREAMS}
    shares: list[float] = []
    dropped: list[tuple[int, NDArray[np.int64]]] = []
    arrived = budget
    for tick in range(1, rounds + 1):
        for shelf in shelves.values():
            shelf.arrive(arrived, arrived + arrivals, tick)
        arrived += arrivals
        gone = _rot(spark, name, history, shelves, tick, budget)
        dropped.append((tick, gone[scopes[0]]))
        for stream, draw in STREAMS.items():
            shelf = shelves.get(stream) or shelves[scopes[0]]
            asked = draw(random, arrived, budget, READS_PER_ROUND)
            hits[stream].append(float(shelf.held[asked].mean()))
            shelf.read(asked, tick)
        shares.append(budget / arrived)
    late = slice(rounds // 2, None)
    outcome = Outcome(name, churn, {stream: float(np.mean(found[late])) for stream, found in hits.items()})
    outcome.fair = float(np.mean(shares[late]))
    outcome.held = shelves[scopes[0]].held
    truth = float(history.value.mean())
    kept = history.value[outcome.held]
    outcome.raw_error = abs(float(kept.mean()) / truth - 1)
    cooked_sum, cooked_count = _cook(spark, history, dropped)
    outcome.cooked_error = abs((float(kept.sum()) + cooked_sum) / (len(kept) + cooked_count) / truth - 1)
    return outcome


def _rot(
    spark: SparkSession, name: str, history: History, shelves: dict[str, Shelf], tick: int, budget: int
) -> dict[str, NDArray[np.int64]]:
    """One round: the arrivals that went, by scope."""
    tables = [_table(number, scope, history, shelf) for number, (scope, shelf) in enumerate(shelves.items())]
    copies = spark.createDataFrame(pa.concat_tables(tables))
    fresh = FUNGI[name](copies, SEED, tick)
    excess = spark.createDataFrame(
        pa.table(
            {
                "scope": list(shelves),
                "excess": pa.array([int(shelf.held.sum()) - budget for shelf in shelves.values()], pa.int64()),
            }
        )
    )
    cuts = find_cuts(fresh, excess, f.lit(1), seed=SEED, tick=tick)
    placed = fresh.join(f.broadcast(cuts), on="scope", how="left")
    result = placed.select("scope", "arrival", "freshness", is_cut(SEED, tick).alias("goes")).toArrow().to_pandas()
    gone = {}
    for scope, shelf in shelves.items():
        own = result[result["scope"] == scope]
        places = own["arrival"].to_numpy()
        shelf.freshness[places] = own["freshness"].to_numpy()
        gone[scope] = places[own["goes"].to_numpy(dtype=bool)]
        shelf.held[gone[scope]] = False
    return gone


def _table(number: int, scope: str, history: History, shelf: Shelf) -> pa.Table:
    places = np.flatnonzero(shelf.held)
    last_read = shelf.last_read[places]
    columns: dict[str, Any] = {
        "instance": pa.array([bytes([number]) + int(place).to_bytes(8, "big") for place in places], pa.binary()),
        "stratum": [f"{number} {history.stratum[place]}" for place in places],
        "arrival": pa.array(places, pa.int64()),
        "born": pa.array(shelf.born[places], pa.int64()),
        "bytes": pa.array(np.ones(len(places)), pa.int64()),
        "reads": pa.array(shelf.reads[places], pa.float64()),
        "last_read": pa.array(last_read, pa.int64(), mask=last_read < 0),
        "freshness": pa.array(shelf.freshness[places], pa.float64()),
        "scope": [scope] * len(places),
    }
    return pa.table(columns)


def _cook(spark: SparkSession, history: History, dropped: list[tuple[int, NDArray[np.int64]]]) -> tuple[float, int]:
    """Sum and count of the values that went, from the summaries of every round."""
    ticks = np.concatenate([np.full(len(places), tick) for tick, places in dropped])
    places = np.concatenate([places for _, places in dropped])
    count = len(places)
    values = pa.table(
        {
            "reader": pa.array([b"r"] * count, pa.binary()),
            "owner": pa.array([b"o"] * count, pa.binary()),
            "schema": pa.array(ticks, pa.int64()),  # so that each round has summaries of its own
            "month": ["2026-01"] * count,
            "field": ["value"] * count,
            "instance": pa.array([int(place).to_bytes(8, "big") for place in places], pa.binary()),
            "arrival": pa.array(places, pa.int64()),
            "bytes": pa.array(np.zeros(count), pa.int64()),
            "number": pa.array(history.value[places], pa.float64()),
            "text": pa.nulls(count, pa.string()),
        }
    )
    summaries = cook(spark.createDataFrame(values, VALUES)).toArrow().to_pandas()
    return float(summaries["sum"].sum()), int(summaries["count"].sum())


def simulate_all(spark: SparkSession, budget: int = 1000, rounds: int = 10) -> list[Outcome]:
    """Every fungus at little and at much churn."""
    # For tables this small, compiling a plan takes longer than running it.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    # So that the hot range comes and is asked for in both, there are more rounds where fewer copies arrive in each.
    return [
        simulate(spark, name, churn, budget, max(rounds, round(4 / churn))) for churn in (0.2, 0.8) for name in FUNGI
    ]
