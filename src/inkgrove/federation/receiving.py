"""What becomes of a parcel that is verified, in one transaction: judged for each recipient, stored, or put aside.

docs/protocol.md section 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError, LacksCreate, ParcelError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.federation.errors import FederationError
from inkgrove.messages.delivery import Delivery, OpenedParcel, Parcel, decode_delivery, encode_delivery, open_parcel
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Access, Create
from inkgrove.node.blobs import note_references
from inkgrove.node.errors import NotAddressed
from inkgrove.node.identity import check_author, find_owner
from inkgrove.node.publishing import (
    ArrivingParcel,
    DeliveryDecision,
    HeldInstance,
    SenderRelation,
    decide_acceptance,
    find_box_refusal,
    find_held_instance,
    is_follower,
    may_pass_on,
    queue_forwards,
    read_sender_relation,
    was_sent,
)
from inkgrove.node.runtime import Node
from inkgrove.store.db.connection import lock_name
from inkgrove.store.federation.inbox import (
    add_request,
    find_request,
    has_ended,
    lock_box,
    remove_ended_requests,
    remove_requests,
)
from inkgrove.store.federation.wanted_schemas import want_schemas
from inkgrove.store.logs.decision import IngestStatus
from inkgrove.store.logs.entries import find_log
from inkgrove.store.logs.ingestion import ingest_batch
from inkgrove.store.logs.preparation import by_log, prepare_items
from inkgrove.store.node.identities import find_identity
from inkgrove.store.node.relations import add_shares

NOBODY: Final = IdentityId(b"")
"""Stands in the receipt of what is taken in for no identity."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a parcel for one recipient."""

    instance: Hash
    recipient: IdentityId
    fate: DeliveryDecision
    code: str | None = None
    would_need: PublicKey | None = None
    """The author, if it was refused for nothing but that this key is not known to be the sender's."""


class ParcelRefused(Exception):
    """The store does not take an entry: nothing of the parcel is to stay."""

    def __init__(self, error: InkgroveError) -> None:
        self.error = error


def receive_opened(
    connection: Connection, node: Node, via: IdentityId | None, opened: OpenedParcel, *, is_wanted: bool = False
) -> list[Receipt]:
    """Take a parcel in for those who may have it; raises `ParcelRefused` if nothing of it may stay.

    `is_wanted`: its recipients have accepted this very parcel, whoever sent it.
    """
    parcel = opened.parcel
    held = find_held_instance(connection, parcel.instance)
    if held is None and not opened.has_create:
        raise ParcelRefused(LacksCreate("the create of the instance is not held here: send all of it"))
    if held is None:
        first = opened.messages[0].seq_num
        lock_name(connection, parcel.instance)  # whoever tells its end now finds it here, or is heard here
        if has_ended(connection, opened.author, opened.log_id, parcel.instance, first):
            raise ParcelRefused(
                ParcelError("parcel.ended-before", "the end of the instance was told before its create came")
            )
    for item in opened.messages:
        check_author(connection, opened.author, opened.log_id, item.seq_num)
    owner = find_owner(connection, opened.author)
    arrival = ArrivingParcel(_newest_access(opened, held), via == owner, opened.is_deletion)
    accepted, receipts = [], []
    for recipient in parcel.recipients:
        hosted = find_identity(connection, recipient)
        # Who has moved away may still accept, by hand or in the box, what came before.
        if hosted is None or not (hosted.lives_here or is_wanted or via is None):
            unknown = FederationError("federation.unknown-recipient", f"{recipient} does not live here")
            receipts.append(Receipt(parcel.instance, recipient, DeliveryDecision.REFUSED, unknown.code))
            continue
        refusal: InkgroveError | None
        standing = read_sender_relation(connection, recipient, via, owner, parcel.instance)
        if is_wanted and standing is SenderRelation.STRANGER:
            standing = SenderRelation.KNOWN
        follows = is_follower(connection, recipient, owner)
        fate, refusal = decide_acceptance(arrival, recipient, standing, is_follower=follows)
        is_missed = False
        if refusal is not None and via is not None:  # as if the author were a key of the sender
            own, follows = replace(arrival, is_from_owner=True), is_follower(connection, recipient, via)
            is_missed = decide_acceptance(own, recipient, standing, is_follower=follows)[1] is None
        if isinstance(refusal, NotAddressed) and not opened.has_create and opened.access is None:
            # The word on access that is held here, for others, may be older than one that waits in the box.
            refusal = LacksCreate("whom the instance is for is not known here: send all of it")
        if fate is DeliveryDecision.HELD and via is not None:
            fate, refusal = _keep_request(connection, node, recipient, via, opened)
        if fate is DeliveryDecision.ACCEPTED and via is not None and not _can_add(connection, recipient, via, opened):
            fate, refusal = (
                DeliveryDecision.REFUSED,
                LacksCreate("the recipient has nothing of the instance yet: send all of it"),
            )
        if fate is DeliveryDecision.ACCEPTED:
            accepted.append(recipient)
        code = refusal.code if refusal is not None else None
        receipts.append(Receipt(parcel.instance, recipient, fate, code, opened.author if is_missed else None))
    if not parcel.recipients:
        fate, refusal = decide_acceptance(arrival, NOBODY, SenderRelation.KNOWN, is_follower=False)
        receipts.append(Receipt(parcel.instance, NOBODY, fate, refusal.code if refusal is not None else None))
    if any(receipt.fate is DeliveryDecision.ACCEPTED for receipt in receipts):
        if via is not None:
            for recipient in accepted:
                _take_waiting(connection, node, recipient, via, opened, arrival.access)
        take_parcel(connection, node, opened, accepted, arrival.access)
        if via is not None:
            want_schemas(connection, _named_schemas(opened), node.clock(), via)
    return receipts


def _can_add(connection: Connection, recipient: IdentityId, via: IdentityId, opened: OpenedParcel) -> bool:
    """Whether the recipient has what a parcel without the create adds to; what is held for others may be less."""
    if opened.has_create or opened.is_deletion or was_sent(connection, opened.parcel.instance, recipient):
        return True
    return find_request(connection, recipient, via, opened.parcel.instance) is not None


def _named_schemas(opened: OpenedParcel) -> dict[SchemaId, int]:
    """The schemas that messages name, each with the newest version."""
    named: dict[SchemaId, int] = {}
    for item in opened.messages:
        if (schema := item.message.schema) is not None:
            named[schema.schema_id] = max(schema.version, named.get(schema.schema_id, 0))
    return named


def _newest_access(opened: OpenedParcel, held: HeldInstance | None) -> Access | None:
    """The newest word on who may see the instance; what arrives can be older than what is held."""
    told = opened.access
    if held is None or (told is not None and told[0] > held.access_seq):
        return told[1] if told is not None else None
    return held.access


def take_parcel(
    connection: Connection, node: Node, opened: OpenedParcel, recipients: Sequence[IdentityId], access: Access | None
) -> None:
    """Store a parcel for recipients who take it, all of it or nothing."""
    instance = opened.parcel.instance
    payloads = (payload for _, payload in opened.parcel.entries)
    prepared, rejected = prepare_items(zip(opened.signed, payloads, strict=True))
    for refused in rejected:
        raise ParcelRefused(refused.error)
    is_news = False
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=False).values():
        if receipt.error is not None:
            raise ParcelRefused(receipt.error)
        is_news |= receipt.status in (IngestStatus.STORED, IngestStatus.COMPLETED)
    log = find_log(connection, opened.author, opened.log_id)
    assert log is not None
    for item in opened.messages:  # what is held already, as evidence, is refused like the first time
        if (refusal := log.standing.refusal(item.seq_num)) is not None:
            raise ParcelRefused(refusal)
    if opened.is_deletion:
        remove_ended_requests(connection, [instance])
    else:  # that it has ended lets nobody see it who did not
        add_shares(connection, [(instance, recipient) for recipient in recipients], node.clock())
    if is_news:
        for item in opened.messages:
            note_references(node, connection, instance, item.message, opened.author)
        # Only what is news is sent on, so that nothing goes round in circles.
        if opened.is_deletion or may_pass_on(access):
            queue_forwards(connection, instance, opened.last_seq_num, node.clock())


def _keep_request(
    connection: Connection, node: Node, recipient: IdentityId, via: IdentityId, opened: OpenedParcel
) -> tuple[DeliveryDecision, InkgroveError | None]:
    """Put a stranger's parcel aside, in place of an older one of the same instance."""
    parcel = opened.parcel
    lock_box(connection, recipient)  # the same may come twice at once
    if opened.is_deletion:  # of what has ended nothing is left
        remove_requests(connection, recipient, via, parcel.instance)
    if not opened.has_create:
        # A request stands by itself, whatever is held here for others.
        return DeliveryDecision.REFUSED, LacksCreate("a request needs the create of its instance: send all of it")
    waiting = find_request(connection, recipient, via, parcel.instance)
    if waiting is not None and _newest_place(waiting) >= opened.last_seq_num:
        return DeliveryDecision.HELD, None  # the same again, or a request that took longer than the one after it
    remove_requests(connection, recipient, via, parcel.instance)
    alone = encode_delivery(Delivery(via, [Parcel(parcel.instance, (recipient,), parcel.entries)]))
    if (full := find_box_refusal(connection, recipient, via, len(alone), node.clock())) is not None:
        return DeliveryDecision.REFUSED, full
    (schema,) = {str(item.message.schema.schema_id) for item in opened.messages if isinstance(item.message, Create)}
    add_request(connection, recipient, via, parcel.instance, alone, schema, node.clock())
    return DeliveryDecision.HELD, None


def _take_waiting(
    connection: Connection,
    node: Node,
    recipient: IdentityId,
    via: IdentityId,
    opened: OpenedParcel,
    access: Access | None,
) -> None:
    """The sender was a stranger and is none any more: what waits of the instance will not be sent again."""
    if find_request(connection, recipient, via, opened.parcel.instance) is None:
        return
    lock_box(connection, recipient)  # a newer one may be about to take its place
    waiting = find_request(connection, recipient, via, opened.parcel.instance)
    if waiting is None:
        return
    if not opened.is_deletion:
        (parcel,) = decode_delivery(waiting).parcels
        take_parcel(connection, node, open_parcel(parcel, None), [recipient], access)
    remove_requests(connection, recipient, via, opened.parcel.instance)


def _newest_place(waiting: bytes) -> int:
    """The place of the newest message in a parcel that waits, which was checked when it came."""
    (parcel,) = decode_delivery(waiting).parcels
    return max(decode_entry(entry).seq_num for entry, payload in parcel.entries if payload is not None)
