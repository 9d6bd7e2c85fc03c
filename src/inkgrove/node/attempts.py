"""How often one may try: to sign in, by name and by address; to register services or prove forks, by address.

A failed sign-in is held against one for a short window only, and refused attempts do not make it longer. An address
from which an identity has signed in before has a count of its own, so that strangers who try a name keep out each
other and not its owner. What is stored are hashes: people type passwords where names belong.
"""

from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final

from sqlalchemy import Connection

from inkgrove.node.errors import TooManyAttempts
from inkgrove.node.node import Node
from inkgrove.store.node import (
    KNOWN_ADDRESS,
    count_attempt,
    forget_expired,
    has_attempt,
    record_attempt,
    uncount_attempt,
)

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND


def begin_sign_in(node: Node, name: str, address: str) -> list[str]:
    """Count an attempt before the password is looked at, or refuse it; what to take back if it is right."""
    now, window = node.clock(), node.settings.sign_in_window_seconds * _SECOND
    place = network_of(address)

    def work(connection: Connection) -> list[str]:
        is_known = has_attempt(connection, _who("known", name, place), now - KNOWN_ADDRESS)
        by_name = _who("known-name", name, place) if is_known else _who("name", name)
        limits = {by_name: node.settings.sign_ins_per_name, _who("address", place): node.settings.sign_ins_per_address}
        counts = count_attempt(connection, list(limits), now, window)
        _refuse_beyond(counts, limits, now, window)
        return list(limits)

    return node.database.write(work)


def succeed(node: Node, name: str, address: str, counted: list[str]) -> None:
    """The attempt was right: it does not count, and the address is known from now on."""
    now = node.clock()

    def work(connection: Connection) -> None:
        uncount_attempt(connection, counted)
        record_attempt(connection, _who("known", name, network_of(address)), now)
        if now - node.tidied > _HOUR:
            forget_expired(connection, now, accesses_since=now - node.settings.access_record_seconds * _SECOND)
            node.tidied = now

    node.database.write(work)


def count_registration(node: Node, address: str) -> None:
    """Count a service that an address registers, or refuse it."""
    _count_by_address(node, "register", address, node.settings.clients_per_address)


def count_identity(node: Node, address: str) -> None:
    """Count an identity that an address creates, or refuse it."""
    _count_by_address(node, "identity", address, node.settings.registrations_per_address)


def count_fork_proof(node: Node, address: str) -> None:
    """Count a proof of a fork that comes from an address, or refuse it."""
    _count_by_address(node, "fork", address, node.settings.fork_proofs_per_address)


def _count_by_address(node: Node, what: str, address: str, most: int) -> None:
    now, who = node.clock(), _who(what, network_of(address))

    def work(connection: Connection) -> None:
        counts = count_attempt(connection, [who], now, _HOUR)
        _refuse_beyond(counts, {who: most}, now, _HOUR)

    node.database.write(work)


def _refuse_beyond(counts: dict[str, tuple[int, int]], limits: dict[str, int], now: int, window: int) -> None:
    waits = [since + window - now for who, (count, since) in counts.items() if count > limits[who]]
    if waits:
        seconds = max(1, -(-max(waits) // _SECOND))
        raise TooManyAttempts(f"too many attempts: wait {seconds} seconds", retry_after=seconds)


def _who(*parts: str) -> str:
    return f"{parts[0]}:{sha256('|'.join(parts).encode()).hexdigest()}"


def network_of(address: str) -> str:
    """An address as far as one household shares it: the first 64 bits of IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped is not None else parsed.exploded[:19]
