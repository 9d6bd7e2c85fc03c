"""Whose turn it is where few are served at a time: no network fills the queue, and no two keep out a third."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from inkgrove.api.http.answers import MOST_WAITING, MOST_WAITING_OF_NETWORK
from inkgrove.api.http.limits import BoundedThreadPool, FairThreadPool, PoolLimits, refuse_password
from inkgrove.node.errors import RequestError
from tests.support.nodes import NO_TLS, Person, RunningNode

FIRST, SECOND, THIRD = "192.0.2.1", "198.51.100.2", "203.0.113.3"
BOUNDS = PoolLimits(threads=1, waiting=4, waiting_of_network=3, seconds=30)


class ByHand(Executor):
    """Threads whose work is done when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.under_way.append(Future())
        return self.under_way[-1]

    def finish(self) -> None:
        self.under_way.pop(0).set_result("done")


class Queue:
    """Work in the order in which it was asked for, by network."""

    def __init__(self, bounds: PoolLimits) -> None:
        self.executor = ByHand()
        self.threads = FairThreadPool(
            self.executor, bounds, lambda: RequestError("request.too-much-at-once", "too much")
        )

    async def ask(self, *networks: str) -> list[asyncio.Task[Any]]:
        tasks = [asyncio.create_task(self.threads.run(network, print)) for network in networks]
        await asyncio.sleep(0)
        return tasks

    async def finish_all(self) -> None:
        for _ in range(1000):
            if self.executor.under_way:
                self.executor.finish()
            await asyncio.sleep(0)


async def refused(tasks: list[asyncio.Task[Any]]) -> list[bool]:
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {getattr(answer, "code", type(answer)) for answer in answers} <= {str, "request.too-much-at-once"}
    return [getattr(answer, "code", None) == "request.too-much-at-once" for answer in answers]


def test_two_networks_that_fill_the_queue_do_not_keep_out_a_third() -> None:
    async def run() -> None:
        queue = Queue(BOUNDS)
        tasks = await queue.ask(FIRST, FIRST, FIRST, FIRST, SECOND)  # one is served, four wait
        late = await queue.ask(THIRD)
        await queue.finish_all()
        assert await refused(tasks) == [False, False, False, True, False], "the last one of the network with most"
        assert await refused(late) == [False]

    asyncio.run(run())


def test_who_is_of_the_network_with_most_drops_nobody() -> None:
    async def run() -> None:
        queue = Queue(BOUNDS)
        tasks = await queue.ask(FIRST, FIRST, FIRST, SECOND, SECOND)
        late = await queue.ask(FIRST, SECOND)
        await queue.finish_all()
        assert await refused(tasks) == [False] * 5
        assert await refused(late) == [True, True]

    asyncio.run(run())


def test_queue_of_large_answers_has_room_for_a_third_network_whatever_two_others_do() -> None:
    async def run() -> None:
        queue = Queue(
            PoolLimits(threads=2, waiting=MOST_WAITING, waiting_of_network=MOST_WAITING_OF_NETWORK, seconds=30)
        )
        await queue.ask(*[FIRST] * 50, *[SECOND] * 50)
        third = await queue.ask(*[THIRD] * 20)
        await queue.finish_all()
        assert await refused(third) == [False] * 20

    asyncio.run(run())


def test_who_has_given_up_makes_nobody_wait_beside_a_free_thread() -> None:
    async def run() -> None:
        queue = Queue(BOUNDS)
        (served,) = await queue.ask(FIRST)
        (gives_up,) = await queue.ask(SECOND)
        late: list[asyncio.Task[Any]] = []

        def come_and_give_up() -> None:
            # The newcomer runs after the thread has become free and before who gives up has left the queue.
            late.append(asyncio.create_task(queue.threads.run(THIRD, print)))
            gives_up.cancel()

        queue.executor.finish()
        asyncio.get_running_loop().call_soon(come_and_give_up)
        assert await served == "done"
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(queue.executor.under_way) == 1, "it has a thread"
        queue.executor.finish()
        assert await late[0] == "done"
        with pytest.raises(asyncio.CancelledError):
            await gives_up

    asyncio.run(run())


def test_passwords_of_two_networks_do_not_keep_out_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        threads, executor = BoundedThreadPool("passwords", BOUNDS, refuse_password), ByHand()
        work = Mock()  # never done: what it gives the test says
        monkeypatch.setattr(threads, "_executor", executor)
        many = [asyncio.create_task(threads.run(address, work)) for address in [FIRST] * 4 + [SECOND] * 4]
        await asyncio.sleep(0)
        honest = asyncio.create_task(threads.run(THIRD, work))
        for _ in range(100):
            await asyncio.sleep(0)
            if executor.under_way:
                executor.finish()
        assert await honest == "done"
        assert {
            getattr(answer, "code", type(answer)) for answer in await asyncio.gather(*many, return_exceptions=True)
        } == {str, "auth.busy"}

    asyncio.run(run())


def test_documents_that_wait_for_the_writer_keep_nobody_waiting(tmp_path: Path) -> None:
    """More of them than the framework has threads, while somebody else writes to the database."""
    with RunningNode(tmp_path, tmp_path) as running, Person(running, "jane.haiku.ink") as jane:
        is_writing, may_end = threading.Event(), threading.Event()

        def write(_connection: object) -> None:
            is_writing.set()
            assert may_end.wait(30)

        def change(number: int) -> int:
            return httpx.patch(
                f"{running.url}/me", json={"name": f"{number}"}, headers=jane.headers, timeout=30, verify=NO_TLS
            ).status_code

        with ThreadPoolExecutor(60) as clients:
            try:
                clients.submit(running.node.database.write, write)
                assert is_writing.wait(10)
                waiting = [clients.submit(change, number) for number in range(45)]
                refused, _ = wait(waiting, timeout=2)
                assert jane.get("/me", timeout=10).status_code == 200
                assert {item.result() for item in refused} <= {503}
            finally:
                may_end.set()
            assert {item.result() for item in waiting} == {200, 503}
