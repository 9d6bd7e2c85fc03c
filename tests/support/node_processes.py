"""The real `inkgrove serve` and `inkgrove up` as processes of their own."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx

from examples.demo.ports import free_port
from tests.support.forking import ForkedProcess
from tests.support.nodes import NO_TLS


class Serving:
    """A command that serves, from `with` to its end."""

    def __init__(
        self,
        home: Path,
        settings: dict[str, str] | None = None,
        *,
        command: str = "serve",
        arguments: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        port: int | None = None,
        most_files: int | None = None,
        loads_by_itself: bool = False,
    ) -> None:
        self.home, self.port = home, port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = home / f"{command}.log"
        where = ["--port", str(self.port), "--home", str(home)]
        self._arguments = [*options, command, *where, *arguments]
        self._command = [sys.executable, "-m", "inkgrove", *self._arguments]
        # Those that start further processes are told by their command what to start.
        self._is_forked = command == "serve" and not loads_by_itself and "--workers" not in arguments
        if most_files is not None:
            self._is_forked = False
            self._command = ["sh", "-c", f'ulimit -n {most_files} && exec "$@"', "sh", *self._command]
        chosen = {f"INKGROVE_NODE_{name.upper()}": value for name, value in (settings or {}).items()}
        self._environment = {**os.environ, "INKGROVE_NODE_LOG_FORMAT": "json", **chosen}
        self.client = httpx.Client(base_url=self.url, timeout=60, verify=NO_TLS)

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self.process = self._start()
        try:
            self._wait_for_answers()
        except BaseException:
            self.__exit__()  # nobody else ends what was started here
            raise
        return self

    def _start(self) -> subprocess.Popen[bytes] | ForkedProcess:
        if self._is_forked:
            function = "inkgrove.cli.main:main"
            return ForkedProcess(function, [self._arguments], log=self.log_file, environment=self._environment)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def _wait_for_answers(self) -> None:
        until = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.stop()

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def answers(self) -> bool:
        """Whether it serves."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=5, verify=NO_TLS).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self, number: int = signal.SIGTERM, seconds: float = 60) -> int:
        """Ask it to end, wait; its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def log(self) -> str:
        """What it has written."""
        return self.log_file.read_text()

    def connect(self) -> socket.socket:
        """A connection to speak HTTP by hand."""
        return socket.create_connection(("127.0.0.1", self.port))
