"""Runs the shell blocks of a page against a node and compares what they print with what the page shows.

A block of ```sh is run; the block of ```json or ```text that follows it, if only a blank line is between, is what it
prints. `…` stands for anything on a line. All blocks of a page run in one shell, in order.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8750"
_BLOCKS = re.compile(r"^```sh\n(.*?)^```\n(?:\n?^```(?:json|text)\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_MARK = "\x01"


@dataclass(frozen=True)
class Step:
    """One block, and what it should print; None if the page does not show it."""

    script: str
    shown: str | None


def read_steps(page: str) -> list[Step]:
    """The steps of a page in order."""
    return [Step(match[1], match[2]) for match in _BLOCKS.finditer(page)]


def run_page(file: Path, url: str, folder: Path) -> list[str]:
    """What went otherwise than the page says, step by step; empty if all is as shown."""
    steps = read_steps(file.read_text().replace(DEFAULT_URL, url))
    assert steps, f"{file.name} has no shell blocks"
    script = "set -euo pipefail\n" + "".join(f"{step.script}\nprintf '{_MARK}'\n" for step in steps)
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"},
    )
    printed = done.stdout.split(_MARK)
    complaints = []
    for number, step in enumerate(steps):
        if number >= len(printed) - 1:
            complaints.append(f"failed with exit code {done.returncode}:\n{step.script}{printed[-1]}{done.stderr}")
            break
        if step.shown is not None and not matches(step.shown, printed[number]):
            complaints.append(f"{step.script}printed\n{printed[number]}and the page shows\n{step.shown}")
    return complaints


def matches(shown: str, printed: str) -> bool:
    """Whether a text is what is shown, `…` standing for anything on its line."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip().replace("\r", "")) is not None
