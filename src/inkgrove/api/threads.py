"""Threads for what may take long: it must not hold up the loop, and no kind of work may take the threads of another.

Routes that the framework runs in threads share forty. None of them waits there for another node or for a password:
who asks other nodes waits on the loop, and passwords have a few threads with a short queue (docs/node.md).
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from inkgrove.api.turns import Bounds, FairThreads
from inkgrove.node.attempts import network_of
from inkgrove.node.errors import Busy
from inkgrove.store.database import POOL_SIZE

_Result = TypeVar("_Result")
_READERS: Final = ThreadPoolExecutor(max_workers=POOL_SIZE, thread_name_prefix="reading")
"""As many as there are connections to PostgreSQL; on SQLite each keeps a connection to the views."""


async def read_in_thread(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run a read in a thread; what it logs carries the id of the request."""
    call = partial(copy_context().run, work, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_READERS, call)


class BoundedThreads:
    """A few threads with a short queue, for every event loop of the process."""

    def __init__(self, name: str, bounds: Bounds) -> None:
        self._executor = ThreadPoolExecutor(max_workers=bounds.threads, thread_name_prefix=name)
        self._bounds = bounds
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, FairThreads] = WeakKeyDictionary()

    async def run(self, address: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run work on behalf of an address; raises `Busy` if too much is under way, in all or for its network."""
        loop = asyncio.get_running_loop()
        with self._lock:
            threads = self._by_loop.get(loop)
            if threads is None:
                threads = self._by_loop[loop] = FairThreads(self._executor, self._bounds, _busy)
        return await threads.run(network_of(address), work, *arguments)


def _busy() -> Busy:
    return Busy("too many passwords are being checked: try again in a moment", retry_after=_RETRY_SECONDS)


_RETRY_SECONDS: Final = 2
PASSWORDS: Final = BoundedThreads("passwords", Bounds(threads=2, waiting=32, waiting_of_network=16, seconds=10))
"""For whatever checks or sets a password: argon2 takes 64 MiB and all cores for a while, and anybody may ask for it."""
