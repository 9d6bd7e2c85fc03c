"""Whether a recipient takes what is sent to them: one rule, wherever the sender lives (docs/protocol.md section 8.6).

`standing_of` reads how the recipient stands to sender and owner, `judge` decides. What other nodes deliver and what
identities of this node send each other are both decided here. Whom a sender sends to is decided in `node/audience.py`;
nobody relies on the other side having done so.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import BindParameter, Connection, bindparam, or_, select

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.instance import Access
from inkgrove.node.audience import mode_of
from inkgrove.node.errors import DeliveryError, NotAddressed
from inkgrove.node.sending import was_sent
from inkgrove.store.db import Compiled, accepted_senders, deliveries, relations


class Standing(StrEnum):
    """What a sender is to a recipient."""

    KNOWN = "known"
    """There is an accepted relation with the sender or the owner, the recipient has accepted one of them as a sender,
    has the instance, or has written to the sender."""
    STRANGER = "stranger"
    BLOCKED = "blocked"
    """The recipient has blocked the sender or the owner."""


class Fate(StrEnum):
    """What becomes of a parcel for one recipient."""

    ACCEPTED = "accepted"
    HELD = "held"
    """It waits in the request box until the recipient accepts it or its sender."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a receiver knows about a parcel when it decides."""

    access: Access | None
    """The newest word: of the parcel, or held before."""
    is_from_owner: bool
    """Signed by the node that the owner's own document names, or published by the owner on this node."""
    is_deletion: bool


def judge(
    arrival: Arrival, recipient: IdentityId, standing: Standing, *, is_follower: bool
) -> tuple[Fate, DeliveryError | None]:
    """Whether a recipient, who follows the owner or does not, takes a parcel, and why not if they refuse it."""
    mode = mode_of(arrival.access)
    if standing is Standing.BLOCKED:
        return Fate.REFUSED, DeliveryError("federation.blocked", "the recipient does not take anything from there")
    if mode == "self" and not arrival.is_deletion:
        return Fate.REFUSED, DeliveryError(
            "federation.not-to-be-passed-on", "the owner keeps this instance to themselves"
        )
    if mode == "closed" and not arrival.is_deletion:
        if not arrival.is_from_owner:
            return Fate.REFUSED, DeliveryError(
                "federation.not-to-be-passed-on", "the instance is closed: only the owner's node sends it"
            )
        if arrival.access is None or recipient not in arrival.access.to:
            return Fate.REFUSED, NotAddressed("the instance is closed and not addressed to the recipient")
    if mode == "relations" and not (is_follower or arrival.is_deletion):
        return Fate.REFUSED, DeliveryError(
            "federation.not-following", "the instance is for those who follow its owner, and the recipient does not"
        )
    return (Fate.ACCEPTED if standing is Standing.KNOWN else Fate.HELD), None


def standing_of(
    connection: Connection, recipient: IdentityId, via: IdentityId | None, owner: IdentityId, instance: Hash
) -> Standing:
    """How who sends an instance, and its owner, stand to a recipient; without a sender it was handed over."""
    if via is None:
        return Standing.KNOWN
    states = _relations.rows(connection, me=recipient, via=via, owner=owner)
    if any(state == "blocked" and followee == recipient for followee, state in states):
        return Standing.BLOCKED
    is_known = (
        any(state == "accepted" for _, state in states)
        or _accepted.first(connection, me=recipient, via=via, owner=owner) is not None
        # Who was written to by the recipient may answer.
        or _written.first(connection, via=recipient, recipient=via) is not None
        or was_sent(connection, instance, recipient)
    )
    return Standing.KNOWN if is_known else Standing.STRANGER


_OTHERS: Final[list[BindParameter[bytes]]] = [bindparam("via"), bindparam("owner")]
_relations: Final = Compiled(
    lambda _: select(relations.c.followee, relations.c.state).where(
        or_(
            (relations.c.follower == bindparam("me")) & relations.c.followee.in_(_OTHERS),
            relations.c.follower.in_(_OTHERS) & (relations.c.followee == bindparam("me")),
        )
    )
)
_accepted: Final = Compiled(
    lambda _: select(accepted_senders.c.since).where(
        accepted_senders.c.identity == bindparam("me"), accepted_senders.c.sender.in_(_OTHERS)
    )
)
_written: Final = Compiled(
    lambda _: (
        select(deliveries.c.place)
        .where(deliveries.c.via == bindparam("via"), deliveries.c.recipient == bindparam("recipient"))
        .limit(1)
    )
)
