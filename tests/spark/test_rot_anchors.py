"""A small version of the simulation in bench/rot: the fungi keep what they are for, and cooking keeps averages."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.rot.anchors import check_anchors
from bench.rot.simulation import Outcome, simulate


@pytest.fixture
def outcomes(spark: SparkSession, tmp_path: Path) -> list[Outcome]:
    before = {name: spark.conf.get(name) for name in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled")}
    for name in before:
        spark.conf.set(name, "false")
    found = [simulate(spark, name, 0.8, 400, 8) for name in ("fifo", "uniform", "rot")]
    for name, old in before.items():
        spark.conf.set(name, old or "")
    return found


def test_anchors_come_out(outcomes: list[Outcome]) -> None:
    assert check_anchors(outcomes) == []
    by_name = {item.fungus: item for item in outcomes}
    assert by_name["fifo"].raw_error > 0.02  # so that cooking has something to mend
    assert all(item.held.sum() == 400 for item in outcomes)  # the budget is met exactly
