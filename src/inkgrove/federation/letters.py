"""What goes to another node in one request, and what its answer says (docs/protocol.md section 8).

Whether a recipient may still have what is due to them is asked again here, when it is sent.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.fetch import Answer
from inkgrove.messages import cbor
from inkgrove.messages.delivery import DELIVERY_FORMAT, MAX_PARCELS, Delivery, Parcel, encode_delivery
from inkgrove.node.errors import NotAddressed
from inkgrove.node.publishing import find_held_instance, is_due_to, pack_next_parcel
from inkgrove.node.runtime import Node
from inkgrove.store.federation.outbox import DueDelivery, list_due_deliveries, record_delivery
from inkgrove.store.node.identities import find_identity

_MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Letter:
    """What goes to a node in one request."""

    sender: str
    """The FQDN of the identity that sends."""
    dues: Sequence[DueDelivery]
    body: bytes
    reached: Mapping[int, int]
    """By place: the newest message that the request holds for that due."""


def write_letter(node: Node, recipients: Sequence[IdentityId]) -> Letter | None:
    """The next request to a node; None if nothing is due, without a body if nothing of what is due may be sent."""
    return node.database.write(lambda connection: _compose(connection, node, recipients))


def _compose(connection: Connection, node: Node, recipients: Sequence[IdentityId]) -> Letter | None:
    dues = list_due_deliveries(connection, recipients)
    if not dues:
        return None
    now = node.clock()
    sender = find_identity(connection, dues[0].via)
    instances = {instance: find_held_instance(connection, instance) for instance in {due.instance for due in dues}}
    groups: dict[tuple[Hash, int, bool], list[DueDelivery]] = defaultdict(list)
    for due in dues:
        held = instances[due.instance]
        if held is None or sender is None:
            record_delivery(connection, due, "given-up", code="federation.nothing-held", now=now)
        elif not sender.lives_here:  # nobody would believe this node any more that it speaks for them
            record_delivery(connection, due, "given-up", code="identity.lives-elsewhere", now=now)
        elif held.is_deleted and due.delivered < held.last_seq:
            # The end is told to whoever may have it, and nobody gets anything else any more.
            groups[due.instance, 0, True].append(due)
        elif held.is_expired(now) and not due.delivered:
            record_delivery(connection, due, "refused", code="federation.expired", now=now)
        elif is_due_to(connection, held, due.via, due.recipient):
            groups[due.instance, due.delivered, False].append(due)
        else:
            record_delivery(connection, due, "refused", code=NotAddressed.code, now=now)
    parcels: list[Parcel] = []
    sent: list[DueDelivery] = []
    reached: dict[int, int] = {}
    size = 0
    for (instance, delivered, deletions_only), members in groups.items():
        held = instances[instance]
        assert held is not None
        to = [due.recipient for due in members]
        packed = pack_next_parcel(connection, held, to, after=delivered, deletions_only=deletions_only)
        if packed is None:
            for due in members:
                record_delivery(connection, due, "delivered", delivered=held.last_seq, now=now)
            continue
        parcel, last = packed
        weight = sum(len(entry) + len(payload or b"") for entry, payload in parcel.entries)
        if parcels and (size + weight > _MAX_BYTES or len(parcels) >= MAX_PARCELS):
            break
        parcels.append(parcel)
        sent += members
        reached |= {due.place: last for due in members}
        size += weight
    if not parcels:
        return Letter("", dues, b"", {})
    assert sender is not None
    return Letter(sender.fqdn, sent, encode_delivery(Delivery(sender.id, parcels)), reached)


def read_receipts(answer: Answer) -> dict[tuple[Hash, IdentityId], dict[str, Any]]:
    """The receipts of an answer; anything else is a failure, which says when to try again if the answer does."""
    if answer.status != 200:
        text = f"the node answered with status {answer.status}"
        raise BadAnswer(text, status=answer.status, retry_after=answer.retry_after)
    try:
        value: Any = cbor.decode(answer.body)
        assert value["form"] == DELIVERY_FORMAT
        found = {
            (item["instance"], item["recipient"]): item
            for item in value["receipts"]
            if item["fate"] in ("accepted", "held", "refused")
        }
        # Of a number, bytes() would make as many bytes.
        assert all(type(part) is bytes for place in found for part in place)
        return {(Hash(instance), IdentityId(recipient)): item for (instance, recipient), item in found.items()}
    except (InkgroveError, AssertionError, KeyError, TypeError, ValueError) as err:
        raise BadAnswer("the node's receipts cannot be read") from err
