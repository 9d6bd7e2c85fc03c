"""What a proxy in front of the node says of a request, and which proxies are believed (docs/operating.md).

Anybody can send any header. Only what `node.trusted_proxies` lists may say whom it speaks for (`X-Forwarded-For`), and
whether they came over https (`X-Forwarded-Proto`). `Forwarded` and `X-Forwarded-Host` are never looked at: a proxy that
does not know them passes on what the client wrote.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from inkgrove.core.errors import InvalidSetting
from inkgrove.federation.addresses import Address

FORWARDING: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
"""Headers that only a proxy has a reason to send."""
_SCHEMES: Final = {b"http": "http", b"https": "https"}


class TrustedProxies:
    """The proxies that are believed."""

    def __init__(self, items: Iterable[str]) -> None:
        """`items`: addresses and networks such as `127.0.0.1` or `10.0.0.0/8`; raises `InvalidSetting`."""
        self._networks: list[IPv4Network | IPv6Network] = []
        for item in items:
            try:
                self._networks.append(ip_network(item))
            except ValueError as err:
                text = f"node.trusted_proxies: {item[:80]!r} is no address or network such as 127.0.0.1 or 10.0.0.0/8"
                raise InvalidSetting(text, name="node.trusted_proxies") from err

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str) -> bool:
        """Whether the proxy at this address is believed."""
        if not self._networks:
            return False
        address = _parse(host)
        return address is not None and self._holds(address)

    def client_of(self, host: str, forwarded_for: str) -> str:
        """Who sent what came from a trusted address: the rightmost address in the header that is no trusted proxy.

        Each proxy appends whom it got the request from, so what stands further left is only claimed. If nothing is
        left, the client is on a trusted address itself; what is no address ends the search.
        """
        client = host
        for item in reversed(forwarded_for.split(",")):
            address = _parse(_without_port(item.strip()))
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


def _parse(text: str) -> Address | None:
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
