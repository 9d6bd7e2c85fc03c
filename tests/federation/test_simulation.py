"""Ten seeds of the simulation, smaller than those of `make simulate`, which take minutes each."""

import pytest

from tests.simulation.run import simulate
from tests.simulation.world import Plan


@pytest.mark.parametrize("seed", range(1, 11))
def test_everybody_holds_what_they_should_when_all_is_delivered(seed: int) -> None:
    result = simulate(Plan(seed, nodes=6 + seed % 5, operations=120))
    assert not result.problems, str(result)
    assert result.done["create"] > 10
    assert result.requests > 50


def test_same_seed_is_the_same_story() -> None:
    first, second = (simulate(Plan(77, nodes=5, operations=60)) for _ in range(2))
    assert (first.done, first.requests) == (second.done, second.requests)
