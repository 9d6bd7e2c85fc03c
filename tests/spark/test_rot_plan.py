"""A plan over copies in every state: what is guarded stays, budgets are met exactly, and it is the same every time."""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from inkgrove.pipeline.rot.fungi import FUNGI
from inkgrove.pipeline.rot.plan import Moment, decide
from inkgrove.pipeline.rot.policy import Limits, Policy
from inkgrove.pipeline.tables import STORED_COPIES
from inkgrove.store.db import LADDER, SHOWN
from inkgrove.store.rot import HARD_GUARDS, SOFT_GUARDS
from tests.support.tiers import amount

NOW = 1_600_000_000_000_000
SECOND = 1_000_000
Row = dict[str, Any]
pytestmark = pytest.mark.usefixtures("quick")


def any_copy(source: random.Random, number: int) -> Row:
    step = source.choice([*SHOWN, *LADDER])
    return {
        "instance": source.randbytes(66),
        "log": number % 5,
        "create_seq": number,
        "owner": bytes([source.randint(1, 3)]) * 32,
        "schema": source.randint(1, 3),
        "arrival": number,
        "born": source.randint(1, 9),
        "noted": NOW,
        "payload_bytes": source.randint(1, 500) if step in SHOWN else source.choice([0, 0, 100]),
        "blob_bytes": source.choice([0, 0, 2000]) if step == "full" else 0,
        "reads": float(source.choice([0, 0, 1, 5])),
        "last_read": source.choice([None, 3, 8]),
        "new_reads": source.choice([0, 0, 2]),
        "freshness": source.random(),
        "step": step,
        "changed": NOW - source.randint(0, 200) * SECOND,
        "expires": source.choice([None, None, None, NOW - 1, NOW + SECOND]),
        "ended": source.choice([None, None, None, NOW - 500 * SECOND]),
        "cooked": None,
        "guard": source.choice([None, None, None, *HARD_GUARDS, *SOFT_GUARDS]),
    }


def any_policy(source: random.Random, fungus: str, copies: list[Row]) -> Policy:
    """Two of the six kinds of budgets."""
    held = sum(copy["payload_bytes"] + copy["blob_bytes"] for copy in copies)
    kinds: list[dict[str, Any]] = [
        {"node": Limits(bytes=held // 2)},
        {"node": Limits(rows=60)},
        {"per_identity": Limits(bytes=held // 6)},
        {"per_identity": Limits(rows=25)},
        {"per_schema": Limits(bytes=held // 4)},
        {"per_schema": Limits(rows=30)},
    ]
    first, second = source.sample(kinds, 2)
    return Policy(fungus=fungus, cooked_seconds=50, absence_seconds=100, **(first | second))


def plan(spark: SparkSession, copies: list[Row], policy: Policy) -> dict[bytes, Row]:
    table = spark.createDataFrame(pa.Table.from_pylist(copies, STORED_COPIES))
    found = decide(table, policy, {}, Moment(7, 9, NOW)).select("instance", "to_step", "why", "freshness").toArrow()
    return {row["instance"]: row for row in found.to_pylist()}


@pytest.mark.parametrize("seed", range(amount(3, len(FUNGI))))
def test_nothing_guarded_ever_moves_whatever_the_policy(spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    copies = [any_copy(source, number) for number in range(250)]
    policy = any_policy(source, list(FUNGI)[seed], copies)
    planned = plan(spark, copies, policy)
    assert planned.keys() == {copy["instance"] for copy in copies}
    moved = Counter[str]()
    for copy in copies:
        to_step = planned[copy["instance"]]["to_step"]
        is_expired = copy["expires"] is not None and copy["expires"] <= NOW
        if to_step is not None:
            moved[copy["guard"] or "free"] += 1
            assert copy["guard"] not in HARD_GUARDS
            # What can be turned off spares what is shown, and does not hold what has expired.
            assert copy["guard"] is None or is_expired or copy["step"] not in SHOWN
            assert LADDER.index(to_step) >= LADDER.index(copy["step"])
        elif is_expired and copy["step"] in SHOWN:
            assert copy["guard"] in HARD_GUARDS
    assert moved["free"] > 0
    # However the rows lie, and whoever computes it.
    source.shuffle(copies)
    assert plan(spark, copies, policy) == planned


@pytest.mark.parametrize("fungus", ["uniform", "egi"])
def test_budget_is_met_with_no_victim_too_many(spark: SparkSession, fungus: str) -> None:
    source = random.Random(fungus)
    plain = {"step": "full", "blob_bytes": 0, "expires": None, "ended": None}
    copies = [any_copy(source, number) | plain | {"payload_bytes": source.randint(1, 500)} for number in range(250)]
    size = {copy["instance"]: copy["payload_bytes"] for copy in copies}
    limit = sum(size.values()) * 4 // 5
    planned = plan(spark, copies, Policy(fungus=fungus, node=Limits(bytes=limit)))
    gone = [name for name, row in planned.items() if row["to_step"] is not None]
    held = sum(size.values()) - sum(size[name] for name in gone)
    assert held <= limit < held + max(size[name] for name in gone)
    freshest = max(gone, key=lambda name: planned[name]["freshness"])
    assert held + size[freshest] > limit
    free = {copy["instance"] for copy in copies if copy["guard"] is None}
    stays = [planned[name]["freshness"] for name in free if name not in gone]
    assert planned[freshest]["freshness"] <= min(stays)
