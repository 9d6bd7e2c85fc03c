"""The request box of a recipient: accept or discard what waits, accept a sender (docs/protocol.md section 8.6).

None of it makes anybody a follower, and no other node is told of it.
"""

from inkgrove.core import Hash, IdentityId
from inkgrove.federation.sharing.inbox import DeliveryReceipt, receive_delivery
from inkgrove.messages import decode_delivery
from inkgrove.node.errors import DeliveryError, RelationError
from inkgrove.node.publishing import LocalShare, find_held_instance, receive_locally, record_decision
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    add_sender,
    list_unapproved_here,
    read_requests,
    remove_read_requests,
    remove_requests,
    remove_sender,
)
from inkgrove.store.node import find_relation_state, lock_relation_state
from inkgrove.store.rot import lock_instance

Parcels = dict[int, tuple[Hash, bytes]]
"""What waits of one sender, by number: the instance, and the parcel, empty if the sender is of this node."""


def accept_waiting(
    node: Node, recipient: IdentityId, via: IdentityId, instance: Hash | None = None
) -> list[DeliveryReceipt]:
    """Accept what waits of a sender, or the one instance that is named; what comes later waits again.

    Raises `federation.no-such-request` if nothing of the kind waits, `federation.sender-blocked` if the recipient has
    blocked the sender.
    """

    def find(connection: Connection) -> Parcels:
        parcels = read_requests(connection, recipient, via, instance)
        if parcels and find_relation_state(connection, via, recipient) == "blocked":
            raise DeliveryError("federation.sender-blocked", "you have blocked the sender: lift the block first")
        return parcels

    parcels = node.database.read(find)
    if not parcels:
        raise DeliveryError("federation.no-such-request", "nothing of this sender waits, or not this")
    return _take(node, recipient, via, parcels, is_wanted=True)


def discard_waiting(node: Node, recipient: IdentityId, via: IdentityId, instance: Hash | None = None) -> None:
    """Discard what waits of a sender, or the one instance that is named; raises `federation.no-such-request`."""

    def work(connection: Connection) -> None:
        if not read_requests(connection, recipient, via, instance):
            raise DeliveryError("federation.no-such-request", "nothing of this sender waits, or not this")
        remove_requests(connection, recipient, via, instance)

    node.database.write(work)


def accept_sender(node: Node, recipient: IdentityId, via: IdentityId) -> list[DeliveryReceipt]:
    """Accept what a sender sends from now on, and what waits of them; they do not become a follower.

    Raises `relation.own`, or `federation.sender-blocked`.
    """
    if recipient == via:
        raise RelationError("relation.own", "what you send yourself never waits")

    def work(connection: Connection) -> None:
        if lock_relation_state(connection, via, recipient) == "blocked":
            raise DeliveryError("federation.sender-blocked", "you have blocked them: lift the block first")
        add_sender(connection, recipient, via, node.clock())

    node.database.write(work)
    return _release(node, recipient, via)


def drop_sender(node: Node, recipient: IdentityId, via: IdentityId) -> None:
    """Let what a sender sends wait again; raises `federation.unknown-sender`."""
    if not node.database.write(lambda connection: remove_sender(connection, recipient, via)):
        raise DeliveryError("federation.unknown-sender", "you have not accepted them as a sender")


def release_waiting(node: Node, recipient: IdentityId, via: IdentityId) -> list[DeliveryReceipt]:
    """Accept what waits of a sender to whom the recipient is related by now; returns the receipts.

    A sender of this node sees that it is delivered, also what was accepted or discarded before: a sender elsewhere
    would send it again.
    """
    receipts = _release(node, recipient, via)
    for instance in node.database.read(lambda connection: list_unapproved_here(connection, via, recipient)):
        receipts += _take_here(node, LocalShare(recipient, instance, via), is_shown=True)
    return receipts


def _release(node: Node, recipient: IdentityId, via: IdentityId) -> list[DeliveryReceipt]:
    parcels = node.database.read(lambda connection: read_requests(connection, recipient, via))
    return _take(node, recipient, via, parcels) if parcels else []


def release_related(node: Node, one: IdentityId, other: IdentityId) -> None:
    """Accept what waits between two identities that are related by now, in the boxes of those of them who live here."""
    release_waiting(node, one, other)
    release_waiting(node, other, one)


def _take(
    node: Node, recipient: IdentityId, via: IdentityId, parcels: Parcels, *, is_wanted: bool = False
) -> list[DeliveryReceipt]:
    # Received again as if it came now: what was said about access since then counts. Only then does it leave the box,
    # so that a crash in between loses nothing.
    receipts: list[DeliveryReceipt] = []
    for instance, parcel in parcels.values():
        if parcel:
            receipts += receive_delivery(node, decode_delivery(parcel), is_wanted=is_wanted)
        else:
            receipts += _take_here(node, LocalShare(recipient, instance, via), is_wanted=is_wanted)
    node.database.write(lambda connection: remove_read_requests(connection, list(parcels)))
    return receipts


def _take_here(
    node: Node, item: LocalShare, *, is_wanted: bool = False, is_shown: bool = False
) -> list[DeliveryReceipt]:
    """Let the recipient see what an identity of this node sent, which is in the log store already.

    `is_shown`: the decision is shown to the sender, who also sees the relation that it follows from.
    """

    def work(connection: Connection) -> list[DeliveryReceipt]:
        lock_instance(connection, item.instance)  # else it could rot meanwhile
        held = find_held_instance(connection, item.instance)
        if held is None:
            return []
        decision, refusal = receive_locally(connection, held, item, node.clock(), is_wanted=is_wanted)
        if is_shown:
            record_decision(connection, item, decision, refusal, node.clock())
        return [DeliveryReceipt(item.instance, item.recipient, decision, refusal.code if refusal is not None else None)]

    return node.database.write(work)
