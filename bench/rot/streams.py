"""What readers ask for: positions in the history, drawn anew in every round."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Draw = Callable[[np.random.Generator, int, int, int], NDArray[np.int64]]
"""(random, arrivals so far, budget, how many) -> the arrivals that are asked for."""

HOT_START: Final = 2.0
HOT_WIDTH: Final = 0.25
"""The hot range, in budgets: it arrives when twice the budget has gone by."""


def uniform_history(random: np.random.Generator, arrived: int, budget: int, count: int) -> NDArray[np.int64]:
    """Anything that ever arrived."""
    return random.integers(0, arrived, count)


def feed(random: np.random.Generator, arrived: int, budget: int, count: int) -> NDArray[np.int64]:
    """The newest most of all: 95 of 100 reads are of the newest `budget` arrivals."""
    age = random.exponential(budget / 3.0, count)
    return (arrived - 1 - np.minimum(age, arrived - 1)).astype(np.int64)


def hot_range(random: np.random.Generator, arrived: int, budget: int, count: int) -> NDArray[np.int64]:
    """One stretch of the history, from the moment it has arrived; nine of ten reads, the rest anything."""
    start, end = int(HOT_START * budget), int((HOT_START + HOT_WIDTH) * budget)
    anything = random.integers(0, arrived, count)
    if arrived < end:
        return anything
    return np.where(random.random(count) < 0.9, random.integers(start, end, count), anything)


def zipf(random: np.random.Generator, arrived: int, budget: int, count: int) -> NDArray[np.int64]:
    """A few favourites all over the history, the same ones in every round."""
    rank = np.minimum(random.zipf(1.3, count), 8 * budget) - 1
    # Scattered over the history by a fixed multiplication; a favourite that has not arrived yet is not asked for.
    place = (rank * 2_654_435_761) % (8 * budget)
    return np.where(place < arrived, place, random.integers(0, arrived, count)).astype(np.int64)


STREAMS: Final[dict[str, Draw]] = {"uniform": uniform_history, "feed": feed, "hot": hot_range, "zipf": zipf}
