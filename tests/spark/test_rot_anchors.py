"""A small version of the simulation in bench/rot: the fungi keep what they are for, and cooking keeps averages."""

import pytest
from pyspark.sql import SparkSession

from bench.rot.anchors import check_anchors
from bench.rot.simulation import Case, simulate
from inkgrove.pipeline.rot.fungi import FUNGI
from tests.support.tiers import IS_THOROUGH

BUDGET = 400


@pytest.mark.usefixtures("quick")
def test_anchors_come_out(spark: SparkSession) -> None:
    # At little churn there are many rounds: of the fungi those that come nearest to an anchor.
    little = [Case(name, 0.2, BUDGET, 20) for name in ("fifo", "uniform", "area", "rot") if IS_THOROUGH]
    outcomes = simulate(spark, [*little, *(Case(name, 0.8, BUDGET, 6) for name in FUNGI)])
    assert check_anchors(outcomes) == []
    by_case = {(item.fungus, item.churn): item for item in outcomes}
    assert by_case["fifo", 0.8].raw_error > 0.02  # so that cooking has something to mend
    assert all(item.held.sum() == BUDGET for item in outcomes)  # the budget is met exactly
