"""Some seeds of the simulation of hosts that keep keys of others; `make simulate-hostile` runs 200."""

from collections import Counter

from tests.simulation.hostile import HostilePlan, simulate_hostile
from tests.support.tiers import amount


def test_nobody_is_taken_over_whose_words_are_in_the_drawer() -> None:
    met: Counter[str] = Counter()
    for seed in range(1, 1 + amount(3, 30)):
        result = simulate_hostile(HostilePlan(seed))
        assert not result.problems, str(result)
        met += result.done
    # What the checks are about has happened.
    assert met["entry 1 forked"] > 3
    assert met["key.contested"]
    assert met["rows stay although the log is forked"]
    assert met["taken over until overruled"]
    assert met["john is taken over"]
    assert met["john has ended"]
    assert met["older entries verify"] > 10


def test_same_seed_is_the_same_story() -> None:
    first, second = (simulate_hostile(HostilePlan(77, steps=4)) for _ in range(2))
    assert first.done == second.done
