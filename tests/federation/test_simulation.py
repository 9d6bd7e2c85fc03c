"""Some seeds of the simulation, each of full size; `make simulate` runs 200."""

import pytest

from tests.simulation.run import simulate
from tests.simulation.world import Plan
from tests.support.tiers import amount


@pytest.mark.parametrize("seed", range(1, 1 + amount(3, 10)))
def test_everybody_holds_what_they_should_when_all_is_delivered(seed: int) -> None:
    result = simulate(Plan(seed, nodes=20, operations=2000))
    assert not result.problems, str(result)
    assert result.done["create"] > 100
    assert result.requests > 1000


def test_same_seed_is_the_same_story() -> None:
    first, second = (simulate(Plan(77, nodes=5, operations=60)) for _ in range(2))
    assert (first.done, first.requests) == (second.done, second.requests)
