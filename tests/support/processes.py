"""The real `inkgrove` command as a process that goes on while the test does something to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PROGRAM = "from inkgrove.cli.main import main; main()"


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that is ended with all it started, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def kill(process: subprocess.Popen[str]) -> None:
    """End a process in the middle of whatever it does."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None, seconds: float = 90) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the process ended with {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.03)  # to ask is work too, and others wait for the processor
