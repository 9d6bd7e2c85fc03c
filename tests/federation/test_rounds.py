"""Work in rounds goes on, whatever goes wrong in one of them."""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

from inkgrove.core.errors import InkgroveError, StoreUnavailable
from inkgrove.federation.peers import run_rounds
from tests.simulation.virtual import VirtualLoop


def test_rounds_that_fail_are_begun_again_less_and_less_often() -> None:
    loop = VirtualLoop()
    rounds: list[float] = []
    told: list[Exception] = []
    done: list[float] = []
    wake = asyncio.Event()

    async def work() -> None:
        done.append(loop.time())
        if len(done) == 1:
            raise ZeroDivisionError("in the work itself")

    async def find_work() -> list[Coroutine[Any, Any, None]]:
        rounds.append(loop.time())
        wake.set()  # somebody always has something new
        if len(rounds) <= 4:
            raise ZeroDivisionError("before there is any")
        if len(rounds) <= 10:
            raise StoreUnavailable("the store is away")
        return [work()]

    def tell(error: InkgroveError) -> None:
        told.append(error)

    async def go() -> None:
        task = asyncio.create_task(run_rounds(find_work, wake, 1.0, tell, 0.5))
        await asyncio.sleep(400)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    try:
        loop.run_until_complete(go())
    finally:
        loop.close()
    waits = [later - earlier for earlier, later in pairwise(rounds)]
    assert waits[:10] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert waits[10] == 0.5
    assert [error.code for error in told if isinstance(error, InkgroveError)] == [StoreUnavailable.code] * 6
    assert len(done) > 100
    assert failures == [], "work that fails is logged and does not fall to the event loop"
