"""Connections to the node: how many there may be, and for whom a proxy speaks (docs/node.md, docs/operating.md).

Every connection takes a file descriptor. When there are too many, in all or from one network, idle ones are dropped
first. Anybody can send any header, so only proxies that `node.trusted_proxies` lists may say whom they speak for
(`X-Forwarded-For`) and whether that came over https (`X-Forwarded-Proto`). `Forwarded` and `X-Forwarded-Host` are never
looked at: a proxy that does not know them passes on what the client wrote.
"""

import asyncio
import resource
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal, Protocol

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from inkgrove.api.http.limits import TransferTimeout
from inkgrove.api.http.telemetry import Metrics
from inkgrove.core.errors import SettingsError
from inkgrove.federation.peers import Address
from inkgrove.node.identity import network_of
from inkgrove.node.settings import NodeSettings

_MOST_FILES: Final = 65_536
_RESERVE: Final = 2048
_LONGEST_QUEUE: Final = 1024
_LOG_SECONDS: Final = 60.0
_SHORTEST_WAIT: Final = 0.01
log = structlog.get_logger("inkgrove.http")


class Connection(Protocol):
    """What is held open; a protocol of the server."""

    def drop(self) -> None:
        """End it at once."""


def raise_file_limit() -> None:
    """Let this process open as many files as the system lets it; most shells begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_limit() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The open connections of one process; belongs to its event loop."""

    def __init__(self, settings: NodeSettings) -> None:
        reserve = min(file_limit() // 2, _RESERVE)
        self.most = min(settings.max_connections, file_limit() - reserve)
        # What waits in the kernel can all be accepted before anything is dropped: half of the reserve takes it.
        self.queue = max(16, min(reserve // 2, _LONGEST_QUEUE))
        self._of_network = settings.connections_per_address
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._networks: dict[Connection, str | None] = {}
        self._by_network: dict[str, dict[Connection, None]] = {}
        self._idle: dict[Connection, None] = {}
        """Those without a request under way; the one that has been so for longest is the first."""
        self._ended: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.metrics: Metrics | None = None

    def add(self, connection: Connection, host: str, loop: asyncio.AbstractEventLoop) -> bool:
        """Take a new connection in, and drop an idle one if there are too many; False if none is idle."""
        # Behind a proxy that is believed, every client has the proxy's address.
        network = None if self._proxies.trusts(host) else network_of(host)
        same = self._by_network.get(network, {}) if network is not None else {}
        victim: Connection | None = None
        if len(same) >= self._of_network:
            victim = next((item for item in same if item in self._idle), None)
        elif len(self._networks) >= self.most:
            victim = next(iter(self._idle), None)
        else:
            self._put(connection, network)
            return True
        if victim is None:
            self._note("refused", loop)
            return False
        self.remove(victim)
        self._put(connection, network)
        victim.drop()
        self._note("dropped", loop)
        return True

    def _put(self, connection: Connection, network: str | None) -> None:
        self._networks[connection] = network
        self._idle[connection] = None
        if network is not None:
            self._by_network.setdefault(network, {})[connection] = None
        if self.metrics is not None:
            self.metrics.connections.inc()

    def begin_request(self, connection: Connection) -> None:
        """The connection is needed now."""
        self._idle.pop(connection, None)

    def end_request(self, connection: Connection) -> None:
        """Nothing is under way on the connection any more."""
        if connection in self._networks:
            self._idle[connection] = None

    def remove(self, connection: Connection) -> None:
        """The connection has ended; does nothing the second time."""
        if connection not in self._networks:
            return
        network = self._networks.pop(connection)
        self._idle.pop(connection, None)
        if network is not None and (same := self._by_network.get(network)) is not None:
            same.pop(connection, None)
            if not same:
                del self._by_network[network]
        if self.metrics is not None:
            self.metrics.connections.dec()

    def _note(self, what: Literal["dropped", "refused"], loop: asyncio.AbstractEventLoop) -> None:
        """Count a connection that was ended, and log the sum at once and then once a minute."""
        self._ended[what] = self._ended.get(what, 0) + 1
        if self.metrics is not None:
            self.metrics.ended.labels(what).inc()
        if self._timer is None:
            self._tell(loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._ended:
            facts: dict[str, int] = {"open": len(self._networks), "most": self.most, **self._ended}
            log.warning("too many connections", **facts)
            self._ended = {}
            self._timer = loop.call_later(_LOG_SECONDS, self._tell, loop)


class StallTimer:
    """Ends a connection whose other side does not read what it was sent, or reads it too slowly."""

    def __init__(self, seconds: float, waiting: Callable[[], int], end: Callable[[], None]) -> None:
        """`waiting`: how many bytes are not sent yet."""
        self._timeout, self._waiting, self._end = TransferTimeout(seconds), waiting, end
        self._timer: asyncio.TimerHandle | None = None
        self._since, self._size = 0.0, 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something waits to be read."""
        if self._timer is None:
            self._since, self._size = loop.time(), self._waiting()
            self._timer = loop.call_later(self._timeout.left, self._look, loop)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """It has been read."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._settle(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """The time is over, unless enough has been read meanwhile."""
        self._timer = None
        self._settle(loop)
        if self._timeout.left > _SHORTEST_WAIT:
            self.start(loop)
        else:
            self._end()

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timeout.advance(loop.time() - self._since, max(0, self._size - self._waiting()))


FORWARDING: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
"""Headers that only a proxy has a reason to send."""
_SCHEMES: Final = {b"http": "http", b"https": "https"}


class TrustedProxies:
    """The proxies that are believed."""

    def __init__(self, items: Iterable[str]) -> None:
        """`items`: addresses and networks such as `127.0.0.1` or `10.0.0.0/8`; raises `settings.invalid`."""
        self._networks: list[IPv4Network | IPv6Network] = []
        for item in items:
            try:
                self._networks.append(ip_network(item))
            except ValueError as err:
                text = f"node.trusted_proxies: {item[:80]!r} is no address or network such as 127.0.0.1 or 10.0.0.0/8"
                raise SettingsError("settings.invalid", text, name="node.trusted_proxies") from err

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str) -> bool:
        """Whether the proxy at this address is believed."""
        if not self._networks:
            return False
        address = _parse_address(host)
        return address is not None and self._holds(address)

    def client_of(self, host: str, forwarded_for: str) -> str:
        """Who sent what came from a trusted address: the rightmost address in the header that is no trusted proxy.

        Each proxy appends whom it got the request from, so what stands further left is only claimed. If nothing is
        left, the client is on a trusted address itself; what is no address ends the search.
        """
        client = host
        for item in reversed(forwarded_for.split(",")):
            address = _parse_address(_without_port(item.strip()))
            if address is None:
                return client
            client = str(address)
            if not self._holds(address):
                return client
        return client

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


class ProxyHeaders:
    """Middleware, the outermost: what a trusted proxy says replaces what the connection shows."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app, self._proxies = app, proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        client = scope.get("client")
        if scope["type"] == "http" and client is not None and self._proxies.trusts(client[0]):
            given = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
            scheme = _SCHEMES.get(dict(scope["headers"]).get(b"x-forwarded-proto", b"").strip().lower())
            if given:
                scope["client"] = (self._proxies.client_of(client[0], given.decode("latin-1")), 0)
            if scheme is not None:
                scope["scheme"] = scheme
        await self._app(scope, receive, send)


def _parse_address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
