"""Processes that are forked from one that has the modules of a node loaded: loading takes longer than a node to start.

That `inkgrove serve` starts by itself, and what it loads, is proved in tests/node/test_operation.py.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from atexit import register
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

_LOCK = Lock()
_ROOT = Path(__file__).parents[2]


class ForkedProcess:
    """Calls a function with arguments in a process of its own; to be used like subprocess.Popen."""

    def __init__(
        self, function: str, arguments: Sequence[object], *, log: Path | None = None, environment: Mapping[str, str]
    ) -> None:
        handle, name = tempfile.mkstemp(prefix="inkgrove-exit-")
        os.close(handle)
        self._ended = Path(name)
        wanted: dict[str, Any] = {"function": function, "arguments": list(arguments), "ended": name}
        wanted |= {"log": None if log is None else str(log), "environment": dict(environment), "where": str(Path.cwd())}
        with _LOCK:
            server = _server()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(wanted) + "\n")
            server.stdin.flush()
            self.pid = int(server.stdout.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, minus the number of a signal that ended it, or None while it runs."""
        if self.returncode is None:
            found = self._ended.read_text()
            if found.endswith("\n"):
                self.returncode = int(found)
                self._ended.unlink()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises subprocess.TimeoutExpired if it goes on for longer."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(self.pid)
                try:
                    if not select.select([handle], [], [], timeout)[0]:
                        raise subprocess.TimeoutExpired("a forked process", timeout or 0)
                finally:
                    os.close(handle)
        while (code := self.poll()) is None:
            select.select([], [], [], 0.002)  # whoever waits for it writes the code down just now
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word."""
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> subprocess.Popen[str]:
    program = f"from {__name__} import serve_forks; serve_forks()"
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
    )
    register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.wait()
    server.stdout.close()


def serve_forks() -> None:
    """Fork two processes for each line of standard input: the one that is wanted, and one that waits for its end."""
    for name in ("inkgrove.cli.main", "inkgrove.cli.serve", "inkgrove.node.runtime.node", "inkgrove.pages.site"):
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that wait
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(json.loads(line))


def _keep(wanted: dict[str, Any]) -> NoReturn:
    child = os.fork()
    if child == 0:
        _be(wanted)
    print(child, flush=True)
    for number in range(3):
        os.close(number)
    _, status = os.waitpid(child, 0)
    with suppress(OSError):
        Path(wanted["ended"]).write_text(f"{os.waitstatus_to_exitcode(status)}\n")
    os._exit(0)


def _be(wanted: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        log = os.open(wanted["log"] or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log if wanted["log"] else 2)):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(wanted["where"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        module, _, name = wanted["function"].partition(":")
        getattr(import_module(module), name)(*wanted["arguments"])
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
