"""The slothmail story as a newcomer plays it: real nodes, real Spark, every step checked by the story itself."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_demo_runs_and_ends_well() -> None:
    command = [sys.executable, "-m", "examples.demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything was as it should be" in done.stdout
    assert "<Subject>" in done.stdout
    forgery = done.stdout.partition("entry.bad-signature")[2].partition("8/11")[0]
    assert "as jane.haiku.ink sees it" in forgery, "the view is shown after the refusal"
    assert "recipient: create" in done.stdout
    # How long it may take is measured by `python -m bench demo`, on a machine that does nothing else.
    assert re.search(r"in \d+ seconds\.", done.stdout)
