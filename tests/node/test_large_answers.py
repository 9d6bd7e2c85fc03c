"""Large answers are few at a time: many who ask for long pasts at once take little memory and hold up nobody."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from inkgrove.api.app import ROUTERS
from inkgrove.api.http.answers import MOST_OF_NETWORK, MOST_WAITING_OF_NETWORK, THREADS, LargeAnswers
from inkgrove.api.http.auth import get_caller
from inkgrove.api.routes.arrivals import get_arrival
from inkgrove.node.errors import RequestError
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import register_schema
from tests.support.errors import raises
from tests.support.node_processes import Serving
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id

MIB = 1024 * 1024
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
UPDATES, UPDATE_BYTES = 30, 480_000
"""A past of 14 MB, a little less than may be read."""
MANY = 100


@dataclass(frozen=True, slots=True)
class Served:
    """A node process with an instance that has a long past, and one that has a short one."""

    serving: Serving
    token: str
    long: str
    short: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("large")
    with RunningNode(home, home, NodeSettings(domains=("haiku.ink",))) as running:
        jane = Person(running, "jane.haiku.ink")
        schema = make_schema(jane, "texts", [{"text": {"action": "create", "type": "text"}}])
        long, short = (
            create(jane, schema, fields={"text": text}, access={"mode": "public"})["instance"] for text in ("a", "b")
        )
        for number in range(UPDATES):
            patch = {"fields": {"text": f"{number}" + "x" * UPDATE_BYTES}}
            assert jane.patch(f"/instances/{long}", json=patch, headers=MERGE_PATCH).status_code == 200
        assert running.node.store.write(register_schema, schema_id(schema))
        build_views(running.node)
        jane.close()
    with Serving(home, {"domains": "haiku.ink"}) as serving:
        yield Served(serving, jane.token, long, short)


def memory_of(pid: int, name: str = "VmHWM") -> int:
    """Bytes that a process has, or has had at most since `forget_peak`."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def ask(port: int, target: str) -> tuple[int, bytes]:
    """The status, and the beginning of the answer, which is read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: haiku.ink\r\nConnection: close\r\n\r\n".encode())
    first = await reader.read(4096)
    while await reader.read(MIB):
        pass
    writer.close()
    return int(first.split(b" ")[1]), first


@contextmanager
def asking_for_me(served: Served) -> Iterator[list[float]]:
    """Ask for `GET /me` all the time; the seconds that each answer took."""
    seconds: list[float] = []
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.05):
            began = time.monotonic()
            answer = served.serving.client.get("/me", headers={"Authorization": f"Bearer {served.token}"})
            assert answer.status_code == 200
            seconds.append(time.monotonic() - began)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seconds
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("address", ["/instances/{}/history", "/instances/{}/proof", "/pages/instances/{}"])
def test_many_long_pasts_at_once_are_answered_or_refused_in_bounded_memory(served: Served, address: str) -> None:
    pid, target = served.serving.pid, address.format(served.long)
    forget_peak(pid)
    before = memory_of(pid)

    async def ask_all() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(ask(served.serving.port, target) for _ in range(MANY)))

    with asking_for_me(served) as seconds:
        answers = asyncio.run(ask_all())
    assert 200 in {status for status, _ in answers} <= {200, 503}
    for status, first in answers:
        if status == 503:
            assert b"request.too-much-at-once" in first
            assert b"retry-after: 5" in first.lower()
    assert memory_of(pid) - before < 300 * MIB
    assert seconds
    assert max(seconds) < 5


def test_answers_that_nobody_reads_are_bounded_and_leave_room_for_small_ones(served: Served) -> None:
    pid, port = served.serving.pid, served.serving.port
    forget_peak(pid)
    before = memory_of(pid)
    with ExitStack() as stack:
        refused = 0
        for _ in range(10):
            connection = stack.enter_context(closing(socket.socket()))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET /instances/{served.long}/history HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            refused += b" 503 " in connection.recv(100)
        assert refused == 10 - MOST_OF_NETWORK // (UPDATES * UPDATE_BYTES)
        assert memory_of(pid) - before < 250 * MIB
        assert served.serving.client.get(f"/instances/{served.short}/history").status_code == 200
    # Who goes gives back what was theirs.
    until = time.monotonic() + 20
    while served.serving.client.get(f"/instances/{served.long}/history").status_code != 200:
        assert time.monotonic() < until


# Which threads it takes


@pytest.mark.parametrize(
    ("address", "work"),
    [
        ("/", "inkgrove.pages.home.list_views"),
        ("/views?count=true", "inkgrove.api.routes.views.list_views"),
        ("/views/texts/outcomes", "inkgrove.api.routes.views.list_outcomes"),
        ("/views/{schema}/outcomes", "inkgrove.api.routes.views.list_outcomes"),
        ("/views/texts/summary", "inkgrove.api.routes.rot.summarise"),
        ("/views/{schema}/summary", "inkgrove.api.routes.rot.summarise"),
        ("/pages/schemas", "inkgrove.pages.schemas.names_of_authors"),
        ("/pages/schemas/{schema}", "inkgrove.pages.schemas.name_of_author"),
        ("/pages/views/texts", "inkgrove.pages.views.query_view"),
        ("/pages/views/{schema}", "inkgrove.pages.views.query_view"),
    ],
)
def test_what_takes_long_is_not_done_in_the_threads_that_all_share(
    small: tuple[RunningNode, str], monkeypatch: pytest.MonkeyPatch, address: str, work: str
) -> None:
    running, schema = small
    module, _, name = work.rpartition(".")
    real, threads = getattr(import_module(module), name), []

    def spy(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return real(*arguments, **options)

    monkeypatch.setattr(work, spy)
    assert running.anybody.get(address.format(schema=schema)).status_code == 200
    assert threads
    assert all(thread.startswith("large-answers") for thread in threads)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningNode, str]]:
    """A node in this process with one row, and the schema of that."""
    home = tmp_path_factory.mktemp("small")
    with RunningNode(home, home, NodeSettings(domains=("haiku.ink",))) as running:
        with Person(running, "jane.haiku.ink") as jane:
            schema = make_schema(jane, "texts", [{"text": {"action": "create", "type": "text"}}])
            create(jane, schema, fields={"text": "a"}, access={"mode": "public"})
        assert running.node.store.write(register_schema, schema_id(schema))
        build_views(running.node)
        yield running, str(schema_id(schema))


def test_dependencies_that_only_look_at_the_request_take_no_thread() -> None:
    def calls(dependant: Dependant) -> Iterator[Any]:
        for inner in dependant.dependencies:
            yield inner.call
            yield from calls(inner)

    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    in_threads = {call for route in routes for call in calls(route.dependant) if not iscoroutinefunction(call)}
    # They ask the database who it is, or which arrival.
    assert in_threads == {get_caller, get_arrival}
    me = next(route for route in routes if route.path == "/me" and "GET" in (route.methods or ()))
    assert [call for call in calls(me.dependant) if not iscoroutinefunction(call)] == [get_caller]


# Whose turn it is


class _Full(LargeAnswers):
    """Has no room for anything."""

    async def make(self, request: Request, work: Callable[..., Response], *arguments: Any) -> Response:
        raise RequestError("request.too-much-at-once", "full", retry_after=5)


def test_large_pages_and_schemas_are_large_answers_and_small_pages_are_not(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane, "texts", [{"text": {"action": "create", "type": "text"}}])
        assert running.node.store.write(register_schema, schema_id(schema))
        build_views(running.node)
        cast(Any, running.server.config.app).state.large_answers = _Full()
        for target, status in (
            (f"/schemas/{schema}", 503),
            (f"/views/{schema}?limit=200", 200),
            (f"/views/{schema}?limit=201", 503),
            (f"/views/{schema}?limit=201&at_least={jane.get('/publish/next').json()['position']}", 503),
        ):
            assert running.anybody.get(target).status_code == status, target


def test_serving_process_lets_the_event_loop_interrupt_what_computes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from inkgrove.api.app import make_app;"
        "from inkgrove.api.http import open_app;"
        "from inkgrove.node.settings import NodeSettings;"
        f"app = open_app(Path({str(tmp_path)!r}), NodeSettings(), Path({str(tmp_path)!r}), make_app);"
        "app.state.node.close(); print(sys.getswitchinterval())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(told) == 0.001


def request_from(address: str) -> Request:
    return Request({"type": "http", "client": (address, 1)}, asyncio.Event().wait)  # type: ignore[arg-type]


def test_network_with_less_under_way_comes_first_and_one_alone_does_not_fill_the_queue() -> None:
    gate, order = threading.Event(), []

    def work(name: str) -> Response:
        gate.wait(30)
        order.append(name)
        return Response(name)

    async def run() -> None:
        large = LargeAnswers()

        def begin(address: str, name: str) -> asyncio.Task[Response]:
            return asyncio.create_task(large.make(request_from(address), work, name))

        tasks = [begin("192.0.2.1", f"first {number}") for number in range(THREADS + MOST_WAITING_OF_NETWORK)]
        await asyncio.sleep(0)
        with raises("request.too-much-at-once") as refused:
            await large.make(request_from("192.0.2.1"), work, "one too many")
        assert refused.value.data["retry_after"] == 5
        other = begin("192.0.2.2", "other")
        await asyncio.sleep(0)
        gate.set()
        assert [bytes(answer.body).decode() for answer in await asyncio.gather(*tasks)] == [
            f"first {number}" for number in range(THREADS + MOST_WAITING_OF_NETWORK)
        ]
        await other
        large.close()

    asyncio.run(run())
    assert order.index("other") <= THREADS + 1


def test_who_waits_too_long_is_refused_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inkgrove.api.http.answers.WAIT_SECONDS", 0.05)
    gate = threading.Event()

    def work() -> Response:
        gate.wait(30)
        return Response("made")

    async def run() -> None:
        large = LargeAnswers()
        under_way = [asyncio.create_task(large.make(request_from("192.0.2.1"), work)) for _ in range(THREADS)]
        await asyncio.sleep(0)
        with raises("request.too-much-at-once"):
            await large.make(request_from("192.0.2.2"), work)
        under_way[0].cancel()  # its thread works on, and keeps its place until then
        with raises("request.too-much-at-once"):
            await large.make(request_from("192.0.2.2"), work)
        gate.set()
        await under_way[1]
        for _ in range(2 * THREADS):
            await large.make(request_from("192.0.2.2"), work)
        large.close()

    asyncio.run(run())


def test_answer_that_is_never_sent_gives_its_memory_back() -> None:
    async def run() -> None:
        large = LargeAnswers()
        kept = [await large.make(request_from("192.0.2.1"), lambda: Response(bytes(MOST_OF_NETWORK)))]
        with raises("request.too-much-at-once"):
            await large.make(request_from("192.0.2.1"), lambda: Response(bytes(MIB)))
        kept.clear()  # as when a quota refuses it after it was made
        await large.make(request_from("192.0.2.1"), lambda: Response(bytes(MIB)))
        large.close()

    asyncio.run(run())
