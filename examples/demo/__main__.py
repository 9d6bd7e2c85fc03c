"""The slothmail story (`make demo`): three nodes, one pipeline, a mail that outlives four versions of its schema.

Everything is real: `inkgrove serve` processes that do not trust each other, and Spark, which keeps their views.
Every step is checked; if anything is not as it should be, the demo says so and ends with exit code 1.
`--stay` (`make up`) leaves it running.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from examples.demo.story import NotAsItShouldBe, Story
from examples.demo.telling import Teller
from examples.demo.world import Refused, running
from inkgrove.core.errors import InkgroveError


def main() -> int:
    """Play it."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="The slothmail story, step by step.")
    parser.add_argument("--stay", action="store_true", help="leave nodes and pipeline running until Ctrl-C")
    stay = parser.parse_args().stay
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 110
    teller = Teller(console)
    folder = Path(tempfile.mkdtemp(prefix="inkgrove-demo-"))
    start = time.monotonic()
    try:
        with teller.doing("starting the nodes of haiku.ink, sloth.example and poem.example"), running(folder) as world:
            teller.stop_waiting()
            Story(world, teller).play()
            console.print(f"\n[green]Everything was as it should be[/], in {time.monotonic() - start:.0f} seconds.\n")
            teller.where_next(world, stay=stay)
            if stay:
                world.haiku.start()  # somebody has mended it
                _until_interrupted()
    except (NotAsItShouldBe, Refused, InkgroveError, RuntimeError) as error:
        console.print(f"\n[red]not as it should be:[/] {error}")
        console.print(f"The logs of the nodes and of Spark are in {folder}.", style="dim")
        return 1
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _until_interrupted() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    sys.exit(main())
