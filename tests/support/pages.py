"""Runs the blocks of a page against a node and compares what they print with what the page shows.

A block of ```sh or ```python is run; the block of ```json or ```text that follows it, if only a blank line is between,
is what it prints. `…` stands for anything on a line. All shell blocks of a page run in one shell, in order; on a page
with Python, all Python blocks run in one namespace, and each shell block in a shell of its own.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from traceback import format_exc

DEFAULT_URL = "http://127.0.0.1:8750"
_BLOCKS = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n?^```(?:json|text)\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_START = re.compile(r"^```text\n((?:export .*\n)+)((?:echo .*\n)*)(?:\.venv/bin/)?inkgrove up\n```$", re.MULTILINE)
_MARK = "\x01"


@dataclass(frozen=True)
class Step:
    """One block, and what it should print; None if the page does not show it."""

    script: str
    shown: str | None
    language: str = "sh"


def read_steps(page: str) -> list[Step]:
    """The steps of a page in order."""
    return [Step(match[2], match[3], match[1]) for match in _BLOCKS.finditer(page)]


def read_start(file: Path) -> dict[str, str]:
    """The settings of the node that a page starts in another terminal, as the block with `inkgrove up` exports them."""
    found = _START.search(file.read_text())
    assert found is not None, f"{file.name} does not say how its node is started"
    command = ["bash", "-c", f"{found[1]}env"]
    exported = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True)
    pairs = (line.split("=", 1) for line in exported.stdout.splitlines() if line.startswith("INKGROVE_NODE_"))
    return {name.removeprefix("INKGROVE_NODE_").lower(): value for name, value in pairs}


def make_people(file: Path, home: Path) -> None:
    """Make the identities that the operator of a page makes before the node starts, in its home."""
    found = _START.search(file.read_text())
    assert found is not None, f"{file.name} does not say how its node is started"
    script = "set -euo pipefail\n" + found[2].replace(".venv/bin/inkgrove", "inkgrove")
    environment = {**page_environment(home.parent), "INKGROVE_HOME": str(home)}
    subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120)


def run_page(file: Path, urls: str | Mapping[str, str], folder: Path) -> list[str]:
    """What went otherwise than the page says, step by step; empty if all is as shown.

    `urls` is where the node is that the page calls DEFAULT_URL, or where each of several is.
    """
    steps = _steps_of(file, urls)
    if any(step.language == "python" for step in steps):
        return _run_in_turn(file, steps, folder)
    script = "set -euo pipefail\n" + "".join(f"{step.script}\nprintf '{_MARK}'\n" for step in steps)
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env=page_environment(folder),
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


def _steps_of(file: Path, urls: str | Mapping[str, str]) -> list[Step]:
    page = file.read_text()
    for shown, real in ({DEFAULT_URL: urls} if isinstance(urls, str) else urls).items():
        page = page.replace(shown, real)
    steps = read_steps(page)
    assert steps, f"{file.name} has no blocks to run"
    return steps


def _run_in_turn(file: Path, steps: list[Step], folder: Path) -> list[str]:
    names: dict[str, object] = {"__name__": "__main__"}
    complaints = []
    with chdir(folder):
        for step in steps:
            try:
                printed = _run_python(file, step, names) if step.language == "python" else _run_shell(step, folder)
            except Exception:  # noqa: BLE001  whatever a page does wrong is told
                complaints.append(f"failed:\n{step.script}{format_exc()}")
                break
            if step.shown is not None and not matches(step.shown, printed):
                complaints.append(f"{step.script}printed\n{printed}and the page shows\n{step.shown}")
    return complaints


def _run_python(file: Path, step: Step, names: dict[str, object]) -> str:
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(step.script, file.name, "exec"), names)
    return printed.getvalue()


def _run_shell(step: Step, folder: Path) -> str:
    command = ["bash", "-euo", "pipefail", "-c", step.script]
    environment = page_environment(folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def page_environment(folder: Path) -> dict[str, str]:
    """What a page may rely on: the `inkgrove` of this Python, a home of its own and nothing of ours.

    But for what makes processes of tests start sooner; see tests/support/java.py and tests/support/certificates.py.
    """
    program = folder / "bin" / "inkgrove"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m inkgrove "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = ("PYTHONPATH", "JAVA_HOME", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SSL_CERT_FILE")
    source = {name: os.environ[name] for name in ours if name in os.environ}
    return {"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8", **source}


def matches(shown: str, printed: str) -> bool:
    """Whether a text is what is shown, `…` standing for anything on its line."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip().replace("\r", "")) is not None
