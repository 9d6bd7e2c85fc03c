"""Runs the `inkgrove` command, each time in a process of its own.

The process is forked from one that has everything loaded: loading takes a second, and a command next to nothing. That
the installed command starts by itself is proved in tests/cli/test_start.py and test_help.py.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from atexit import register
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

SECONDS = 120
_LOCK = Lock()


def inkgrove(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """The finished process; what it printed is text."""
    with tempfile.TemporaryDirectory(prefix="inkgrove-command-") as name:
        folder = Path(name)
        (folder / "stdin").write_text(stdin or "")
        where = {"folder": name, "where": str(Path.cwd()), "environment": dict(os.environ)}
        with _LOCK:
            server = _server()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({"arguments": arguments, **where}) + "\n")
            server.stdin.flush()
            code = int(server.stdout.readline())
        return subprocess.CompletedProcess(
            ["inkgrove", *arguments], code, (folder / "stdout").read_text(), (folder / "stderr").read_text()
        )


@cache
def _server() -> subprocess.Popen[str]:
    program = f"from {__name__} import serve_commands; serve_commands()"
    server = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def serve_commands() -> None:
    """Fork a process for each line of standard input that asks for a command, and print its exit code."""
    for name in (
        "inkgrove.cli.main",
        "inkgrove.node.runtime.node",
        "inkgrove.store.logs.log_store",
        "inkgrove.pages.site",
    ):
        import_module(name)  # once for all of them
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            _be(wanted)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be(wanted: dict[str, Any]) -> NoReturn:
    """Be the command, with the streams, the folder and the environment of whoever called it."""
    code = 1
    try:
        folder, made = Path(wanted["folder"]), os.O_WRONLY | os.O_CREAT
        for number, (name, flags) in enumerate((("stdin", os.O_RDONLY), ("stdout", made), ("stderr", made))):
            os.dup2(os.open(folder / name, flags, 0o600), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(wanted["where"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        signal.alarm(SECONDS)
        import_module("inkgrove.cli.main").main(wanted["arguments"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
