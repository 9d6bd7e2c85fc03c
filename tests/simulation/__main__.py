"""`python -m tests.simulation`: many seeds, or one again; what came of each goes to the terminal and into a log."""

import argparse
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.simulation.hostile import HostilePlan, simulate_hostile
from tests.simulation.run import simulate
from tests.simulation.world import Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them: a run of hours can be done in parts")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument(
        "--hostile", action="store_true", help="hosts that keep keys of others, instead of failing nodes"
    )
    parser.add_argument("--nodes", type=int, help="how many nodes: 20, hostile 3")
    parser.add_argument("--operations", type=int, help="how many operations or steps: 2000, hostile 14")
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    parser.add_argument("--log", type=Path, help="a file that the results are added to")
    chosen = parser.parse_args()
    seeds = [chosen.seed] if chosen.seed is not None else range(chosen.first, chosen.first + chosen.seeds)
    size = {"nodes": chosen.nodes, "steps" if chosen.hostile else "operations": chosen.operations}
    asked = {name: number for name, number in size.items() if number is not None}
    plans = [HostilePlan(seed, **asked) if chosen.hostile else Plan(seed, **asked) for seed in seeds]
    begun, failed = time.monotonic(), []

    def tell(text: str) -> None:
        print(text, flush=True)
        if chosen.log is not None:
            with chosen.log.open("a") as file:
                file.write(f"{text}\n")

    # A seed with failing nodes gets a process of its own; hostile ones take less time than to start one.
    with ProcessPoolExecutor(chosen.jobs, max_tasks_per_child=None if chosen.hostile else 1) as pool:
        running: dict[Future[Any], Any] = {
            (
                pool.submit(simulate_hostile, plan) if isinstance(plan, HostilePlan) else pool.submit(simulate, plan)
            ): plan
            for plan in plans
        }
        for number, future in enumerate(as_completed(running), 1):
            plan = running[future]
            try:
                result = future.result()
                text, is_good = str(result), not result.problems
            except Exception as error:  # noqa: BLE001  (the other seeds go on)
                text, is_good = f"seed {plan.seed}: {error!r}", False
            tell(f"[{number}/{len(plans)}] {text}")
            if not is_good:
                failed.append(plan.seed)
    what = f"{len(plans) - len(failed)} of {len(plans)} seeds as they should be, {time.monotonic() - begun:.0f} s"
    tell(what + (f"; not: {sorted(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
