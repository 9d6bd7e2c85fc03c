"""Runs two things in turn and compares them: rounds alternate, so noise falls on both alike."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    name: str
    rate: float
    """Items per second of what is measured."""
    baseline: str
    baseline_rate: float
    ratio: float
    target: str
    is_met: bool
    note: str = ""


def compare(
    measured: Callable[[], object], baseline: Callable[[], object], items: int, rounds: int = 15
) -> tuple[float, float, float]:
    """Items per second of both, and the median over the rounds of measured rate / baseline rate."""
    measured()
    baseline()
    pairs = [(_seconds(baseline), _seconds(measured)) for _ in range(rounds)]
    base = median(seconds for seconds, _ in pairs)
    ours = median(seconds for _, seconds in pairs)
    return items / ours, items / base, median(b / m for b, m in pairs)


def _seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start
