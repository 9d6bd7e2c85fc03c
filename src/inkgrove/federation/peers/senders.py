"""Authenticates the requests of other nodes: signed, fresh and not replayed (docs/protocol.md section 8.9).

The key comes from discovery, never from the request: that only names somebody, who is then looked up.
"""

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from inkgrove.core import IdentityId, PublicKey, identity_of, verify_signature
from inkgrove.core.errors import BadSignature
from inkgrove.federation.errors import (
    AnswerTooLarge,
    BadAnswer,
    BadRequestSignature,
    FederationError,
    ForbiddenAddress,
    PeerTimeout,
    PeerUnreachable,
    QuotaUsedUp,
    Redirected,
)
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.limits import LookupQuota, SenderQuotas
from inkgrove.federation.peers.signed_requests import SignatureInput, check_signature, check_times, read_signature
from inkgrove.federation.peers.transport import Headers, PeerRequest, parse_url
from inkgrove.federation.peers.well_known import serves_authority
from inkgrove.messages import mandate_claim
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity, is_any_held, use_nonce
from inkgrove.store.node import is_left, keys_of, list_identities


@dataclass(frozen=True, slots=True)
class LogOwner:
    """An identity that asks for its own logs, and the keys whose logs it may have."""

    identity: IdentityId
    authors: frozenset[PublicKey]
    asks: PublicKey
    """The key that has signed the request, or the first key of who asks if its node did."""


_KEY_SECONDS: Final = 30
"""How old a key must at least be before a signature that does not fit makes this node ask for it again."""

MANDATE_HEADER: Final = "inkgrove-mandate"
"""The header with which a key asks for the logs of an identity in the name of its first key."""
MANDATE_SECONDS: Final = 31 * 86_400
"""How long a mandate may still last at most."""
_MANDATE: Final = re.compile("([0-9a-f]{64}) ([0-9]{1,12}) ([0-9a-f]{128})")

_NO_WORD: Final = (PeerUnreachable, PeerTimeout, ForbiddenAddress, Redirected, AnswerTooLarge, BadAnswer)
"""Errors that prove nothing about an identity: a proxy before its node may answer so for a moment."""


def _unproved(text: str) -> FederationError:
    return FederationError("federation.sender-unproved", text)


class RequestAuthenticator:
    """Authenticates the requests of other nodes, within quotas."""

    def __init__(self, node: Node, discovery: Discovery, *, run_blocking: RunBlocking = in_thread) -> None:
        self._node = node
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._quota = LookupQuota(node.settings.stranger_bytes_per_minute, node.clock)
        self._sent = SenderQuotas(node.settings.peer_bytes_per_minute, node.clock)

    async def authenticate(self, request: PeerRequest, address: str = "") -> RemoteIdentity:
        """Return the identity in whose name another node sends this request; raises a `FederationError`.

        A request is accepted once: the second time it is a replay. One of a node over its quota writes nothing.
        `address` is where it comes from, if that is known.
        """
        self._sent.charge_address(address, len(request.body))
        found = read_signature(request)
        await self._check_fresh_and_for_us(request, found)
        sender = await self._find(found.sender)
        try:
            check_signature(request, found, sender.node_key)
        except BadRequestSignature:
            # Its key may be a new one.
            renewed = await self._find(found.sender, fetched_since=self._node.clock() - _KEY_SECONDS * 1_000_000)
            if renewed.node_key == sender.node_key:
                raise
            sender = renewed
            check_signature(request, found, sender.node_key)
        self._sent.charge(sender.node_key, found.sender, len(request.body))
        sender = await self._proving(found.sender, self._discovery.remember(sender))
        await self._use_nonce(found)
        return sender

    async def authenticate_owner(self, request: PeerRequest, address: str = "") -> LogOwner:
        """Return whose logs the sender of this request may have; raises a `FederationError`.

        It is signed by an author's own key, by one with a mandate of a first key, or by the node of an identity. The
        first key of an identity, and whoever has its mandate, may have the logs of all its keys.
        """
        found = read_signature(request, may_be_author=True)
        author = found.author
        if author is None:
            sender = await self.authenticate(request, address)
            keys = await self._run_blocking(lambda: self._node.database.read(lambda c: keys_of(c, sender.id)))
            return LogOwner(sender.id, frozenset({sender.key, *keys}), sender.key)
        self._sent.charge_address(address, len(request.body))
        await self._check_fresh_and_for_us(request, found)
        check_signature(request, found, author)
        self._sent.charge(author, found.sender, len(request.body))
        first_key = self._read_mandate(request, author)
        identity = identity_of(first_key)
        keys = await self._run_blocking(lambda: self._node.database.read(lambda c: keys_of(c, identity)))
        owner = LogOwner(identity, frozenset({first_key, *keys}), author)
        # Keys cost nothing: nothing is written for those of which nothing is here.
        is_held = await self._run_blocking(
            lambda: self._node.database.read(lambda c: is_any_held(c, owner.authors, owner.identity))
        )
        if is_held:
            await self._use_nonce(found)
        return owner

    async def authenticate_node(self, request: PeerRequest, node_key: PublicKey, address: str = "") -> None:
        """Raise a `FederationError` unless a node has signed this request whose key is known from before."""
        self._sent.charge_address(address, len(request.body))
        found = read_signature(request)
        await self._check_fresh_and_for_us(request, found)
        check_signature(request, found, node_key)
        self._sent.charge(node_key, found.sender, len(request.body))
        await self._use_nonce(found)

    def _read_mandate(self, request: PeerRequest, author: PublicKey) -> PublicKey:
        """Return the first key that lets the author of a request fetch its logs; the author itself without a mandate.

        Raises `federation.sender-unproved` for a mandate that does not hold, or not at this time.
        """
        given = request.header(MANDATE_HEADER)
        if given is None:
            return author
        match = _MANDATE.fullmatch(given)
        if match is None:
            raise _unproved("the mandate has another form than KEY UNTIL SIGNATURE")
        first_key, until = PublicKey.fromhex(match.group(1)), int(match.group(2))
        if not 0 < until - self._node.clock() // 1_000_000 <= MANDATE_SECONDS:
            raise _unproved(f"the mandate is over, or lasts longer than {MANDATE_SECONDS:,} seconds: check the clocks")
        try:
            claim = mandate_claim(identity_of(first_key), author, until)
            verify_signature(first_key, claim, bytes.fromhex(match.group(3)))
        except BadSignature as err:
            raise _unproved("the mandate is not signed by the first key") from err
        return first_key

    def charge(self, sender: RemoteIdentity, address: str, size: int) -> None:
        """Charge a sender for work, counted as bytes, before it is done; raises `QuotaUsedUp`."""
        self._sent.charge_work(sender.node_key, sender.fqdn, address, size)

    async def _check_fresh_and_for_us(self, request: PeerRequest, found: SignatureInput) -> None:
        check_times(found, self._node.clock())
        authority = parse_url(request.url).authority
        if not await self._run_blocking(lambda: serves_authority(self._node, authority)):
            raise FederationError("federation.misdirected-request", f"{authority[:260]} is not served here")

    async def _use_nonce(self, found: SignatureInput) -> None:
        now, expires, database = self._node.clock(), found.remembered_until, self._node.database
        is_first = await self._run_blocking(
            lambda: database.write(lambda c: use_nonce(c, found.sender, found.nonce, now=now, expires=expires))
        )
        if not is_first:
            raise FederationError(
                "federation.replayed-request", "this very request has been received before", sender=found.sender
            )

    async def _find(self, fqdn: str, *, fetched_since: int | None = None) -> RemoteIdentity:
        find = self._discovery.find(fqdn, fetched_since=fetched_since, quota=self._quota)
        return await self._proving(fqdn, find)

    async def _proving(self, fqdn: str, work: Awaitable[RemoteIdentity]) -> RemoteIdentity:
        try:
            return await work
        except QuotaUsedUp:
            raise
        except _NO_WORD as err:
            raise FederationError(
                "federation.sender-unreachable",
                f"the node of {fqdn} cannot be asked for its key: {err.message}",
                sender=fqdn,
                retry_after=60,
            ) from err
        except FederationError as err:
            raise FederationError(
                "federation.sender-unproved", f"{fqdn} is not proved: {err.message}", sender=fqdn, reason=err.code
            ) from err


def received_request(
    method: str, host: str, raw_path: bytes, query: bytes, headers: Headers, body: bytes
) -> PeerRequest:
    """Make the request that arrived: host as the Host header has it, path and query as they were sent.

    The scheme is no part of what is signed, since a proxy may have taken off the encryption; it always reads https.
    """
    target = raw_path.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    return PeerRequest(method, f"https://{host.lower()}{target}", headers, body)


def choose_sender_name(node: Node) -> str:
    """Return the name of the identity for which this node asks for what is public; raises `federation.no-sender`.

    It is an administrator, else the first hosted identity.
    """
    listed = node.settings.administrators

    def work(connection: Connection) -> str | None:
        hosted = [identity.fqdn for identity in list_identities(connection)]
        names = chain((name for name in listed if name in hosted), hosted)
        # Others look up who asks: under a name that its former holder has left they find nobody, or somebody else.
        return next((name for name in names if not is_left(connection, name)), None)

    name = node.database.read(work)
    if name is None:
        raise FederationError("federation.no-sender", "this node hosts no identity, in whose name it could ask others")
    return name
