"""Runs the real `inkgrove` command."""

import subprocess
import sys


def inkgrove(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """The finished process; what it printed is text."""
    program = "from inkgrove.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
