"""What identities of one node send each other, by the rules that hold between nodes (docs/protocol.md section 8.6).

The entries are here already, so nothing travels: who takes an instance gets the share that lets them see it, who is a
stranger to the sender gets a place in their box of requests instead, and who has blocked the sender gets nothing.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.node.acceptance import Arrival, Fate, Standing, judge, standing_of
from inkgrove.node.errors import DeliveryError
from inkgrove.node.held import HeldInstance, find_held, owner_of
from inkgrove.node.requests import find_room
from inkgrove.node.sending import is_follower
from inkgrove.store.federation import (
    DeliveryStatus,
    add_request,
    find_request,
    lock_box,
    record_local_delivery,
    remove_ended_requests,
    remove_requests,
)
from inkgrove.store.node import add_shares, living_among


class Sent(NamedTuple):
    """An instance that somebody of this node sends to somebody else of it."""

    recipient: IdentityId
    instance: Hash
    via: IdentityId


class Shares:
    """What is sent to whom in one transaction that publishes, until it is written."""

    def __init__(self) -> None:
        self._elsewhere: list[tuple[Hash, IdentityId]] = []
        self._here: list[Sent] = []
        self.ended: list[Hash] = []
        """Instances that were deleted: what waits of them for somebody's word is gone."""

    def add(
        self, connection: Connection, instance: Hash, recipients: set[IdentityId], via: IdentityId, *, is_owner: bool
    ) -> None:
        """Note whom somebody sends an instance to; those elsewhere only if it is the owner who does."""
        others = recipients - {via}
        if not others:
            return
        living = living_among(connection, others)
        self._here += [Sent(identity, instance, via) for identity in living]
        if is_owner:
            self._elsewhere += [(instance, identity) for identity in sorted(others - living)]

    def write(self, connection: Connection, now: int) -> None:
        """Write it down; the entries must have been written before."""
        if self._elsewhere:
            add_shares(connection, self._elsewhere, now)
        if self._here:
            deliver_here(connection, self._here, now)
        if self.ended:
            remove_ended_requests(connection, self.ended)
        self._elsewhere, self._here, self.ended = [], [], []


_STATES: dict[Fate, DeliveryStatus] = {Fate.ACCEPTED: "delivered", Fate.HELD: "held", Fate.REFUSED: "refused"}


def deliver_here(connection: Connection, sent: Collection[Sent], now: int) -> None:
    """Let recipients of this node see what is sent to them, as far as they take it; the senders see how far."""
    instances = {instance: find_held(connection, instance) for instance in {item.instance for item in sent}}
    for item in sorted(set(sent)):  # boxes are locked in one order
        held = instances[item.instance]
        if held is not None:
            note_fate(connection, item, *receive_here(connection, held, item, now), now)


def note_fate(connection: Connection, item: Sent, fate: Fate, refusal: DeliveryError | None, now: int) -> None:
    """Let the sender see what became of something for a recipient of this node."""
    code = refusal.code if refusal is not None else None
    record_local_delivery(connection, item.instance, item.via, item.recipient, _STATES[fate], code, now)


def receive_here(
    connection: Connection, held: HeldInstance, item: Sent, now: int, *, is_wanted: bool = False
) -> tuple[Fate, DeliveryError | None]:
    """What becomes of an instance for one recipient; `is_wanted`: they have accepted this very one."""
    owner = owner_of(connection, held.author)
    standing = standing_of(connection, item.recipient, item.via, owner, item.instance)
    if is_wanted and standing is Standing.STRANGER:
        standing = Standing.KNOWN
    arrival = Arrival(held.access, item.via == owner, is_deletion=held.is_deleted)
    follows = is_follower(connection, item.recipient, owner)
    fate, refusal = judge(arrival, item.recipient, standing, is_follower=follows)
    if fate is Fate.HELD:
        return _keep(connection, held, item, now)
    remove_requests(connection, item.recipient, item.via, item.instance)
    if fate is Fate.ACCEPTED and not held.is_deleted:
        add_shares(connection, [(item.instance, item.recipient)], now)
    return fate, refusal


def _keep(connection: Connection, held: HeldInstance, item: Sent, now: int) -> tuple[Fate, DeliveryError | None]:
    lock_box(connection, item.recipient)
    if find_request(connection, item.recipient, item.via, item.instance) is not None:
        return Fate.HELD, None
    if (full := find_room(connection, item.recipient, item.via, 0, now)) is not None:
        return Fate.REFUSED, full
    add_request(connection, item.recipient, item.via, item.instance, b"", str(held.schema), now)
    return Fate.HELD, None
