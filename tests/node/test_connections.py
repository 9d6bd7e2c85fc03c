"""Connections are bounded: what holds a descriptor and does nothing gives way, and the node goes on answering."""

import json
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from inkgrove.api.http.connections import StallTimer
from inkgrove.api.http.limits import LEAST_RATE
from tests.node.test_operation import OPEN, create_and_sign_in
from tests.support.node_processes import Serving

HALF = b"GET /healthz HTTP/1.1\r\nHost: a"
MOST_FILES = 256


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A node that may open 256 files, and a client that may open more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    settings = {
        **OPEN,
        "metrics": "local",
        "max_connections": "1000",
        "connections_per_address": "1000",
    }
    with Serving(tmp_path_factory.mktemp("small"), settings, most_files=MOST_FILES) as serving:
        yield serving
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def figure(serving: Serving, name: str) -> float:
    text = httpx.get(f"{serving.url}/metrics", timeout=30).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found is not None else 0.0


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.1)


def test_half_open_connections_beyond_the_limit_of_files_do_not_stop_the_node(small: Serving) -> None:
    token = create_and_sign_in(small)
    with ExitStack() as stack:
        for _ in range(600):
            connection = stack.enter_context(closing(small.connect()))
            connection.sendall(HALF)
        for _ in range(3):
            assert httpx.get(f"{small.url}/healthz", timeout=20).status_code == 200
            answer = httpx.get(f"{small.url}/me", headers={"Authorization": f"Bearer {token}"}, timeout=20)
            assert answer.status_code == 200, "the database has descriptors left"
        assert len(list(Path(f"/proc/{small.pid}/fd").iterdir())) < MOST_FILES
        assert figure(small, 'inkgrove_http_connections_ended_total{what="dropped"}') >= 600 - MOST_FILES
        assert figure(small, "inkgrove_http_connections") <= MOST_FILES / 2
    told = [json.loads(line) for line in small.log().splitlines() if "too many connections" in line]
    assert len(told) == 1, "once a minute"
    assert (told[0]["level"], told[0]["most"]) == ("warning", MOST_FILES // 2)


def test_connection_in_use_is_not_dropped_for_idle_ones(small: Serving) -> None:
    with ExitStack() as stack:
        token = create_and_sign_in(small, "john.haiku.ink")
        upload = stack.enter_context(closing(small.connect()))
        head = f"POST /blobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\n"
        upload.sendall(f"{head}Connection: close\r\nContent-Length: 10\r\n\r\n12345".encode())
        for _ in range(300):
            stack.enter_context(closing(small.connect())).sendall(HALF)
        assert httpx.get(f"{small.url}/healthz", timeout=20).status_code == 200
        upload.sendall(b"67890")
        assert upload.makefile("rb").readline().startswith(b"HTTP/1.1 201")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A node that takes ten connections of an address, and gives nobody more than three seconds."""
    settings = {**OPEN, "metrics": "local", "connections_per_address": "10", "body_seconds": "3"}
    with Serving(tmp_path_factory.mktemp("strict"), settings) as serving:
        yield serving


def test_address_has_so_many_connections_and_the_oldest_idle_one_gives_way(strict: Serving) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(closing(strict.connect()))
        first.sendall(HALF)
        for _ in range(10):
            stack.enter_context(closing(strict.connect())).sendall(HALF)
        first.settimeout(20)
        with suppress(ConnectionResetError):
            assert first.recv(100) == b""


def test_address_whose_connections_are_all_in_use_gets_no_more(strict: Serving) -> None:
    with ExitStack() as stack:
        busy = [stack.enter_context(closing(strict.connect())) for _ in range(10)]
        for connection in busy:
            connection.sendall(b"POST /sessions HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
        time.sleep(0.3)
        late = stack.enter_context(closing(strict.connect()))
        late.settimeout(20)
        answer = late.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5" in answer
        assert b'"code":"request.too-many-connections"' in answer


def test_head_that_does_not_come_is_not_waited_for(strict: Serving) -> None:
    with closing(strict.connect()) as silent, closing(strict.connect()) as slow:
        slow.sendall(HALF)
        for connection in (silent, slow):
            connection.settimeout(20)
        assert silent.recv(100) == b"", "counted from the moment the connection is made"
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_answer_that_nobody_reads_does_not_hold_the_connection(strict: Serving) -> None:
    token = create_and_sign_in(strict, "alice.haiku.ink")
    bearer = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
    blob = httpx.post(f"{strict.url}/blobs", content=bytes(30_000_000), headers=bearer, timeout=60).json()["hash"]
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with closing(connection):
        connection.connect(("127.0.0.1", strict.port))
        connection.sendall(f"GET /blobs/{blob} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        wait_until(lambda: figure(strict, "inkgrove_http_connections") == 1)


class Reader:
    """Somebody who reads at a rate, on a clock that is moved by hand."""

    def __init__(self, seconds: float) -> None:
        self.now, self.unread, self.is_dropped = 0.0, 0, False
        self.due: tuple[float, Callable[..., None], tuple[Any, ...]] | None = None
        self.timer = StallTimer(seconds, lambda: self.unread, self.drop)
        self.loop: Any = self

    def drop(self) -> None:
        self.is_dropped = True

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, work: Callable[..., None], *arguments: Any) -> Any:
        self.due = (self.now + seconds, work, arguments)
        return self

    def cancel(self) -> None:
        self.due = None

    def read(self, size: int, rate: float) -> None:
        """Read a piece of so many bytes."""
        self.unread = size
        self.timer.start(self.loop)
        end = self.now + size / rate
        while self.due is not None and self.due[0] < end and not self.is_dropped:
            due, work, arguments = self.due
            self.unread -= round((due - self.now) * rate)
            self.now, self.due = due, None
            work(*arguments)
        if not self.is_dropped:
            self.now, self.unread = end, 0
            self.timer.stop(self.loop)


@pytest.mark.parametrize("piece", [64 * 1024, 256 * 1024, 4 * 1024 * 1024])
def test_answer_is_read_at_a_least_rate_however_it_is_cut(piece: int) -> None:
    total = 16 * 1024 * 1024
    fast, slow = Reader(30), Reader(30)
    for _ in range(total // piece):
        fast.read(piece, 1.05 * LEAST_RATE)
    assert not fast.is_dropped
    for _ in range(total // piece):
        slow.read(piece, 0.9 * LEAST_RATE)
        if slow.is_dropped:
            break
    assert slow.is_dropped
    assert slow.now < total / LEAST_RATE


def test_reader_who_was_fast_has_saved_nothing_for_later() -> None:
    reader = Reader(30)
    for _ in range(100):
        reader.read(256 * 1024, 1000 * LEAST_RATE)
    began = reader.now
    reader.read(256 * 1024, 1)
    assert reader.is_dropped
    assert reader.now - began < 31
