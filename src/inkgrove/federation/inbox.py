"""The inbox: what other nodes deliver, verified as a whole before anything is stored (docs/protocol.md section 8).

Each parcel is one transaction: entries, who may see them, and what is to be sent on. A parcel that was received before
changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, insert, or_, select

from inkgrove.core.errors import Forked, InkgroveError, PayloadSizeMismatch
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import LacksCreate, RequestBoxFull, UnknownRecipient
from inkgrove.federation.held import HeldInstance, find_held, owner_of
from inkgrove.federation.rules import Arrival, Fate, Standing, judge, may_pass_on
from inkgrove.messages.delivery import Delivery, OpenedParcel, Parcel, encode_delivery, open_parcel
from inkgrove.node.node import Node
from inkgrove.store.database import insert_new
from inkgrove.store.decide import Status
from inkgrove.store.deliveries import queue, recipients_of, senders_of
from inkgrove.store.federation_tables import deliveries, request_box
from inkgrove.store.identities import find_identity
from inkgrove.store.ingest import ingest_batch
from inkgrove.store.node_tables import relations, shares
from inkgrove.store.prepare import by_log, prepare

MAX_REQUESTS: Final = 200
"""How many parcels of strangers wait for one recipient."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a parcel for one recipient."""

    instance: Hash
    recipient: IdentityId
    fate: Fate
    code: str | None = None
    has: int = 0
    """The newest message of the instance that is held now."""


class _Refused(Exception):
    """The store does not take an entry: nothing of the parcel is to stay."""

    def __init__(self, error: InkgroveError) -> None:
        self.error = error


def receive(node: Node, delivery: Delivery, *, is_from_node_of: IdentityId) -> list[Receipt]:
    """Take in a delivery that was signed by the node of this identity, which must be the one that sends."""
    assert delivery.via == is_from_node_of
    return [receipt for parcel in delivery.parcels for receipt in receive_parcel(node, delivery.via, parcel)]


def receive_parcel(node: Node, via: IdentityId, parcel: Parcel) -> list[Receipt]:
    """Take in one parcel for all its recipients."""
    try:
        create = node.store.entry(parcel.instance)
        opened = open_parcel(parcel, create.entry.seq_num if create is not None else None)
        return node.database.write(lambda connection: _receive(connection, node, via, opened))
    except _Refused as refused:
        error = refused.error
    except InkgroveError as err:
        error = err
    if isinstance(error, Forked | PayloadSizeMismatch):
        # What proves that an author cheats is kept, whoever brings it.
        node.store.ingest(list(parcel.entries))
    return [Receipt(parcel.instance, to, Fate.REFUSED, error.code) for to in parcel.recipients]


def _receive(connection: Connection, node: Node, via: IdentityId, opened: OpenedParcel) -> list[Receipt]:
    parcel = opened.parcel
    held = find_held(connection, parcel.instance)
    if held is None and not opened.has_create:
        error = LacksCreate("the create of the instance is not held here: send all of it")
        return [Receipt(parcel.instance, to, Fate.REFUSED, error.code) for to in parcel.recipients]
    owner = owner_of(connection, opened.author)
    arrival = Arrival(opened.access(held.access if held is not None else None), via == owner, opened.is_deletion)
    accepted, receipts = [], []
    for recipient in parcel.recipients:
        if find_identity(connection, recipient) is None:
            unknown = UnknownRecipient(f"{recipient} is not hosted here")
            receipts.append(Receipt(parcel.instance, recipient, Fate.REFUSED, unknown.code))
            continue
        fate, refusal = judge(arrival, recipient, _standing(connection, recipient, via, owner, parcel.instance))
        if fate is Fate.HELD and not _keep_request(connection, node, recipient, via, parcel):
            fate, refusal = Fate.REFUSED, RequestBoxFull("the recipient's box of requests is full")
        if fate is Fate.ACCEPTED:
            accepted.append(recipient)
        code = refusal.code if refusal is not None else None
        receipts.append(Receipt(parcel.instance, recipient, fate, code, opened.last_seq_num))
    if accepted:
        _take_in(connection, node, opened, accepted, held)
    return receipts


def _take_in(
    connection: Connection,
    node: Node,
    opened: OpenedParcel,
    recipients: Sequence[IdentityId],
    held: HeldInstance | None,
) -> None:
    parcel = opened.parcel
    prepared, rejected = prepare(parcel.entries)
    for refused in rejected:
        raise _Refused(refused.error)
    is_news = False
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=False).values():
        if receipt.error is not None:
            raise _Refused(receipt.error)
        is_news |= receipt.status in (Status.STORED, Status.COMPLETED)
    now = node.clock()
    rows = [{"instance": parcel.instance, "identity": recipient, "shared": now} for recipient in recipients]
    connection.execute(insert_new(connection, shares), rows)
    if is_news and held is not None:
        forward(connection, parcel.instance, opened.last_seq_num, opened.access(held.access), opened.is_deletion, now)


def forward(connection: Connection, instance: Hash, last_seq: int, access: object, is_deletion: bool, now: int) -> None:
    """Send on what arrived to those whom identities of this node passed the instance to.

    Only what is news is sent on, so that nothing goes round in circles.
    """
    if not is_deletion and not may_pass_on(access):  # type: ignore[arg-type]
        return
    for via in senders_of(connection, instance):
        queue(connection, instance, via, recipients_of(connection, instance, via), wanted=last_seq, now=now)


def _standing(
    connection: Connection, recipient: IdentityId, via: IdentityId, owner: IdentityId, instance: Hash
) -> Standing:
    others = [via, owner]
    states = connection.execute(
        select(relations.c.follower, relations.c.followee, relations.c.state).where(
            or_(
                (relations.c.follower == recipient) & relations.c.followee.in_(others),
                relations.c.follower.in_(others) & (relations.c.followee == recipient),
            )
        )
    ).all()
    if any(row.state == "blocked" and row.followee == recipient for row in states):
        return Standing.BLOCKED
    if any(row.state == "accepted" for row in states):
        return Standing.KNOWN
    has_it = select(shares.c.instance).where(shares.c.instance == instance, shares.c.identity == recipient)
    # Who was written to by the recipient may answer.
    wrote = select(deliveries.c.place).where(deliveries.c.via == recipient, deliveries.c.recipient == via).limit(1)
    is_known = connection.scalar(has_it) is not None or connection.scalar(wrote) is not None
    return Standing.KNOWN if is_known else Standing.STRANGER


def _keep_request(connection: Connection, node: Node, recipient: IdentityId, via: IdentityId, parcel: Parcel) -> bool:
    """Put a stranger's parcel aside; False if the box is full."""
    count = select(func.count()).select_from(request_box).where(request_box.c.recipient == recipient)
    if (connection.scalar(count) or 0) >= MAX_REQUESTS:
        return False
    alone = Delivery(via, [Parcel(parcel.instance, (recipient,), parcel.entries)])
    row = {
        "recipient": recipient,
        "via": via,
        "instance": parcel.instance,
        "parcel": encode_delivery(alone),
        "arrived": node.clock(),
    }
    connection.execute(
        request_box.delete().where(
            request_box.c.recipient == recipient,
            request_box.c.via == via,
            request_box.c.instance == parcel.instance,
        )
    )
    connection.execute(insert(request_box), row)
    return True
