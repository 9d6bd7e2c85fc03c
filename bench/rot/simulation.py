"""Rounds of arrivals, rot and reads; what readers miss, and how far averages are off, raw and with cooking.

The fungi, the choice of victims and the cooking are the real ones. Of each round one table goes to Spark and one comes
back, with the copies of all fungi: for tables this small, to begin costs more than to compute. Where reads matter to a
fungus, every stream of reads has copies of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import cycle
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.rot.streams import STREAMS
from inkgrove.pipeline.rot.cooking import cook
from inkgrove.pipeline.rot.fungi import FUNGI, HALF_LIFE
from inkgrove.pipeline.rot.plan import find_cuts, is_cut
from inkgrove.pipeline.tables import VALUES, spark_schema

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


class Case:
    """One fungus at work on one history, with so many arrivals in each round as a share of the budget."""

    def __init__(self, fungus: str, churn: float, budget: int, rounds: int) -> None:
        self.fungus, self.churn, self.budget, self.rounds = fungus, churn, budget, rounds
        self.arrivals = int(budget * churn)
        total = budget + self.arrivals * rounds
        self.history = History(total)
        scopes = list(STREAMS) if fungus in READS_MATTER else [_ALL_STREAMS]
        self.shelves = {f"{fungus} {churn} {scope}": Shelf(total, budget) for scope in scopes}
        self.by_stream = dict(zip(STREAMS, cycle(self.shelves.values()), strict=False))
        self.random = np.random.default_rng(SEED)
        self.hits: dict[str, list[float]] = {stream: [] for stream in STREAMS}
        self.shares: list[float] = []
        self.dropped: list[tuple[int, NDArray[np.int64]]] = []
        self.arrived = budget

    def arrive(self, tick: int) -> None:
        for shelf in self.shelves.values():
            shelf.arrive(self.arrived, self.arrived + self.arrivals, tick)
        self.arrived += self.arrivals

    def read(self, tick: int) -> None:
        for stream, draw in STREAMS.items():
            shelf = self.by_stream[stream]
            asked = draw(self.random, self.arrived, self.budget, READS_PER_ROUND)
            self.hits[stream].append(float(shelf.held[asked].mean()))
            shelf.read(asked, tick)
        self.shares.append(self.budget / self.arrived)

    def end(self, cooked: tuple[float, int]) -> Outcome:
        """What came of it; `cooked` are sum and count of what went, as the summaries have them."""
        late = slice(self.rounds // 2, None)
        shares = {stream: float(np.mean(found[late])) for stream, found in self.hits.items()}
        outcome = Outcome(self.fungus, self.churn, shares, fair=float(np.mean(self.shares[late])))
        outcome.held = next(iter(self.shelves.values())).held
        truth = float(self.history.value.mean())
        kept = self.history.value[outcome.held]
        outcome.raw_error = abs(float(kept.mean()) / truth - 1)
        outcome.cooked_error = abs((float(kept.sum()) + cooked[0]) / (len(kept) + cooked[1]) / truth - 1)
        return outcome


def simulate(spark: SparkSession, cases: Sequence[Case]) -> list[Outcome]:
    """Round by round, all cases at once, each for as many rounds as it has."""
    for tick in range(1, max(case.rounds for case in cases) + 1):
        at_work = [case for case in cases if tick <= case.rounds]
        for case in at_work:
            case.arrive(tick)
        _rot(spark, at_work, tick)
        for case in at_work:
            case.read(tick)
    return [case.end(cooked) for case, cooked in zip(cases, _cook(spark, cases), strict=True)]


def _rot(spark: SparkSession, cases: Sequence[Case], tick: int) -> None:
    """One round: what goes is held no longer, and written down."""
    fresh, excess, number = [], {}, 0
    for case in cases:
        tables = []
        for scope, shelf in case.shelves.items():
            tables.append(_table(number, scope, case.history, shelf))
            excess[scope] = int(shelf.held.sum()) - case.budget
            number += 1
        fresh.append(FUNGI[case.fungus](spark.createDataFrame(pa.concat_tables(tables)), SEED, tick))
    # Looked at more than once below; one small task is quicker than many.
    copies = reduce(DataFrame.unionByName, fresh).coalesce(1).localCheckpoint()
    over = spark.createDataFrame(pa.table({"scope": list(excess), "excess": pa.array(excess.values(), pa.int64())}))
    placed = copies.join(f.broadcast(find_cuts(copies, over, f.lit(1), seed=SEED, tick=tick)), on="scope", how="left")
    result = placed.select("scope", "arrival", "freshness", is_cut(SEED, tick).alias("goes")).toArrow().to_pandas()
    by_scope = dict(list(result.groupby("scope")))
    for case in cases:
        gone = []
        for scope, shelf in case.shelves.items():
            own = by_scope[scope]
            places = own["arrival"].to_numpy()
            shelf.freshness[places] = own["freshness"].to_numpy()
            gone.append(places[own["goes"].to_numpy(dtype=bool)])
            shelf.held[gone[-1]] = False
        case.dropped.append((tick, gone[0]))


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


def _cook(spark: SparkSession, cases: Sequence[Case]) -> list[tuple[float, int]]:
    """Of each case, sum and count of the values that went, from the summaries of every round."""
    tables = []
    for number, case in enumerate(cases):
        ticks = np.concatenate([np.full(len(places), tick) for tick, places in case.dropped])
        places = np.concatenate([places for _, places in case.dropped])
        count = len(places)
        columns: dict[str, Any] = {
            "reader": pa.array([b"r"] * count, pa.binary()),
            "owner": pa.array([bytes([number])] * count, pa.binary()),
            "schema": pa.array(ticks, pa.int64()),  # so that each round has summaries of its own
            "month": ["2026-01"] * count,
            "field": ["value"] * count,
            "instance": pa.array([int(place).to_bytes(8, "big") for place in places], pa.binary()),
            "arrival": pa.array(places, pa.int64()),
            "bytes": pa.array(np.zeros(count), pa.int64()),
            "number": pa.array(case.history.value[places], pa.float64()),
            "text": pa.nulls(count, pa.string()),
        }
        tables.append(pa.table(columns))
    summaries = cook(spark.createDataFrame(pa.concat_tables(tables), spark_schema(VALUES))).toArrow().to_pandas()
    by_owner = dict(list(summaries.groupby("owner")))
    found = [by_owner[bytes([number])] for number in range(len(cases))]
    return [(float(own["sum"].sum()), int(own["count"].sum())) for own in found]


def simulate_all(spark: SparkSession, budget: int = 1000, rounds: int = 10) -> list[Outcome]:
    """Every fungus at little and at much churn."""
    # For tables this small, compiling a plan takes longer than running it.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    # So that the hot range comes and is asked for in both, there are more rounds where fewer copies arrive in each.
    cases = [Case(name, churn, budget, max(rounds, round(4 / churn))) for churn in (0.2, 0.8) for name in FUNGI]
    return simulate(spark, cases)
