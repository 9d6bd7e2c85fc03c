"""Which addresses this node connects to when it follows a name that somebody else chose (docs/protocol.md section 8.9).

Without this rule anybody could have the node ask its own network for something, by publishing a name that leads there.
"""

import asyncio
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Protocol

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import FederationError, ForbiddenAddress, Unreachable
from inkgrove.messages.value_readers import read_host

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
"""No place of another node: forbidden whatever the setting says, as the registries of IANA and the clouds have it."""
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
        """Every address of the name, in the order in which to try them; raises `Unreachable` if there is none."""


class SystemResolver:
    """Asks the operating system, in threads of its own: slow names then hold up nothing but other names."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="resolve")

    async def resolve(self, host: str) -> list[Address]:
        """Every address of the name, IPv4 and IPv6."""
        lookup = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, lookup)
        except (OSError, UnicodeError) as err:
            raise Unreachable(f"the name {host} leads nowhere: {err}", host=host) from err
        return list(dict.fromkeys(ip_address(item[4][0]) for item in found))


def keep_allowed(host: str, addresses: Iterable[Address], *, allow_private: bool) -> list[Address]:
    """Those of a name's addresses that may be connected to; raises if there is none."""
    found = list(addresses)
    allowed = [address for address in found if is_allowed(address, allow_private=allow_private)]
    if not allowed:
        # The addresses themselves stay out of the message: who names a host must not learn what it leads to here.
        raise ForbiddenAddress(f"{host} leads to no address that this node may connect to", host=host)
    return allowed


@dataclass(frozen=True, slots=True)
class Target:
    """A port of this very machine that stands for a name."""

    address: Address
    port: int


def parse_resolve(items: Iterable[str]) -> Mapping[str, Target]:
    """The setting `resolve`: `NAME=HOST:PORT` each, where NAME may be `*.haiku.ink` for every name below."""
    targets: dict[str, Target] = {}
    for item in items:
        name, _, place = item.partition("=")
        host, _, port = place.rpartition(":")
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
    """What stands for a name: an item of its own, else the closest `*.` above it."""
    if host in targets:
        return targets[host]
    labels = host.split(".")
    above = (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
    return next((targets[name] for name in above if name in targets), None)
