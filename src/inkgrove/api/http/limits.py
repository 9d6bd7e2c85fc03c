"""Bounds on what requests take: thread pools, memory, and time for a slow client (docs/node.md).

A pool has few threads and a short queue that is fair to networks. One network never fills the queue; when it is full, a
request from a network with fewer in it replaces the last one from the network with most. Plain handlers share forty
threads of the framework: none of them waits there for another node, for a password or to publish an
identity document: the last two have pools of their own.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from inkgrove.core.errors import InkgroveError
from inkgrove.node.errors import Busy, RequestError
from inkgrove.node.identity import network_of
from inkgrove.store.db import POOL_SIZE

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    network: str
    turn: asyncio.Future[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much is done at a time and how much waits, in all and of one network, and for how long."""

    threads: int
    waiting: int
    waiting_of_network: int
    seconds: float


class FairThreadPool:
    """Runs work in the threads of an executor within bounds; belongs to one event loop."""

    def __init__(self, executor: Executor, bounds: PoolLimits, refusal: Callable[[], InkgroveError]) -> None:
        """`refusal`: what is raised to those for whom there is no room."""
        self._executor, self._bounds, self._refusal = executor, bounds, refusal
        self._running: Counter[str] = Counter()
        self._queue: list[_Waiting] = []

    async def run(
        self,
        network: str,
        work: Callable[..., _Result],
        *arguments: Any,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> _Result:
        """Run work on behalf of a network, or raise the refusal; what it logs carries the id of the request.

        `is_gone` is asked after a wait: who does not wait for the answer any more is refused too.
        """
        await self._enter(network, is_gone)
        try:
            call = partial(copy_context().run, work, *arguments)
            done = asyncio.get_running_loop().run_in_executor(self._executor, call)
        except BaseException:
            self._leave(network)
            raise
        # A thread works until the end, also when nobody waits for it any more: only then is it free.
        done.add_done_callback(lambda _: self._leave(network))
        return await asyncio.shield(done)

    async def _enter(self, network: str, is_gone: Callable[[], Awaitable[bool]] | None) -> None:
        waiting = self._waiting()
        if self._running.total() < self._bounds.threads and not waiting:
            self._running[network] += 1
            return
        self._make_room(network, waiting)
        mine = _Waiting(network, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        try:
            async with asyncio.timeout(self._bounds.seconds):
                await mine.turn
        except BaseException as error:
            if mine in self._queue:
                self._queue.remove(mine)
            elif not mine.turn.cancelled() and mine.turn.exception() is None:  # its turn came in the same moment
                self._leave(network)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise
        try:
            if is_gone is not None and await is_gone():
                raise self._refusal()
        except BaseException:
            self._leave(network)
            raise

    def _waiting(self) -> list[_Waiting]:
        """Who waits, the first one first; the others in the queue have just given up."""
        return [item for item in self._queue if not item.turn.done()]

    def _make_room(self, network: str, waiting: list[_Waiting]) -> None:
        """Raise if there is no room in the queue for one more of this network; it may be that of another one."""
        by_network = Counter(item.network for item in waiting)
        if by_network[network] >= self._bounds.waiting_of_network:
            raise self._refusal()
        if len(waiting) < self._bounds.waiting:
            return
        most = max(by_network.values())
        if by_network[network] + 1 >= most:
            raise self._refusal()
        last = next(item for item in reversed(waiting) if by_network[item.network] == most)
        self._queue.remove(last)
        last.turn.set_exception(self._refusal())

    def _leave(self, network: str) -> None:
        """Give the place to the one who waits longest, of the networks for which least is being done."""
        self._running[network] -= 1
        if not self._running[network]:
            del self._running[network]
        if waiting := self._waiting():
            chosen = min(waiting, key=lambda item: self._running[item.network])
            self._queue.remove(chosen)
            self._running[chosen.network] += 1
            chosen.turn.set_result(None)


_READERS: Final = ThreadPoolExecutor(max_workers=POOL_SIZE, thread_name_prefix="reading")
"""As many as there are connections to PostgreSQL; on SQLite each keeps a connection to the views."""


async def read_in_thread(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run a read in a thread; what it logs carries the id of the request."""
    call = partial(copy_context().run, work, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_READERS, call)


class BoundedThreadPool:
    """A few threads with a short queue, for every event loop of the process."""

    def __init__(self, name: str, bounds: PoolLimits, refusal: Callable[[], InkgroveError]) -> None:
        """`refusal`: what is raised to those for whom there is no room."""
        self._executor = ThreadPoolExecutor(max_workers=bounds.threads, thread_name_prefix=name)
        self._bounds, self._refusal = bounds, refusal
        self._lock = threading.Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, FairThreadPool] = WeakKeyDictionary()

    async def run(self, address: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run work on behalf of an address; raises the refusal if too much is under way, in all or for its network."""
        loop = asyncio.get_running_loop()
        with self._lock:
            threads = self._by_loop.get(loop)
            if threads is None:
                threads = self._by_loop[loop] = FairThreadPool(self._executor, self._bounds, self._refusal)
        return await threads.run(network_of(address), work, *arguments)


def refuse_password() -> Busy:
    """The refusal of a password for which there is no room."""
    return Busy("too many passwords are being checked: try again in a moment", retry_after=_RETRY_SECONDS)


_RETRY_SECONDS: Final = 2
PASSWORDS: Final = BoundedThreadPool(
    "passwords", PoolLimits(threads=2, waiting=32, waiting_of_network=16, seconds=10), refuse_password
)
"""For whatever checks or sets a password: argon2 takes 32 MiB and a core for a while, and anybody may ask for it."""


def _refuse_document() -> RequestError:
    return RequestError(
        "request.too-much-at-once",
        "too many identity documents are being published: try again in a moment",
        retry_after=_RETRY_SECONDS,
    )


DOCUMENTS: Final = BoundedThreadPool(
    "documents", PoolLimits(threads=2, waiting=64, waiting_of_network=32, seconds=10), _refuse_document
)
"""For whatever publishes an identity document, which may have 500 KB and waits for the one who writes to the database.

In the threads of the framework, forty such requests would keep everybody else waiting.
"""


class MemoryBudget:
    """Counts bytes that requests hold while they are under way; used on the event loop only.

    No network takes more than half of what the others leave. So a few networks never take all of it: the next one finds
    less than those before it, and never nothing.
    """

    def __init__(self, most: int, of_network: int, what: str) -> None:
        """`most` bytes in all, `of_network` of them for one network; `what` a refusal says there is too much of."""
        self._most, self._of_network, self._what = most, of_network, what
        self._by_network: Counter[str] = Counter()
        self._total = 0

    def take(self, network: str, size: int) -> None:
        """Count bytes as held; raises `request.too-much-at-once` if they are more than there is room for."""
        held = self._by_network[network]
        left_by_others = self._most - (self._total - held)
        if held + size > min(self._of_network, left_by_others // 2):
            if not held:
                del self._by_network[network]
            raise RequestError(
                "request.too-much-at-once", f"the node {self._what} at this moment: try again", retry_after=5
            )
        self._total += size
        self._by_network[network] += size

    def give_back(self, network: str, size: int) -> None:
        """Count bytes as held no more."""
        self._total -= size
        self._by_network[network] -= size
        if not self._by_network[network]:
            del self._by_network[network]


LEAST_RATE: Final = 16 * 1024
"""Bytes a second that whoever takes longer than `node.body_seconds` must send or read."""


class TransferTimeout:
    """The seconds that the other side has left: what it moves adds to them, never beyond those of the beginning.

    So a body that came fast until its last byte is not waited for any longer than one that has just begun.
    """

    def __init__(self, seconds: float) -> None:
        self._most = self.left = float(seconds)

    def advance(self, waited: float, moved: int) -> None:
        """Count seconds that were waited and bytes that were moved in them."""
        self.left = min(self._most, self.left - waited + moved / LEAST_RATE)
