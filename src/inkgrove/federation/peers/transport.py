"""Requests to other nodes, and which addresses they may go to (docs/protocol.md section 8.9).

Only https, only to allowed addresses, within limits of size and time. A name is resolved once for a connection, and the
connection goes to the very address that was checked: else anybody could have this node ask its own network for
something, by publishing a name that leads there. Redirects are not followed; there are no cookies, proxies and
compressed answers.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, Protocol, Self, TypeVar

import httpcore

from inkgrove import __version__
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import (
    AnswerTooLarge,
    BadAnswer,
    FederationError,
    ForbiddenAddress,
    PeerTimeout,
    PeerUnreachable,
    Redirected,
)
from inkgrove.messages import read_host
from inkgrove.node.settings import NodeSettings

# Addresses

Address = IPv4Address | IPv6Address

_NEAR_V4: Final = tuple(
    map(
        IPv4Network,
        ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15"),
    )
)
_NEAR_V6: Final = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))
"""Loopback, private and shared ranges: forbidden unless the setting allows them."""

_NOWHERE_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "168.63.129.16/32",  # metadata of Azure
            "169.254.0.0/16",  # link-local: most clouds tell a machine its secrets there, each at addresses of its own
            "100.100.100.200/32",  # metadata of Alibaba
            "192.0.0.0/24",  # protocol assignments, and metadata of Oracle
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112, which answers for names of private addresses
            "192.52.193.0/24",  # relays of multicast
            "192.88.99.0/24",  # relays of 6to4
            "192.175.48.0/24",  # AS112
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that is handed out; IPv4-mapped and -compatible addresses, link-local, multicast and the like lie outside."""

_NOWHERE_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo among them hides an IPv4 address
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4 hides an IPv4 address
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
            # Metadata of clouds, in private ranges: Amazon, Oracle, Scaleway, Google.
            "fd00:ec2::/32",
            "fd00:c1::/32",
            "fd00:42::42/128",
            "fd20:ce::/32",
        ),
    )
)
"""Never a node: forbidden whatever the setting says, as the registries of IANA and the clouds have it."""
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_allowed(address: Address, *, allow_private: bool) -> bool:
    """Whether this node may connect to an address; `allow_private` admits its own network and itself."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_allowed(IPv4Address(address.packed[-4:]), allow_private=allow_private)
        # A zone such as %eth0 is no part of the address.
        address = IPv6Address(address.packed)
        if any(address in network for network in _NOWHERE_V6):
            return False
        return address in _GLOBAL_V6 or (allow_private and any(address in network for network in _NEAR_V6))
    if any(address in network for network in _NOWHERE_V4):
        return False
    return allow_private or not any(address in network for network in _NEAR_V4)


class Resolver(Protocol):
    """Finds the addresses of a name."""

    async def resolve(self, host: str) -> list[Address]:
        """Return every address of the name, in the order in which to try them; raises `PeerUnreachable`."""


class SystemResolver:
    """Asks the operating system, in threads of its own: slow names then hold up nothing but other names."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="resolve")

    async def resolve(self, host: str) -> list[Address]:
        """Return every address of the name, IPv4 and IPv6; raises `PeerUnreachable`."""
        lookup = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, lookup)
        except (OSError, UnicodeError) as err:
            raise PeerUnreachable(f"the name {host} leads nowhere: {err}", host=host) from err
        return list(dict.fromkeys(ip_address(item[4][0]) for item in found))


def keep_allowed(host: str, addresses: Iterable[Address], *, allow_private: bool) -> list[Address]:
    """Return those of a name's addresses that may be connected to; raises `ForbiddenAddress` if there is none."""
    found = list(addresses)
    allowed = [address for address in found if is_allowed(address, allow_private=allow_private)]
    if not allowed:
        # The addresses themselves stay out of the message: who names a host must not learn what it leads to here.
        raise ForbiddenAddress(f"{host} leads to no address that this node may connect to", host=host)
    return allowed


@dataclass(frozen=True, slots=True)
class Target:
    """A port of this machine that requests to a name go to."""

    address: Address
    port: int


def parse_resolve(items: Iterable[str]) -> Mapping[str, Target]:
    """Parse the setting `resolve`: `NAME=HOST:PORT` each, where NAME may be `*.haiku.ink` for every name below.

    Raises `federation.bad-resolve`.
    """
    targets: dict[str, Target] = {}
    for item in items:
        name, _, location = item.partition("=")
        host, _, port = location.rpartition(":")
        try:
            read_host(name.removeprefix("*."), "resolve")
            address = ip_address(host.removeprefix("[").removesuffix("]"))
            target = Target(address, int(port))
        except (InkgroveError, ValueError) as err:
            raise FederationError(
                "federation.bad-resolve", f"{item[:300]!r} does not read like jane.haiku.ink=127.0.0.1:8751"
            ) from err
        if not address.is_loopback or not 0 < target.port < 65_536:
            raise FederationError(
                "federation.bad-resolve",
                f"{item[:300]!r} leads away from this machine, and requests to it are not encrypted",
            )
        targets[name] = target
    return targets


def find_target(targets: Mapping[str, Target], host: str) -> Target | None:
    """Find the target for a name: its own item, else the closest `*.` above it."""
    if host in targets:
        return targets[host]
    labels = host.split(".")
    above = (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
    return next((targets[name] for name in above if name in targets), None)


# Requests and responses

Headers = tuple[tuple[str, str], ...]
_Result = TypeVar("_Result")

_URL: Final = re.compile(
    r"(https?)://([A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?(/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?", re.ASCII
)
_SECONDS: Final = re.compile("[0-9]{1,9}", re.ASCII)
MOST_RETRY_SECONDS: Final = 3600
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_FIRST_SECONDS: Final = 2.0
"""How long each address of a name is tried while there are others."""


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a node's address."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """Host and, if it is not the usual one, port: what the Host header says."""
        return self.host if self.port == _DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse the URL of something on another node, strictly; raises `federation.bad-url`."""
    match = _URL.fullmatch(text)
    if match is None:
        raise FederationError("federation.bad-url", f"{text[:200]!r} is no address of a node")
    scheme, host, port, target = match.groups()
    try:
        host = read_host(host.lower(), "host")
    except InkgroveError as err:
        raise FederationError("federation.bad-url", f"{text[:200]!r} does not name a domain") from err
    number = int(port) if port else _DEFAULT_PORTS[scheme]
    if not (number in _DEFAULT_PORTS.values() or 1024 <= number <= 65_535):
        raise FederationError("federation.bad-url", f"{text[:200]!r} names a port of other services")
    return Url(scheme, host, number, target or "/")


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request to another node, or from one."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    max_answer_bytes: int | None = None
    """Less than the setting allows, where less is expected."""

    def header(self, name: str) -> str | None:
        """The value of a header, several joined by commas as HTTP has it."""
        return _header(self.headers, name)

    def with_headers(self, *headers: tuple[str, str]) -> "PeerRequest":
        """The request with further headers."""
        return replace(self, headers=self.headers + headers)


@dataclass(frozen=True, slots=True)
class PeerResponse:
    """The whole answer of another node."""

    status: int
    headers: Headers
    body: bytes

    @property
    def retry_after(self) -> int | None:
        """How many seconds the other node asks to wait, if it does, up to an hour."""
        value = self.header("retry-after") or ""
        seconds = int(value) if _SECONDS.fullmatch(value) else _seconds_until(value, self.header("date"))
        return None if seconds is None else min(max(seconds, 0), MOST_RETRY_SECONDS)

    def header(self, name: str) -> str | None:
        """The value of a header, several joined by commas as HTTP has it."""
        return _header(self.headers, name)


def _seconds_until(date: str, answered: str | None) -> int | None:
    """How long it is to an HTTP date, by the clock of the node that answered."""
    try:
        until = parsedate_to_datetime(date[:100])
        now = parsedate_to_datetime(answered[:100]) if answered is not None else datetime.now(UTC)
        return int((until - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _header(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name.lower()]
    return ", ".join(values) if values else None


class Transport(Protocol):
    """Carries requests to other nodes: over the network, or over one that a simulation makes up."""

    async def send(self, request: PeerRequest) -> PeerResponse:
        """Send a request and return the answer, of any status but a redirect; raises a `FederationError`."""


class HttpTransport:
    """The transport over the real network; belongs to the event loop that uses it."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        connector: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._settings = settings
        self._targets = parse_resolve(settings.resolve)
        network = _CheckedNetwork(
            self._targets,
            resolver or SystemResolver(),
            connector or httpcore.AnyIOBackend(),
            allow_private=settings.allow_private_addresses,
        )
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or ssl.create_default_context(),
            max_connections=None,  # who sends bounds what is under way: here one slow node would keep out the others
            max_keepalive_connections=64,
            keepalive_expiry=15,
            network_backend=network,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept for later."""
        await self._pool.aclose()

    async def send(self, request: PeerRequest) -> PeerResponse:
        """Send a request and read the whole answer, all of it within the time and size that the settings allow."""
        url = parse_url(request.url)
        location = self._find_location(url)
        most = min(self._settings.max_answer_bytes, request.max_answer_bytes or self._settings.max_answer_bytes)
        try:
            async with asyncio.timeout(self._settings.peer_timeout_seconds):
                return await self._exchange(request, url, location, most)
        except TimeoutError as err:
            seconds = self._settings.peer_timeout_seconds
            raise PeerTimeout(f"{url.authority} did not answer within {seconds} seconds", host=url.host) from err
        except httpcore.RemoteProtocolError as err:
            raise BadAnswer(f"{url.authority} does not speak HTTP: {err}", host=url.host) from err
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as err:
            raise PeerUnreachable(f"{url.authority} cannot be reached: {err}", host=url.host) from err

    def _find_location(self, url: Url) -> httpcore.URL:
        """The URL that is connected to; raises `federation.bad-url` unless it is encrypted or on this machine."""
        target = find_target(self._targets, url.host)
        if target is not None:
            # Development: this machine, not encrypted. The request itself still names the host it is meant for.
            return httpcore.URL(scheme="http", host=url.host, port=target.port, target=url.target)
        if url.scheme != "https":
            raise FederationError(
                "federation.bad-url",
                f"http://{url.authority} is not encrypted; nodes are reached by https",
                host=url.host,
            )
        return httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target)

    async def _exchange(self, request: PeerRequest, url: Url, location: httpcore.URL, most: int) -> PeerResponse:
        headers = [
            ("Host", url.authority),
            ("User-Agent", f"inkgrove/{__version__}"),
            ("Accept-Encoding", "identity"),
            ("Content-Length", str(len(request.body))),
            *request.headers,
        ]
        async with self._pool.stream(request.method, location, headers=headers, content=request.body) as response:
            answered = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
            if 300 <= response.status < 400:
                raise Redirected(f"{url.authority} sends elsewhere (status {response.status})", host=url.host)
            if (_header(answered, "content-encoding") or "identity").lower() != "identity":
                raise BadAnswer(f"{url.authority} compresses its answer, unasked", host=url.host)
            body = bytearray()
            # A length that is announced is refused before anything of it is read.
            announced = _header(answered, "content-length") or "0"
            is_too_long = announced.isdigit() and int(announced) > most
            if not is_too_long:
                async for chunk in response.aiter_stream():
                    body += chunk
                    is_too_long = len(body) > most
                    if is_too_long:
                        break
            if is_too_long:
                raise AnswerTooLarge(f"{url.authority} answers with more than {most} bytes", host=url.host)
            return PeerResponse(response.status, answered, bytes(body))


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked, never to a name, which may lead elsewhere in the next look-up."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        resolver: Resolver,
        connector: httpcore.AsyncNetworkBackend,
        *,
        allow_private: bool,
    ) -> None:
        self._targets = targets
        self._resolver = resolver
        self._connector = connector
        self._allow_private = allow_private

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of the name that takes the connection."""
        addresses = await self._addresses_of(host)
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return _Stream(await self._connector.connect_tcp(str(address), port, _FIRST_SECONDS))
        return _Stream(await self._connector.connect_tcp(str(addresses[-1]), port, timeout))

    async def _addresses_of(self, host: str) -> list[Address]:
        target = find_target(self._targets, host)
        if target is not None:
            return [target.address]
        return keep_allowed(host, await self._resolver.resolve(host), allow_private=self._allow_private)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that is closed when the deadline falls into its handshake, where httpcore would leave it open."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            await self._inner.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def run_with_transport(settings: NodeSettings, work: Callable[[Transport], Awaitable[_Result]]) -> _Result:
    """Run `work` with a transport and wait for its result; for commands, which have no event loop."""

    async def run() -> _Result:
        async with HttpTransport(settings) as transport:
            return await work(transport)

    return asyncio.run(run())
