"""Virtual time and a virtual network: nothing waits, nothing is left to chance but the seed."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from inkgrove.federation.errors import PeerTimeout, PeerUnreachable
from inkgrove.federation.peers import PeerRequest, PeerResponse, parse_url

EPOCH = 1_800_000_000_000_000
TIMEOUT_SECONDS = 20.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to whatever is due next."""

    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._seconds

    def jump(self, seconds: float) -> None:
        self._seconds += seconds

    def clock(self) -> int:
        """The time as nodes tell it: microseconds since 1970."""
        return EPOCH + int(self._seconds * 1_000_000)


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits for something that never comes"
        if timeout <= 0:  # something is to be done now: nobody outside is waited for
            return []
        self._loop.jump(timeout)
        return super().select(0)


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    """How often a request does not arrive, and how often an answer."""
    doubling: float = 0.0
    """How often a request arrives twice."""
    delay: float = 0.05
    """The usual seconds for one way."""
    storm: float = 0.0
    """How often it takes so long that nobody waits for it any more."""


FAIR = Weather()
FOUL = Weather(loss=0.06, doubling=0.08, delay=0.8, storm=0.04)

Handler = Callable[[PeerRequest], Awaitable[PeerResponse]]


class Network:
    """Carries requests between nodes, which are known by the end of the names of those who live there."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.weather = FAIR
        self.handlers: dict[str, Handler] = {}
        """By domain; a node that is down has none."""
        self.islands: list[set[str]] = []
        """Domains that reach only each other."""
        self.arrived: Callable[[str, str, PeerRequest], None] = lambda sender, receiver, request: None
        self.tried = 0
        self.carried = 0
        self._under_way: set[asyncio.Task[Any]] = set()

    async def send(self, sender: str, request: PeerRequest) -> PeerResponse:
        """What the transport of a node does: the answer, or why there is none."""
        domain = parse_url(request.url).host.partition(".")[2]
        copies = 2 if self._rng.random() < self.weather.doubling else 1
        tasks = [self._start(self._carry(sender, domain, request)) for _ in range(copies)]
        try:
            # However long it takes, it arrives, though nobody may wait for the answer by then.
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await asyncio.shield(tasks[0])
        except TimeoutError as err:
            raise PeerTimeout(f"{domain} did not answer in time") from err

    def _start(self, work: Any) -> asyncio.Task[PeerResponse]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PeerUnreachable):
            self._loop.call_exception_handler({"message": "a node failed", "exception": error, "task": task})

    async def _carry(self, sender: str, receiver: str, request: PeerRequest) -> PeerResponse:
        self.tried += 1
        await self._travel()
        handler = self.handlers.get(receiver)
        if handler is None or self._are_apart(sender, receiver):
            raise PeerUnreachable(f"{receiver} cannot be reached")
        self.carried += 1
        self.arrived(sender, receiver, request)
        answer = await handler(request)
        if self._are_apart(sender, receiver):
            raise PeerUnreachable(f"{receiver} is cut off")
        await self._travel()
        return answer

    async def _travel(self) -> None:
        weather, rng = self.weather, self._rng
        if rng.random() < weather.loss:
            await asyncio.sleep(10 * TIMEOUT_SECONDS)
            raise PeerUnreachable("lost")
        seconds = rng.uniform(0.2, 2.0) * weather.delay
        if rng.random() < weather.storm:
            seconds += rng.uniform(0.5, 4.0) * TIMEOUT_SECONDS
        await asyncio.sleep(seconds)

    def _are_apart(self, one: str, other: str) -> bool:
        return any((one in island) != (other in island) for island in self.islands)
