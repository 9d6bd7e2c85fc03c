"""The box of requests as its owner sees it: what waits, from whom, of which schema, how large, and its content.

docs/protocol.md section 8.6. Looking accepts nothing. What other nodes sent lies in the box as a parcel; of what
identities of this node sent only the place is noted, since the entries are in the log store already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.delivery import decode_delivery, open_parcel
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import InstanceMessage
from inkgrove.messages.message import decode_message
from inkgrove.messages.schema import SchemaMeta
from inkgrove.node.acceptance import Arrival, Fate, Standing, judge
from inkgrove.node.errors import DeliveryError
from inkgrove.node.held import HeldInstance, find_held, owner_of
from inkgrove.node.names import name_on
from inkgrove.node.node import Node
from inkgrove.node.schemas import parse_schema_id
from inkgrove.node.sending import is_follower
from inkgrove.store.federation import (
    count_requests,
    list_requests,
    read_requests,
    remove_old_requests,
    remove_read_requests,
)
from inkgrove.store.logs import read_entries
from inkgrove.store.node import find_relation_state

MAX_REQUESTS: Final = 200
"""How many parcels of strangers wait for one recipient."""
MAX_REQUESTS_OF_SENDER: Final = 20
MAX_REQUEST_BYTES: Final = 32 * 1024 * 1024
"""How large they are all together."""
MAX_REQUEST_SECONDS: Final = 90 * 24 * 3600
"""After so long without an answer a parcel gives way: else a few strangers could close a box for good."""
_SECOND: Final = 1_000_000


def find_room(
    connection: Connection, recipient: IdentityId, via: IdentityId, size: int, now: int
) -> DeliveryError | None:
    """Why a parcel of a stranger finds no room in a box, which must be locked.

    What is too old leaves it first; and, if there is no room, what its recipient may no longer have and so cannot see.
    """
    remove_old_requests(connection, recipient, now - MAX_REQUEST_SECONDS * _SECOND)
    full = _count_room(connection, recipient, via, size)
    if full is not None and _remove_unseen(connection, recipient, now):
        full = _count_room(connection, recipient, via, size)
    return full


def _remove_unseen(connection: Connection, recipient: IdentityId, now: int) -> bool:
    """Take out what identities of this node sent and a recipient may no longer have; whether there was any."""
    unseen = [
        item.id
        for item in list_requests(connection, recipient)
        if not item.size and find_hosted(connection, now, recipient, item.via, item.instance) is None
    ]
    remove_read_requests(connection, unseen)
    return bool(unseen)


def _count_room(connection: Connection, recipient: IdentityId, via: IdentityId, size: int) -> DeliveryError | None:
    waiting, of_sender, held = count_requests(connection, recipient, via)
    if of_sender >= MAX_REQUESTS_OF_SENDER:
        return DeliveryError(
            "federation.request-box-full", "the recipient has not yet answered the sender's earlier requests"
        )
    if waiting >= MAX_REQUESTS or held + size > MAX_REQUEST_BYTES:
        return DeliveryError("federation.request-box-full", "the recipient's box of requests is full")
    return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that waits for the word of its recipient."""

    via: IdentityId
    fqdn: str | None
    """The name of who sent it, as far as it is known."""
    asks_to_follow: bool
    """Whether the sender has asked to follow the recipient, too."""
    instance: Hash
    schema: SchemaId | None
    schema_name: str | None
    arrived: int
    size: int
    """How many bytes were sent."""


def list_waiting(node: Node, recipient: IdentityId) -> list[Waiting]:
    """What waits for a recipient, oldest first."""

    def work(connection: Connection) -> list[Waiting]:
        found = list_requests(connection, recipient)
        senders = {item.via: name_on(connection, item.via) for item in found}
        asking = {via: find_relation_state(connection, via, recipient) == "requested" for via in senders}
        names = {text: _schema_name(connection, text) for text in {item.schema for item in found}}
        shown = []
        for item in found:
            size = item.size
            if not size:
                held = find_hosted(connection, node.clock(), recipient, item.via, item.instance)
                if held is None:
                    continue
                size = sum(len(message.payload or b"") for message in held.messages)
            schema = parse_schema_id(item.schema) if item.schema is not None else None
            facts = (item.instance, schema, names[item.schema], item.arrived, size)
            shown.append(Waiting(item.via, senders[item.via], asking[item.via], *facts))
        return shown

    return node.database.read(work)


def find_hosted(
    connection: Connection, now: int, recipient: IdentityId, via: IdentityId, instance: Hash
) -> HeldInstance | None:
    """What an identity of this node sent, if the newest word on it still lets the recipient have it."""
    held = find_held(connection, instance)
    if held is None or held.is_deleted or held.is_expired(now):
        return None
    owner = owner_of(connection, held.author)
    arrival = Arrival(held.access, owner == via, is_deletion=False)
    follows = is_follower(connection, recipient, owner)
    fate, _ = judge(arrival, recipient, Standing.KNOWN, is_follower=follows)
    return None if fate is Fate.REFUSED else held


def _schema_name(connection: Connection, text: str | None) -> str | None:
    """What a schema calls itself, if its first entry is held."""
    schema = parse_schema_id(text) if text is not None else None
    for stored in read_entries(connection, *schema, 1, 1) if schema is not None else ():
        if stored.refusal is None and stored.payload is not None:
            message = decode_message(stored.payload)
            return message.name if isinstance(message, SchemaMeta) else None
    return None


def read_waiting(
    node: Node, recipient: IdentityId, via: IdentityId, instance: Hash
) -> tuple[Waiting, Sequence[InstanceMessage]]:
    """Something that waits, with its messages in order; raises `federation.no-such-request` if nothing of the kind
    does.
    """
    found = [item for item in list_waiting(node, recipient) if (item.via, item.instance) == (via, instance)]
    if not found:
        raise DeliveryError("federation.no-such-request", "nothing of this sender waits, or not this")

    def work(connection: Connection) -> list[InstanceMessage]:
        for _, parcel in read_requests(connection, recipient, via, instance).values():
            if parcel:
                opened = open_parcel(decode_delivery(parcel).parcels[0], None)
                return [item.message for item in opened.messages]
            held = find_hosted(connection, node.clock(), recipient, via, instance)
            if held is not None:
                return [_decode(item.payload or b"") for item in held.messages]
        raise DeliveryError("federation.no-such-request", "it was answered meanwhile")

    return found[0], node.database.read(work)


def _decode(payload: bytes) -> InstanceMessage:
    message = decode_message(payload)
    assert isinstance(message, InstanceMessage)
    return message
