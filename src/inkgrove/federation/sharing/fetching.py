"""Fetches from the owner's node what is not held here and a reader asks for (docs/protocol.md sections 8.10 and 9).

That is the bytes of blobs which shared instances name, and copies that have rotted. The reader must see an instance
here that names the blob; the owner's node decides by its own rules who gets what. Bytes that are lacking although their
owner lives here, who came with the words alone, are asked for where the instance was sent to. A blob counts only if it
has the very hash, a copy is verified like a delivery. Nobody else is asked, and nothing comes that nobody asked for.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from inkgrove.core import Hash, IdentityId, PublicKey, parse_hash
from inkgrove.core.errors import BadHashText, NoSuchCopy, ParcelError, RotError
from inkgrove.federation.errors import BadAnswer, FederationError, IdentityRelocated
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.documents import MOVED_STATUS, take_moved
from inkgrove.federation.peers.limits import RequestSlots
from inkgrove.federation.peers.senders import choose_sender_name
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import PeerResponse, Transport
from inkgrove.federation.sharing.inbox import store_parcel
from inkgrove.messages import Delivery, decode_delivery, encode_delivery, open_parcel
from inkgrove.node.blobs import instances_naming
from inkgrove.node.errors import ViewError
from inkgrove.node.identity import Caller, check_author, find_owner
from inkgrove.node.publishing import (
    ArrivingParcel,
    SenderRelation,
    decide_acceptance,
    find_held_instance,
    is_due_to,
    mode_of,
    pack_parcel,
)
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.files import Draft
from inkgrove.store.logs import find_entry, lend_reference
from inkgrove.store.node import find_identity, is_follower, lives_here, living_among, shares_of
from inkgrove.store.rot import Copy, find_copy, record_refetch, revive
from inkgrove.store.views import put_blob

BLOBS_PATH: Final = "/federation/blobs"
PART_BYTES: Final = 8 * 1024 * 1024
"""How much one answer holds."""
_SECOND: Final = 1_000_000
_FAILURE_SECONDS: Final = 30
_MOST_FAILURES: Final = 10_000
_LONGEST_SECONDS: Final = 300.0
"""How long a blob is fetched, with all the waiting for others."""
_MOST_HOLDERS: Final = 5
"""How many of those whom an instance was sent to are asked for bytes that its owner, who lives here, has lost."""
_OF_OWNER: Final = 4
"""How many blobs of one owner are fetched at the same time: who has a slow node keeps nobody else waiting."""


@dataclass(frozen=True, slots=True)
class _BlobSource:
    """Where an instance is held that names a blob: the node of its owner, or of somebody whom it was sent to."""

    instance: Hash
    author: PublicKey
    holder: IdentityId


class BlobFetcher:
    """Fetches each blob once, however many ask for it; belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        run_blocking: RunBlocking = in_thread,
        seconds: float = _LONGEST_SECONDS,
    ) -> None:
        self._node = node
        self._slots = RequestSlots(transport)
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._seconds = seconds
        self._holders: WeakValueDictionary[IdentityId, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: dict[tuple[Hash, IdentityId | None], asyncio.Task[bool]] = {}
        self._failures: dict[tuple[Hash, IdentityId | None], int] = {}

    async def fetch(self, caller: Caller, text: str) -> bool:
        """Try to fetch a blob that an instance names which the caller sees; returns whether it is held now."""
        try:
            content = parse_hash(text)
        except BadHashText:
            return False
        key = content, caller.identity
        if self._node.clock() < self._failures.get(key, 0):
            return False
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch_in_time(caller, content))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        is_here = await asyncio.shield(task)
        if not is_here:
            if len(self._failures) >= _MOST_FAILURES:
                self._failures.clear()
            self._failures[key] = self._node.clock() + _FAILURE_SECONDS * _SECOND
        return is_here

    async def _fetch_in_time(self, caller: Caller, content: Hash) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                return await self._fetch(caller, content)
        return False

    async def _fetch(self, caller: Caller, content: Hash) -> bool:
        for source in await self._run_blocking(lambda: self._find_sources(caller, content)):
            try:
                async with self._holders.setdefault(source.holder, asyncio.Semaphore(_OF_OWNER)):
                    try:
                        await self._fetch_from(caller, content, source)
                    except IdentityRelocated:
                        await self._fetch_from(caller, content, source)
            except FederationError:
                continue
            return True
        return False

    def _find_sources(self, caller: Caller, content: Hash) -> list[_BlobSource]:
        found = instances_naming(self._node, caller, content)

        def work(connection: Connection) -> list[_BlobSource]:
            sources = []
            for instance, author in found:
                holders = [find_owner(connection, author)]
                if lives_here(connection, holders[0]):
                    sent = shares_of(connection, instance)
                    here = living_among(connection, sent)
                    holders = [item for item in sent if item not in here][:_MOST_HOLDERS]
                sources += [_BlobSource(instance, author, holder) for holder in holders]
            return sources

        return self._node.database.read(work)

    async def _fetch_from(self, caller: Caller, content: Hash, source: _BlobSource) -> None:
        """Fetch a blob from the node that holds it; raises `IdentityRelocated` if that has moved."""
        known = await self._discovery.find_by_id(source.holder)
        self._node.disk.require()
        sender = await self._run_blocking(lambda: self._sender(caller))
        draft = self._node.blobs.new_draft()  # not in a thread: who gives up meanwhile would leave the file behind
        try:
            size = None
            while size is None or draft.size < size:
                path = f"{BLOBS_PATH}/{content.hex()}?from={draft.size}"
                async with self._slots.acquire(known.node_key.hex()) as transport:
                    request = await self._run_blocking(
                        lambda: make_signed_request(self._node, known, "GET", path, sender=sender)  # noqa: B023
                    )
                    answer = await transport.send(request)
                    if answer.status == MOVED_STATUS:
                        raise await self._run_blocking(lambda: take_moved(self._node, answer, [known]))  # noqa: B023
                    part, size = self._read(answer, draft.size, size)
                    await self._run_blocking(lambda: draft.write(part))  # noqa: B023
            await self._run_blocking(lambda: self._keep(draft, content, source))
        finally:
            await self._run_blocking(draft.discard)

    def _sender(self, caller: Caller) -> str:
        identity = caller.identity
        hosted = self._node.database.read(lambda c: find_identity(c, identity)) if identity is not None else None
        return hosted.fqdn if hosted is not None and hosted.lives_here else choose_sender_name(self._node)

    def _read(self, answer: PeerResponse, first: int, expected_size: int | None) -> tuple[bytes, int]:
        """Return a part of a blob and the size of the whole, which must be equal in all parts; raises `BadAnswer`."""
        if answer.status != 200:
            raise BadAnswer(f"the owner's node answers with status {answer.status}", status=answer.status)
        total = answer.header("x-blob-size") or ""
        if not (total.isascii() and total.isdigit()) or int(total) > self._node.settings.max_blob_bytes:
            raise BadAnswer("the blob is of no size, or too large for this node")
        size = int(total)
        # Whole parts only: else a blob could come a byte at a time.
        if expected_size not in (None, size) or len(answer.body) != min(PART_BYTES, size - first):
            raise BadAnswer("the owner's node sends more or less of the blob than there is")
        return answer.body, size

    def _keep(self, draft: Draft, content: Hash, source: _BlobSource) -> None:
        if draft.hash != content:
            raise BadAnswer("the bytes that the owner's node sent have another hash")
        draft.sync()
        node = self._node

        def work(connection: Connection) -> None:
            put_blob(connection, content, draft.size, node.clock())
            lend_reference(connection, content, source.instance, source.author)
            record_refetch(connection, source.instance)
            # Inside of the transaction, as with an upload.
            if draft.path.exists():
                node.blobs.keep(draft)

        node.database.write(work, durable=True)


# Copies that have rotted

COPIES_PATH: Final = "/federation/copies"
_UNKNOWN: Final = "no such instance of an identity of this node is here, or it is not for the one who asks"


@dataclass(frozen=True, slots=True)
class RefetchContext:
    """What is needed to ask another node."""

    node: Node
    transport: Transport
    discovery: Discovery
    run_blocking: RunBlocking = in_thread


def answer_refetch(node: Node, sender: RemoteIdentity, instance: Hash) -> bytes:
    """Return all of an instance of an identity of this node, for a sender who may have it, as a delivery.

    Raises `view.unknown-instance`.
    """

    def work(connection: Connection) -> bytes:
        held = find_held_instance(connection, instance)
        owner = None if held is None else find_identity(connection, find_owner(connection, held.author))
        # What has ended or expired is given to nobody, nor is what is another node's to give by now.
        if held is None or owner is None or not owner.lives_here or held.is_deleted or held.is_expired(node.clock()):
            raise ViewError("view.unknown-instance", _UNKNOWN)
        is_public = mode_of(held.access) == "public"
        if not is_public and not is_due_to(connection, held, owner.id, sender.id):
            raise ViewError("view.unknown-instance", _UNKNOWN)
        parcel = pack_parcel(connection, held, [sender.id], after=0, deletions_only=False)
        assert parcel is not None, "an instance that is held has a create"
        return encode_delivery(Delivery(owner.id, [parcel]))

    return node.database.read(work)


async def refetch_copy(fetching: RefetchContext, identity: IdentityId, instance: Hash) -> None:
    """Fetch a rotted copy again, on behalf of an identity of this node.

    Raises `NoSuchCopy`, `rot.not-rotted`, `federation.not-given-again`, another `FederationError`, or an error of the
    parcel.
    """
    node = fetching.node
    copy, owner, asker = await fetching.run_blocking(
        lambda: node.database.read(lambda connection: _look_up(connection, identity, instance))
    )
    answer = await _ask(fetching, owner, asker, f"{COPIES_PATH}/{instance.hex()}")
    delivery = decode_delivery(answer.body)
    await fetching.run_blocking(lambda: restore_copy(node, copy, identity, delivery))


def _look_up(connection: Connection, identity: IdentityId, instance: Hash) -> tuple[Copy, IdentityId, str]:
    copy = find_copy(connection, instance)
    if copy is None:
        raise NoSuchCopy("no copy of such an instance was ever here")
    if copy.step in ("full", "no-blobs"):
        raise RotError("rot.not-rotted", "the copy is here; its blobs come back when they are read")
    owner = find_owner(connection, copy.author)
    if lives_here(connection, owner):
        raise FederationError("federation.not-given-again", "its owner, an identity of this node, has let it expire")
    asker = find_identity(connection, identity)
    assert asker is not None, "who is signed in is hosted here"
    return copy, owner, asker.fqdn


async def _ask(fetching: RefetchContext, owner: IdentityId, asker: str, path: str) -> PeerResponse:
    try:
        return await _ask_once(fetching, owner, asker, path)
    except IdentityRelocated:
        return await _ask_once(fetching, owner, asker, path)


async def _ask_once(fetching: RefetchContext, owner: IdentityId, asker: str, path: str) -> PeerResponse:
    known = await fetching.discovery.find_by_id(owner)
    request = await fetching.run_blocking(lambda: make_signed_request(fetching.node, known, "GET", path, sender=asker))
    answer = await fetching.transport.send(request)
    if answer.status == MOVED_STATUS:
        raise await fetching.run_blocking(lambda: take_moved(fetching.node, answer, [known]))
    if answer.status == 404:
        raise FederationError(
            "federation.not-given-again", f"the node of {known.fqdn} has it no more, or does not give it to {asker}"
        )
    if answer.status != 200:
        raise BadAnswer(f"the node of {known.fqdn} answered with status {answer.status}", status=answer.status)
    return answer


def restore_copy(node: Node, copy: Copy, identity: IdentityId, delivery: Delivery) -> None:
    """Store a copy that an owner's node has sent, for an identity that asked for it; raises unless it may have it."""
    if len(delivery.parcels) != 1 or delivery.parcels[0].instance != copy.instance:
        raise ParcelError("parcel.bad", "the answer is about something else than what was asked for")
    create = node.store.read(find_entry, copy.instance)
    opened = open_parcel(delivery.parcels[0], create.entry if create is not None else None)
    if not opened.has_create:
        raise ParcelError("parcel.bad", "the answer lacks the create of the instance")
    if (expires := opened.expires) is not None and expires.microseconds <= node.clock():
        raise FederationError("federation.not-given-again", "the instance has expired: nothing of it comes back")
    access = opened.access[1] if opened.access is not None else None

    def work(connection: Connection) -> None:
        follows = is_follower(connection, identity, find_owner(connection, opened.author))
        _, refusal = decide_acceptance(
            ArrivingParcel(access, True, False), identity, SenderRelation.KNOWN, is_follower=follows
        )
        if refusal is not None:
            raise refusal
        for item in opened.messages:
            check_author(connection, opened.author, opened.log_id, item.seq_num)
        revive(connection, copy.instance, node.clock())
        store_parcel(connection, node, opened, [identity], access)

    node.database.write(work)
