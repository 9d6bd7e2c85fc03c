"""Waiting for views: one look at the database for all who wait in this process, and none while nobody does."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import structlog
from starlette.concurrency import run_in_threadpool

from inkgrove.core.errors import InkgroveError
from inkgrove.node.changes import Newest, look
from inkgrove.node.errors import Behind, TooManyListeners
from inkgrove.node.node import Node
from inkgrove.node.position import parse_position

Wanted = Callable[[Newest], bool]
log = structlog.get_logger("inkgrove.node")


class Watch:
    """Tells those who wait when what they wait for has happened."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[asyncio.Future[bool], Wanted] = {}
        self._task: asyncio.Task[None] | None = None
        self._listeners: Counter[str | None] = Counter()

    def enter(self, address: str | None) -> None:
        """One more follows changes, without a token from an address; raises if there are too many.

        Without a token one address has a tenth of the places and all together have half: nobody locks out others.
        """
        most, all_of_them = self._node.settings.max_listeners, self._listeners.total()
        if all_of_them >= most:
            raise TooManyListeners("too many follow changes on this node: try again later", retry_after=5)
        unknown = all_of_them - self._listeners[None]
        if address is not None and (self._listeners[address] >= max(most // 10, 1) or unknown >= max(most // 2, 1)):
            raise TooManyListeners("too many follow changes here without a token: sign in", retry_after=5)
        self._listeners[address] += 1

    def leave(self, address: str | None) -> None:
        """One less follows changes."""
        self._listeners[address] -= 1
        if not self._listeners[address]:
            del self._listeners[address]

    async def until(self, wanted: Wanted, seconds: float) -> bool:
        """Wait until something has happened; False if the time ran out or the node stops."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = wanted
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]

    async def _look(self) -> None:
        while self._waiting:
            newest: Newest | None = None
            try:
                newest = await run_in_threadpool(look, self._node)
            except InkgroveError as error:
                log.warning("the views cannot be read", code=error.code, reason=error.message)
            is_stopping = self._node.stopping.is_set()
            for future, wanted in list(self._waiting.items()):
                if not future.done() and (is_stopping or (newest is not None and wanted(newest))):
                    future.set_result(not is_stopping)
            await asyncio.sleep(self._node.settings.poll_seconds)

    async def catch_up(self, token: str | None) -> None:
        """Wait until the views have seen a write; raises if they do not in time."""
        if token is None:
            return
        offset = parse_position(self._node.vault, token)
        seconds = self._node.settings.at_least_seconds
        if not await self.until(lambda newest: newest.progress >= offset, seconds):
            raise Behind(
                f"the views have not seen this write within {seconds:g} seconds: ask again; if it stays so, no pipeline"
                " runs here: `inkgrove up` or `inkgrove materialise --follow` starts one",
                retry_after=1,
            )

    async def close(self) -> None:
        """Let nobody wait any longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
