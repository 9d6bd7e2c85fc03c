"""Runs one seed: a template of an empty store, a world on it, and what is wrong with it in the end."""

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import structlog

from inkgrove.node.runtime import Node
from tests.simulation.checks import Check
from tests.simulation.nodes import SETTINGS, VAULT
from tests.simulation.virtual import VirtualLoop
from tests.simulation.world import Plan, World

_MEMORY = Path("/dev/shm")
"""Where the stores are, if there is such a place: the simulation is about nodes, not about disks."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a seed."""

    plan: Plan
    problems: list[str]
    done: Counter[str]
    requests: int
    seconds: float
    """Of the processor."""

    def __str__(self) -> str:
        plan = self.plan
        what = f"seed {plan.seed}: {plan.nodes} nodes, {plan.operations} operations, {self.requests} requests"
        text = f"{what}, {self.seconds:.1f} s: " + ("as it should be" if not self.problems else "NOT AS IT SHOULD BE")
        if self.problems:
            text += "".join(f"\n  {problem}" for problem in self.problems[:20])
            command = (
                f"python -m tests.simulation --seed {plan.seed} --nodes {plan.nodes} --operations {plan.operations}"
            )
            text += f"\n  {len(self.problems)} problems; to replay: {command}"
        return text


def simulate(plan: Plan) -> Result:
    """Play a plan and compare the end with what should be."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    begun = time.process_time()
    home = Path(tempfile.mkdtemp(prefix="inkgrove-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        template = home / "template"
        Node(template, SETTINGS, home=template, vault=VAULT).close()
        loop = VirtualLoop()
        asyncio.set_event_loop(loop)
        try:
            world: World | None = None

            async def play() -> World:
                nonlocal world
                world = World(plan, template, home, loop)
                await world.run()
                return world

            played = loop.run_until_complete(play())
            problems = Check(played).problems()
            return Result(plan, problems, played.done, played.network.carried, time.process_time() - begun)
        finally:
            if world is not None:
                world.stop()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            asyncio.set_event_loop(None)
    finally:
        shutil.rmtree(home, ignore_errors=True)
