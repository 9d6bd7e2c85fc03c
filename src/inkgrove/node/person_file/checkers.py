"""Checks records of a file side by side: a process for each core, or for a small file none."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock, local
from typing import Final, Self

from inkgrove.messages.person_check import CheckedRecord, check_record, read_part, write_part
from inkgrove.messages.person_file import LogHeader

_LARGE: Final = 4 * 1024 * 1024
"""From so many bytes of a file on it is worth to start processes."""
Submit = Callable[[bytes, LogHeader | None, int], "Future[CheckedRecord]"]


class RecordCheckers:
    """Threads with a process each, from `with` to its end."""

    def __init__(self, size: int) -> None:
        """`size`: how many bytes are to be checked."""
        cores = len(os.sched_getaffinity(0))
        self.ahead: int = 4 * cores
        """How many records may be under way."""
        self._threads = ThreadPoolExecutor(cores) if size >= _LARGE and cores > 1 else None
        self._own = local()
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            process.kill()  # it holds nothing that could be lost
            with suppress(OSError):
                process.communicate()

    def submit(self, body: bytes, log: LogHeader | None, place: int) -> "Future[CheckedRecord]":
        """Have a record checked; see `check_record`."""
        if self._threads is not None:
            return self._threads.submit(self._check, body, log, place)
        done: Future[CheckedRecord] = Future()
        done.set_result(check_record(body, log, place))
        return done

    def _check(self, body: bytes, log: LogHeader | None, place: int) -> CheckedRecord:
        try:
            process = self._process()
            assert process.stdin is not None
            assert process.stdout is not None
            write_part(process.stdin, pickle.dumps((log, place)))
            write_part(process.stdin, body)
            process.stdin.flush()
            found: CheckedRecord = pickle.loads(read_part(process.stdout))  # noqa: S301  (of our own process)
        except (OSError, EOFError):  # it could not be started, or was killed
            self._own.process = None
            return check_record(body, log, place)
        return found

    def _process(self) -> "subprocess.Popen[bytes]":
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is None:
            # A session of its own: what ends the command from the keyboard must not end this under its feet.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "inkgrove.messages.person_check"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._own.process = process
            with self._lock:
                self._started.append(process)
        return process
