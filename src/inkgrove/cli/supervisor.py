"""Runs several processes as one: shows their state, starts again what dies, ends all of them together.

A process tells the one that started it through a pipe that it does its work (`tell_ready`). Looking from outside is not
enough: another process may answer at the same port or keep the same views.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

READY_VARIABLE: Final = "INKGROVE_READY_PIPE"
"""Holds the number of the pipe, for processes that somebody waits for."""
_POLL: Final = 0.2
_LONGEST_WAIT: Final = 30.0
_STEADY: Final = 60.0
"""What ran this long is started again at once; what dies sooner waits twice as long each time."""


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set, instead of ending the process."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def tell_ready() -> None:
    """Tell the process that started this one that it does its work now; without such a process, do nothing."""
    number = os.environ.pop(READY_VARIABLE, None)  # once, and not by processes that this one starts
    if number is not None:
        with suppress(OSError, ValueError):
            os.write(int(number), b"ready")
            os.close(int(number))


@dataclass(slots=True)
class Child:
    """One process that is supervised, and its state."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[Self], bool]
    """Whether it does its work, asked again and again until the answer is yes."""
    process: subprocess.Popen[bytes] | None = None
    pipe: int | None = None
    """The end of the pipe through which it tells that it is ready."""
    has_told: bool = False
    started: float = 0.0
    was_ready: bool = False
    ready_now: bool = False
    wait: float = 1.0
    start_at: float = 0.0

    def start(self) -> None:
        """Start it in a session of its own: a Ctrl-C on the terminal reaches us alone."""
        self.pipe, its_end = os.pipe()
        os.set_blocking(self.pipe, False)
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=partial(_end_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
                pass_fds=[its_end],
                env={**os.environ, READY_VARIABLE: str(its_end)},
            )
        finally:
            os.close(its_end)
        self.started, self.ready_now, self.has_told = time.monotonic(), False, False

    def says_ready(self) -> bool:
        """Whether it has told that it does its work (`tell_ready`)."""
        if not self.has_told and self.pipe is not None:
            with suppress(BlockingIOError):
                self.has_told = os.read(self.pipe, 16) != b""
        return self.has_told

    def sweep(self) -> None:
        """End what its process left behind: Spark's JVM, serving processes."""
        assert self.process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)  # looked up here: between fork and exec as little as possible may happen


def _end_with(parent: int) -> None:
    """Let the process that is about to start be told to end when its parent dies, also if that was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we had said so
        os._exit(1)


def supervise(children: Sequence[Child], stop: threading.Event, tell: Callable[[str], None], patience: float) -> int:
    """Run until `stop` is set, or until a process fails before it was ever ready; return the exit code.

    `tell` is called with each change of state; at the end processes have `patience` seconds to end by themselves.
    """
    try:
        while not stop.is_set():
            for child in children:
                code = _look_after(child, tell)
                if code:
                    return code
            stop.wait(_POLL)
        return 0
    finally:
        _end(children, tell, patience)


def _look_after(child: Child, tell: Callable[[str], None]) -> int:
    now = time.monotonic()
    if child.process is None:
        if now >= child.start_at:
            child.start()
            tell(f"{child.name}: starting")
        return 0
    code = child.process.poll()
    if code is None:
        if not child.ready_now and child.is_ready(child):
            child.ready_now = child.was_ready = True
            tell(f"{child.name}: running (process {child.process.pid})")
        return 0
    child.sweep()
    if not child.was_ready:
        tell(f"{child.name}: could not start (exit code {code})")
        return code if code > 0 else 1
    if now - child.started > _STEADY:
        child.wait = 1.0
    tell(f"{child.name}: ended (exit code {code}), starts again in {child.wait:.0f} s")
    child.process, child.start_at = None, now + child.wait
    child.wait = min(child.wait * 2, _LONGEST_WAIT)
    return 0


def _end(children: Sequence[Child], tell: Callable[[str], None], patience: float) -> None:
    running = [(child, child.process) for child in children if child.process is not None]
    for _, process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    until = time.monotonic() + patience
    for child, process in running:
        try:
            process.wait(max(0.1, until - time.monotonic()))
            tell(f"{child.name}: ended")
        except subprocess.TimeoutExpired:
            tell(f"{child.name}: did not end in time and was killed")
        child.sweep()
        process.wait()
