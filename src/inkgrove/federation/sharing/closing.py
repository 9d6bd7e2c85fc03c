"""The worker that closes accounts: it goes on with every closing, step by step (docs/protocol.md section 7.9)."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.peers.discovery import RunBlocking, in_thread
from inkgrove.node.publishing import advance_closings, tidy_closings
from inkgrove.node.runtime import Node

_IDLE_SECONDS: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_TIDY_MICROSECONDS: Final = 3600 * 1_000_000

log = structlog.get_logger("inkgrove.closing")


class AccountCloser:
    """The worker: `run` goes on until it is cancelled, `step` does what can be done now. Belongs to one event loop."""

    def __init__(self, node: Node, *, run_blocking: RunBlocking = in_thread) -> None:
        self._node = node
        self._run_blocking = run_blocking
        self._wake = asyncio.Event()
        self._next_tidying = 0

    def wake(self) -> None:
        """Look for work now: an account is to be closed."""
        self._wake.set()

    async def run(self) -> None:
        """Go on with all closings until the task is cancelled; what fails is tried again, after a while."""
        wait = _IDLE_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.step()
                wait = _IDLE_SECONDS
            except InkgroveError as error:  # nothing is signed at the moment, or the store is away
                log.warning("an account is not closed yet", code=error.code, reason=error.message)
                wait = min(2 * wait, _LONGEST_WAIT)
            except Exception:
                log.exception("an account could not be closed")
                wait = min(2 * wait, _LONGEST_WAIT)

    async def step(self) -> None:
        """Do what can be done now for every account that is being closed."""
        await self._run_blocking(lambda: advance_closings(self._node))
        now = self._node.clock()
        if now >= self._next_tidying:
            self._next_tidying = now + _TIDY_MICROSECONDS
            await self._run_blocking(lambda: tidy_closings(self._node))
