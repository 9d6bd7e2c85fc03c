"""The demo as a newcomer runs it, Spark's start included: it is to end within three minutes on two cores."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row

SECONDS = 180.0


def rows() -> Iterator[Row]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "examples.demo"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stdout + done.stderr
    ratio, about = SECONDS / seconds, f"{seconds:.0f} s, from the command to its end"
    name, baseline = "demo: the whole story", "one in 180 s"
    yield Row(name, 1 / seconds, baseline, 1 / SECONDS, ratio, ">= 1.00", seconds <= SECONDS, about)
