"""How many requests are under way at the same time, so that slow nodes hold up each other and nobody else.

Whoever took long the last time waits for one of a few places of their own. Whoever is not known to be slow has one of
many, and not for longer than a quick answer takes: then it is free for the next.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from inkgrove.federation.fetch import Answer, Request, Transport

_QUICK_SECONDS: Final = 2.0
_MOST_KEPT: Final = 10_000


class Lanes:
    """Places for requests over a transport; belongs to one event loop."""

    def __init__(self, transport: Transport, *, quick: int = 32, slow: int = 8) -> None:
        self._transport = transport
        self._quick = asyncio.Semaphore(quick)
        self._few = asyncio.Semaphore(slow)
        self._slow: dict[str, None] = {}

    @asynccontextmanager
    async def enter(self, node: str) -> AsyncIterator[Transport]:
        """Wait for a place; the transport is for requests to that node, one after the other."""
        is_slow = node in self._slow
        lane = self._few if is_slow else self._quick
        await lane.acquire()
        place = _Place(self._transport, lane, lambda seconds: self._note(node, seconds), is_kept=is_slow)
        try:
            yield place
        finally:
            place.leave()

    def _note(self, node: str, seconds: float) -> None:
        self._slow.pop(node, None)
        if seconds >= _QUICK_SECONDS:
            if len(self._slow) >= _MOST_KEPT:
                del self._slow[next(iter(self._slow))]
            self._slow[node] = None


class _Place:
    """A transport that counts how long the node at its other end takes."""

    def __init__(
        self, transport: Transport, lane: asyncio.Semaphore, note: Callable[[float], None], *, is_kept: bool
    ) -> None:
        self._transport = transport
        self._lane = lane
        self._note = note
        self._is_kept = is_kept
        self._has_left = False

    async def send(self, request: Request) -> Answer:
        """The answer; while it takes long, somebody else has the place."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        timer = None if self._is_kept else loop.call_later(_QUICK_SECONDS, self.leave)
        try:
            return await self._transport.send(request)
        finally:
            if timer is not None:
                timer.cancel()
            self._note(loop.time() - begun)

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._lane.release()
