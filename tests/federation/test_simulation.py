"""Some seeds of the simulation: small ones, and in the second tier ten of full size; `make simulate` runs 200."""

import pytest

from tests.simulation.run import simulate
from tests.simulation.world import Plan
from tests.support.tiers import amount

NODES, OPERATIONS = amount(8, 20), amount(300, 2000)


@pytest.mark.parametrize("seed", range(1, 1 + amount(3, 10)))
def test_everybody_holds_what_they_should_when_all_is_delivered(seed: int) -> None:
    result = simulate(Plan(seed, nodes=NODES, operations=OPERATIONS))
    assert not result.problems, str(result)
    assert result.done["create"] > OPERATIONS // 20
    assert result.done["crash"]
    assert result.done["partition"]
    assert result.requests > OPERATIONS // 2


def test_same_seed_is_the_same_story() -> None:
    first, second = (simulate(Plan(77, nodes=5, operations=60)) for _ in range(2))
    assert (first.done, first.requests) == (second.done, second.requests)
