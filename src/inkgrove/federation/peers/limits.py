"""Limits on what goes on between nodes (docs/protocol.md section 8.9); each process has its own.

Quotas bound how much others may send in a minute, or make this node fetch. `RequestSlots` bounds how many requests are
under way, so that slow nodes delay each other and nobody else. `run_rounds` starts whatever is due, side by side.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

import structlog

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import QuotaUsedUp
from inkgrove.federation.peers.transport import PeerRequest, PeerResponse, Transport
from inkgrove.node.identity import network_of

_MINUTE: Final = 60_000_000
_MOST_KEPT: Final = 10_000
_FLOOR: Final = 4096
"""What a request counts at least: many small ones cost too."""
_PARTS: Final = 16
_ADDRESSES: Final = 4


class Quotas:
    """Bytes by node, or by another key, in windows of a minute."""

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._most = bytes_per_minute
        self._clock = clock
        self._window = 0
        self._used: dict[Hashable, int] = {}

    def charge(self, who: Hashable, size: int) -> None:
        """Count a request; raises `QuotaUsedUp` if too much was counted in this minute."""
        used = self._used_by(who)
        # What is larger than the whole quota goes through if it is the first.
        if used and used + size > self._most:
            raise self.refusal()
        self._note(who, used + max(size, _FLOOR))

    def left(self, who: Hashable) -> int:
        """How much is left in this minute."""
        return max(0, self._most - self._used_by(who))

    def refusal(self) -> QuotaUsedUp:
        """Return the error for when nothing is left; it says when there will be."""
        wait = (_MINUTE - self._clock() % _MINUTE) // 1_000_000 + 1
        return QuotaUsedUp("that is enough for this minute", retry_after=wait)

    def _used_by(self, who: Hashable) -> int:
        window = self._clock() // _MINUTE
        if window != self._window:
            self._window, self._used = window, {}
        return self._used.get(who, 0)

    def _note(self, who: Hashable, used: int) -> None:
        """Keep a count; when there are too many, the smaller half is forgotten: those who used most stay counted."""
        if who not in self._used and len(self._used) >= _MOST_KEPT:
            found = list(self._used.items())  # at once: other threads count too
            self._used = dict(nlargest(_MOST_KEPT // 2, found, key=itemgetter(1)))
        self._used[who] = used

    def add(self, who: Hashable, size: int) -> None:
        """Count what a request cost besides; the next one is refused if that was too much."""
        self._note(who, self._used.get(who, 0) + max(0, size - _FLOOR))

    def charge_answer(self, who: Hashable, size: int) -> None:
        """Count the answer to a request; raises `QuotaUsedUp` if others of their requests have left nothing."""
        is_left = self.left(who) > 0
        self.add(who, size)
        if not is_left:
            raise self.refusal()


class SenderQuotas:
    """Quotas by the key of a sending node and, since keys cost nothing, by its domain and its address.

    An address may be that of a proxy before this node or theirs, and so has four times as much.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._keys = Quotas(bytes_per_minute, clock)
        self._domains = Quotas(bytes_per_minute, clock)
        self._addresses = Quotas(_ADDRESSES * bytes_per_minute, clock)

    def charge_address(self, address: str, size: int) -> None:
        """Count a request before anything is known about it."""
        if address:
            self._addresses.charge(network_of(address), size)

    def charge(self, key: Hashable, fqdn: str, size: int) -> None:
        """Count a request whose sender is proved, before its content is read."""
        self._domains.charge(domain_of(fqdn), size)
        self._keys.charge(key, size)

    def charge_work(self, key: Hashable, fqdn: str, address: str, size: int) -> None:
        """Count what a request will cost besides, before that is done; raises `QuotaUsedUp` if less is left."""
        counted: tuple[tuple[Quotas, Hashable], ...] = ((self._keys, key), (self._domains, domain_of(fqdn)))
        if address:
            counted += ((self._addresses, network_of(address)),)
        if any(quotas.left(who) < size for quotas, who in counted):
            raise self._keys.refusal()
        for quotas, who in counted:
            quotas.add(who, size)


class LookupQuota:
    """How much strangers can make this node fetch: each request names an identity, which is looked up.

    The owner of a domain has any number of names, so those under one domain share a part of the whole.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], int]) -> None:
        self._all = Quotas(bytes_per_minute, clock)
        self._domains = Quotas(bytes_per_minute // _PARTS, clock)

    def charge(self, fqdn: str) -> None:
        """Count a look-up; raises `QuotaUsedUp` if there were too many."""
        self._domains.charge(domain_of(fqdn), _FLOOR)
        self._all.charge(None, _FLOOR)

    def left(self, fqdn: str) -> int:
        """How large the answer to a look-up that was counted may be."""
        return _FLOOR + min(self._domains.left(domain_of(fqdn)), self._all.left(None))

    def add(self, fqdn: str, size: int) -> None:
        """Count how large the answer was."""
        self._domains.add(domain_of(fqdn), size)
        self._all.add(None, size)


def domain_of(fqdn: str) -> str:
    """The last two labels of a name: the owner of a domain has all names below it."""
    return ".".join(fqdn.split(".")[-2:])


# Slots for requests


_QUICK_SECONDS: Final = 2.0


class RequestSlots:
    """Slots for requests over a transport; belongs to one event loop.

    A node that took long the last time waits for one of a few slots for slow ones. All others have one of many, and
    not for longer than a quick answer takes: then it is free for the next.
    """

    def __init__(self, transport: Transport, *, quick: int = 32, slow: int = 8) -> None:
        self._transport = transport
        self._quick = asyncio.Semaphore(quick)
        self._few = asyncio.Semaphore(slow)
        self._slow: dict[str, None] = {}

    @asynccontextmanager
    async def acquire(self, node: str) -> AsyncIterator[Transport]:
        """Wait for a slot; yields the transport for requests to that node, one after the other."""
        is_slow = node in self._slow
        semaphore = self._few if is_slow else self._quick
        await semaphore.acquire()
        slot = _Slot(self._transport, semaphore, lambda seconds: self._note(node, seconds), is_kept=is_slow)
        try:
            yield slot
        finally:
            slot.leave()

    def _note(self, node: str, seconds: float) -> None:
        self._slow.pop(node, None)
        if seconds >= _QUICK_SECONDS:
            if len(self._slow) >= _MOST_KEPT:
                del self._slow[next(iter(self._slow))]
            self._slow[node] = None


class _Slot:
    """A transport that measures how long the other node takes."""

    def __init__(
        self, transport: Transport, semaphore: asyncio.Semaphore, note: Callable[[float], None], *, is_kept: bool
    ) -> None:
        self._transport = transport
        self._semaphore = semaphore
        self._note = note
        self._is_kept = is_kept
        self._has_left = False

    async def send(self, request: PeerRequest) -> PeerResponse:
        """Send a request; while the answer takes long, somebody else has the slot."""
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
            self._semaphore.release()


# Rounds


_LONGEST_WAIT: Final = 60.0

log = structlog.get_logger("inkgrove.rounds")


async def run_rounds(
    find_work: Callable[[], Awaitable[Iterable[Coroutine[Any, Any, None]]]],
    wake: asyncio.Event,
    idle_seconds: float,
    on_error: Callable[[InkgroveError], None],
    pause_seconds: float = 0.0,
) -> None:
    """Start the work that is found, then look again when woken or after a while; until the task is cancelled.

    Nothing else ends it: a round that fails is begun again, after twice as long each time up to a minute.
    """
    tasks: set[asyncio.Task[None]] = set()

    def finish(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work between nodes failed", exc_info=error)

    wait = idle_seconds
    try:
        while True:
            wake.clear()
            try:
                for work in await find_work():
                    task = asyncio.create_task(work)
                    tasks.add(task)
                    task.add_done_callback(finish)
            except Exception as error:  # whatever it is: nobody else would begin again
                if isinstance(error, InkgroveError):  # the store is away for a moment
                    on_error(error)
                else:
                    log.exception("work between nodes could not be looked up")
                await asyncio.sleep(wait)
                wait = min(_LONGEST_WAIT, 2 * wait)
                continue
            wait = idle_seconds
            if pause_seconds:
                await asyncio.sleep(pause_seconds)
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the wake-up.
                async with asyncio.timeout(idle_seconds):
                    await wake.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
