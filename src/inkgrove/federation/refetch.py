"""Brings back what has rotted, from the owner's node, when somebody asks (docs/protocol.md sections 8 and 9).

The owner's node decides who gets it; what it sends is verified as everything else. Nobody else is asked, and nothing
comes back that nobody asked for.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.errors import NoSuchCopy, ParcelError, RotError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.calls import signed_call
from inkgrove.federation.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.errors import BadAnswer, FederationError
from inkgrove.federation.fetch import Answer, Transport
from inkgrove.federation.receiving import take_parcel
from inkgrove.messages.delivery import Delivery, decode_delivery, encode_delivery, open_parcel
from inkgrove.node.errors import ViewError
from inkgrove.node.identity import check_author, find_owner
from inkgrove.node.publishing import (
    ArrivingParcel,
    SenderRelation,
    decide_acceptance,
    find_held_instance,
    is_due_to,
    is_follower,
    mode_of,
    pack_parcel,
)
from inkgrove.node.runtime import Node
from inkgrove.store.federation.peers import RemoteIdentity
from inkgrove.store.node.identities import find_identity, lives_here
from inkgrove.store.rot.copies import Copy, find_copy, revive

PATH: Final = "/federation/copies"
_UNKNOWN: Final = "no such instance of an identity of this node is here, or it is not for the one who asks"


@dataclass(frozen=True, slots=True)
class Fetching:
    """What another node is asked with."""

    node: Node
    transport: Transport
    discovery: Discovery
    run_blocking: RunBlocking = in_thread


# The side of the owner


def offer(node: Node, sender: RemoteIdentity, instance: Hash) -> bytes:
    """All of an instance of an identity of this node, for one who may have it."""

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


# The side of the one who asks


async def fetch_again(fetching: Fetching, identity: IdentityId, instance: Hash) -> None:
    """Let a copy be whole again, on behalf of an identity of this node."""
    node = fetching.node
    copy, owner, asker = await fetching.run_blocking(
        lambda: node.database.read(lambda connection: _look_up(connection, identity, instance))
    )
    answer = await _ask(fetching, owner, asker, f"{PATH}/{instance.hex()}")
    delivery = decode_delivery(answer.body)
    await fetching.run_blocking(lambda: take_back(node, copy, identity, delivery))


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


async def _ask(fetching: Fetching, owner: IdentityId, asker: str, path: str) -> Answer:
    known = await fetching.discovery.find_by_id(owner)
    request = await fetching.run_blocking(lambda: signed_call(fetching.node, known, "GET", path, sender=asker))
    answer = await fetching.transport.send(request)
    if answer.status == 404:
        raise FederationError(
            "federation.not-given-again", f"the node of {known.fqdn} has it no more, or does not give it to {asker}"
        )
    if answer.status != 200:
        raise BadAnswer(f"the node of {known.fqdn} answered with status {answer.status}", status=answer.status)
    return answer


def take_back(node: Node, copy: Copy, identity: IdentityId, delivery: Delivery) -> None:
    """Take in what an owner's node answered, for an identity that asked for it and may have it."""
    if len(delivery.parcels) != 1 or delivery.parcels[0].instance != copy.instance:
        raise ParcelError("parcel.bad", "the answer is about something else than what was asked for")
    create = node.store.entry(copy.instance)
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
        take_parcel(connection, node, opened, [identity], access)

    node.database.write(work)
