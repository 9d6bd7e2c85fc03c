"""Whether recipients accept what is sent to them, and delivery between identities of one node.

docs/protocol.md section 8.6. `read_sender_relation` reads how a recipient relates to sender and owner,
`decide_acceptance` decides, for parcels of other nodes too. Between identities of this node nothing travels, as the
entries are held already: a recipient who accepts gets a share, one to whom the sender is a stranger gets an item in
the request box, one who has blocked the sender gets nothing. What is sent to names that are not found yet waits here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import (
    Access,
    InstanceMessage,
    SchemaId,
    SchemaMeta,
    decode_delivery,
    decode_message,
    open_parcel,
    parse_schema_id,
)
from inkgrove.node.errors import DeliveryError, NotAddressed, PublishError
from inkgrove.node.identity.identity_log import find_owner
from inkgrove.node.identity.names import find_identity_name
from inkgrove.node.publishing.delivery_queue import may_pass_to, mode_of
from inkgrove.node.publishing.held_instance import HeldInstance, find_held_instance
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    DeliveryStatus,
    PendingRecipient,
    add_pending,
    add_request,
    count_pending,
    count_requests,
    find_request,
    has_accepted_sender,
    has_sent_to,
    list_requests,
    lock_box,
    queue_deliveries,
    read_requests,
    record_local_delivery,
    remove_ended_requests,
    remove_old_requests,
    remove_read_requests,
    remove_requests,
    take_pending,
)
from inkgrove.store.logs import read_entries
from inkgrove.store.node import (
    add_shares,
    find_relation_state,
    find_states_between,
    hold_departures,
    is_follower,
    lives_here,
    living_among,
    was_sent,
)

# Acceptance


class SenderRelation(StrEnum):
    """What a sender is to a recipient."""

    KNOWN = "known"
    """There is an accepted relation with the sender or the owner, the recipient has accepted one of them as a sender,
    has the instance, or has written to the sender."""
    STRANGER = "stranger"
    BLOCKED = "blocked"
    """The recipient has blocked the sender or the owner."""


class DeliveryDecision(StrEnum):
    """Whether a parcel is accepted for one recipient."""

    ACCEPTED = "accepted"
    HELD = "held"
    """It waits in the request box until the recipient accepts it or its sender."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ArrivingParcel:
    """What a receiver knows about a parcel when it decides."""

    access: Access | None
    """The newest one: of the parcel, or held before."""
    is_from_owner: bool
    """Signed by the node that the owner's own document names, or published by the owner on this node."""
    is_deletion: bool


def decide_acceptance(
    arrival: ArrivingParcel, recipient: IdentityId, sender: SenderRelation, *, is_follower: bool
) -> tuple[DeliveryDecision, DeliveryError | None]:
    """Decide on a parcel for one recipient; with the reason if it is refused. `is_follower`: of the owner."""
    mode = mode_of(arrival.access)
    if sender is SenderRelation.BLOCKED:
        return DeliveryDecision.REFUSED, DeliveryError(
            "federation.blocked", "the recipient does not take anything from there"
        )
    if mode == "self" and not arrival.is_deletion:
        return DeliveryDecision.REFUSED, DeliveryError(
            "federation.not-to-be-passed-on", "the owner keeps this instance to themselves"
        )
    if mode == "closed" and not arrival.is_deletion:
        if not arrival.is_from_owner:
            return DeliveryDecision.REFUSED, DeliveryError(
                "federation.not-to-be-passed-on", "the instance is closed: only the owner's node sends it"
            )
        if arrival.access is None or recipient not in arrival.access.to:
            return DeliveryDecision.REFUSED, NotAddressed("the instance is closed and not addressed to the recipient")
    if mode == "relations" and not (is_follower or arrival.is_deletion):
        return DeliveryDecision.REFUSED, DeliveryError(
            "federation.not-following", "the instance is for those who follow its owner, and the recipient does not"
        )
    return (DeliveryDecision.ACCEPTED if sender is SenderRelation.KNOWN else DeliveryDecision.HELD), None


def read_sender_relation(
    connection: Connection, recipient: IdentityId, via: IdentityId | None, owner: IdentityId, instance: Hash
) -> SenderRelation:
    """Return what the sender `via` and the owner are to a recipient; without a sender it was imported by hand."""
    if via is None:
        return SenderRelation.KNOWN
    states = find_states_between(connection, recipient, via, owner)
    if any(state == "blocked" and followee == recipient for followee, state in states):
        return SenderRelation.BLOCKED
    is_known = (
        any(state == "accepted" for _, state in states)
        or has_accepted_sender(connection, recipient, via, owner)
        # Somebody whom the recipient has sent something may answer.
        or has_sent_to(connection, recipient, via)
        or was_sent(connection, instance, recipient)
    )
    return SenderRelation.KNOWN if is_known else SenderRelation.STRANGER


# The request box. Reading it accepts nothing. It holds the parcels of other nodes; an item from an identity of this
# node is empty, since the entries are held already.

MAX_REQUESTS: Final = 200
"""How many parcels of strangers wait for one recipient."""
MAX_REQUESTS_OF_SENDER: Final = 20
MAX_REQUEST_BYTES: Final = 32 * 1024 * 1024
"""How large they are all together."""
MAX_REQUEST_SECONDS: Final = 90 * 24 * 3600
"""A parcel that is not answered for so long is removed: else a few strangers could fill a box for good."""
_SECOND: Final = 1_000_000


def find_box_refusal(
    connection: Connection, recipient: IdentityId, via: IdentityId, size: int, now: int
) -> DeliveryError | None:
    """Return why a box, which must be locked, has no room for a parcel of a stranger; None if it has.

    Removes what is too old first and, if there is no room, what the recipient may not have any more.
    """
    remove_old_requests(connection, recipient, now - MAX_REQUEST_SECONDS * _SECOND)
    full = _count_room(connection, recipient, via, size)
    if full is not None and _remove_unseen(connection, recipient, now):
        full = _count_room(connection, recipient, via, size)
    return full


def _remove_unseen(connection: Connection, recipient: IdentityId, now: int) -> bool:
    """Remove what identities of this node sent and the recipient may not have any more; whether there was any."""
    unseen = [
        item.id
        for item in list_requests(connection, recipient)
        if not item.size and find_local_request(connection, now, recipient, item.via, item.instance) is None
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
class BoxedRequest:
    """An instance that waits until its recipient accepts or refuses it."""

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


def list_waiting_requests(node: Node, recipient: IdentityId) -> list[BoxedRequest]:
    """Return what waits for a recipient, oldest first."""

    def work(connection: Connection) -> list[BoxedRequest]:
        found = list_requests(connection, recipient)
        senders = {item.via: find_identity_name(connection, item.via) for item in found}
        asking = {via: find_relation_state(connection, via, recipient) == "requested" for via in senders}
        names = {text: _schema_name(connection, text) for text in {item.schema for item in found}}
        shown = []
        for item in found:
            size = item.size
            if not size:
                held = find_local_request(connection, node.clock(), recipient, item.via, item.instance)
                if held is None:
                    continue
                size = sum(len(message.payload or b"") for message in held.messages)
            schema = parse_schema_id(item.schema) if item.schema is not None else None
            name = names[item.schema]
            shown.append(
                BoxedRequest(
                    item.via, senders[item.via], asking[item.via], item.instance, schema, name, item.arrived, size
                )
            )
        return shown

    return node.database.read(work)


def find_local_request(
    connection: Connection, now: int, recipient: IdentityId, via: IdentityId, instance: Hash
) -> HeldInstance | None:
    """Return what an identity of this node sent, if its newest access still lets the recipient have it."""
    held = find_held_instance(connection, instance)
    if held is None or held.is_deleted or held.is_expired(now):
        return None
    owner = find_owner(connection, held.author)
    arrival = ArrivingParcel(held.access, owner == via, is_deletion=False)
    follows = is_follower(connection, recipient, owner)
    decision, _ = decide_acceptance(arrival, recipient, SenderRelation.KNOWN, is_follower=follows)
    return None if decision is DeliveryDecision.REFUSED else held


def _schema_name(connection: Connection, text: str | None) -> str | None:
    """Return the name in the first entry of a schema, if that is held."""
    schema = parse_schema_id(text) if text is not None else None
    for stored in read_entries(connection, *schema, 1, 1) if schema is not None else ():
        if stored.refusal is None and stored.payload is not None:
            message = decode_message(stored.payload)
            return message.name if isinstance(message, SchemaMeta) else None
    return None


def read_waiting_request(
    node: Node, recipient: IdentityId, via: IdentityId, instance: Hash
) -> tuple[BoxedRequest, Sequence[InstanceMessage]]:
    """Return what waits with its messages in order; raises `federation.no-such-request` if there is nothing."""
    found = [item for item in list_waiting_requests(node, recipient) if (item.via, item.instance) == (via, instance)]
    if not found:
        raise DeliveryError("federation.no-such-request", "nothing of this sender waits, or not this")

    def work(connection: Connection) -> list[InstanceMessage]:
        for _, parcel in read_requests(connection, recipient, via, instance).values():
            if parcel:
                opened = open_parcel(decode_delivery(parcel).parcels[0], None)
                return [item.message for item in opened.messages]
            held = find_local_request(connection, node.clock(), recipient, via, instance)
            if held is not None:
                messages = [decode_message(item.payload or b"") for item in held.messages]
                return [message for message in messages if isinstance(message, InstanceMessage)]
        raise DeliveryError("federation.no-such-request", "it was answered meanwhile")

    return found[0], node.database.read(work)


# Delivery on this node


class LocalShare(NamedTuple):
    """An instance that somebody of this node sends to somebody else of it."""

    recipient: IdentityId
    instance: Hash
    via: IdentityId


class LocalShares:
    """What is sent to whom in one transaction that publishes, until it is written."""

    def __init__(self) -> None:
        self._elsewhere: list[tuple[Hash, IdentityId]] = []
        self._here: list[LocalShare] = []
        self.ended: list[Hash] = []
        """Instances that were deleted: they leave the request boxes."""

    def add(
        self, connection: Connection, instance: Hash, recipients: set[IdentityId], via: IdentityId, *, is_owner: bool
    ) -> None:
        """Record whom somebody sends an instance to; recipients elsewhere only if the owner sends it."""
        others = recipients - {via}
        if not others:
            return
        living = living_among(connection, others)
        self._here += [LocalShare(identity, instance, via) for identity in living]
        if is_owner:
            self._elsewhere += [(instance, identity) for identity in sorted(others - living)]

    def write(self, connection: Connection, now: int) -> None:
        """Write what was recorded; the entries must have been written before."""
        if self._elsewhere:
            add_shares(connection, self._elsewhere, now)
        if self._here:
            deliver_locally(connection, self._here, now)
        if self.ended:
            remove_ended_requests(connection, self.ended)
        self._elsewhere, self._here, self.ended = [], [], []


_STATES: dict[DeliveryDecision, DeliveryStatus] = {
    DeliveryDecision.ACCEPTED: "delivered",
    DeliveryDecision.HELD: "held",
    DeliveryDecision.REFUSED: "refused",
}


def deliver_locally(connection: Connection, sent: Collection[LocalShare], now: int) -> None:
    """Deliver instances to recipients of this node, and record for the senders who accepted them."""
    instances = {instance: find_held_instance(connection, instance) for instance in {item.instance for item in sent}}
    for item in sorted(set(sent)):  # boxes are locked in one order
        held = instances[item.instance]
        if held is not None:
            record_decision(connection, item, *receive_locally(connection, held, item, now), now)


def record_decision(
    connection: Connection, item: LocalShare, decision: DeliveryDecision, refusal: DeliveryError | None, now: int
) -> None:
    """Record for the sender whether a recipient of this node accepted an instance."""
    code = refusal.code if refusal is not None else None
    record_local_delivery(connection, item.instance, item.via, item.recipient, _STATES[decision], code, now)


def receive_locally(
    connection: Connection, held: HeldInstance, item: LocalShare, now: int, *, is_wanted: bool = False
) -> tuple[DeliveryDecision, DeliveryError | None]:
    """Decide on an instance for one recipient and store the result; `is_wanted`: they have accepted this very one."""
    owner = find_owner(connection, held.author)
    sender = read_sender_relation(connection, item.recipient, item.via, owner, item.instance)
    if is_wanted and sender is SenderRelation.STRANGER:
        sender = SenderRelation.KNOWN
    arrival = ArrivingParcel(held.access, item.via == owner, is_deletion=held.is_deleted)
    follows = is_follower(connection, item.recipient, owner)
    decision, refusal = decide_acceptance(arrival, item.recipient, sender, is_follower=follows)
    if decision is DeliveryDecision.HELD:
        return _put_into_box(connection, held, item, now)
    remove_requests(connection, item.recipient, item.via, item.instance)
    if decision is DeliveryDecision.ACCEPTED and not held.is_deleted:
        add_shares(connection, [(item.instance, item.recipient)], now)
    return decision, refusal


def _put_into_box(
    connection: Connection, held: HeldInstance, item: LocalShare, now: int
) -> tuple[DeliveryDecision, DeliveryError | None]:
    lock_box(connection, item.recipient)
    if find_request(connection, item.recipient, item.via, item.instance) is not None:
        return DeliveryDecision.HELD, None
    if (full := find_box_refusal(connection, item.recipient, item.via, 0, now)) is not None:
        return DeliveryDecision.REFUSED, full
    add_request(connection, item.recipient, item.via, item.instance, b"", str(held.schema), now)
    return DeliveryDecision.HELD, None


# Recipients that are not found yet

MAX_PENDING: Final = 1_000
"""How many names one identity waits for."""


def check_pending_recipients(
    connection: Connection,
    via: IdentityId,
    access: Access | None,
    names: Collection[str],
    others: Collection[IdentityId],
) -> None:
    """Raise unless an instance can be sent to names that are not found yet, besides those who are."""
    if not names:
        return
    match mode_of(access):
        case "self":
            raise PublishError(
                "publish.not-shareable", "the instance is for its owner alone; change its access first, or share a copy"
            )
        case "relations":
            raise DeliveryError(
                "federation.not-following",
                "the instance is for those who follow its owner, and nobody knows these names here",
            )
        case "closed" if not others:
            raise DeliveryError(
                "federation.cannot-be-named",
                "a closed instance names its recipients by id, and none of these was found: try later",
            )
        case _:
            pass
    if count_pending(connection, via) + len(names) > MAX_PENDING:
        raise DeliveryError(
            "federation.too-many-not-found", "too many recipients of yours could not be found yet: try again later"
        )


def send_when_found(
    connection: Connection, instance: Hash, via: IdentityId, access: Access | None, names: Collection[str], now: int
) -> None:
    """Queue an instance for names until they are found; a closed one is refused, since it is signed without them."""
    if not names:
        return
    if mode_of(access) == "closed":
        add_pending(connection, instance, via, names, "refused", "federation.cannot-be-named", now)
    else:
        add_pending(connection, instance, via, names, "waiting", "federation.not-found-yet", now)


def send_pending(connection: Connection, node: Node, name: str, identity: IdentityId) -> bool:
    """Send an identity what waits for its name, as far as it may still have that; whether anything waited."""
    now = node.clock()
    hold_departures(connection)
    found = take_pending(connection, name)
    for item in found:
        _send(connection, item, identity, now)
    return bool(found)


def _send(connection: Connection, item: PendingRecipient, identity: IdentityId, now: int) -> None:
    held = find_held_instance(connection, item.instance)
    if held is None or held.is_deleted or held.is_expired(now):
        return  # nobody gets anything of it any more
    owner = find_owner(connection, held.author)
    if identity in (owner, item.via):
        return
    follows = is_follower(connection, identity, owner)
    mode = mode_of(held.access)
    may_have = may_pass_to(held.access, is_follower=follows)
    if owner == item.via and mode == "closed":
        may_have = held.access is not None and identity in held.access.to
    if not may_have:
        add_pending(connection, item.instance, item.via, [item.name], "refused", NotAddressed.code, now)
        return
    if lives_here(connection, identity):
        deliver_locally(connection, [LocalShare(identity, item.instance, item.via)], now)
        return
    if owner == item.via:
        add_shares(connection, [(item.instance, identity)], now)
    queue_deliveries(connection, item.instance, item.via, [identity], wanted=held.last_seq, now=now, again=[identity])
