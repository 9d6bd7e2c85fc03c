"""What must come out of the simulation, whatever the machine."""

from collections.abc import Iterable

from bench.rot.simulation import Outcome


def check_anchors(outcomes: Iterable[Outcome]) -> list[str]:
    """A sentence for every anchor that is not met."""
    failures = []
    by_churn: dict[float, dict[str, Outcome]] = {}
    for item in outcomes:
        by_churn.setdefault(item.churn, {})[item.fungus] = item
    for churn, fungi in by_churn.items():
        for name, item in fungi.items():
            found = item.precision["uniform"]
            if found > item.fair * 1.05:
                failures.append(f"{name} at {churn:.0%} beats budget/history: {found:.3f} > {item.fair:.3f}")
            if item.cooked_error >= 0.02:
                failures.append(f"{name} at {churn:.0%}: the cooked average is off by {item.cooked_error:.1%}")
        feed = {name: item.precision["feed"] for name, item in fungi.items()}
        if not 0.92 <= feed["fifo"] <= 0.98 or feed["fifo"] < feed.get("uniform", 0) + 0.1:
            failures.append(f"on a feed at {churn:.0%} fifo is at {feed['fifo']:.3f}, uniform at {feed['uniform']:.3f}")
        hot = {name: item.precision["hot"] for name, item in fungi.items()}
        best = max(share for name, share in hot.items() if name != "rot")
        if hot["rot"] < 1.4 * best:
            failures.append(f"on a hot range at {churn:.0%} rot is at {hot['rot']:.3f}, the best other at {best:.3f}")
    return failures
