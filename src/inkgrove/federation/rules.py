"""Who gets an instance, and what a receiver makes of it: pure decisions (docs/protocol.md section 8).

The newest held word on access counts. Narrowing recalls nothing, but what is said later goes only to those who may
still see it; that an instance has ended is told to everyone who has a copy by us.
"""

from dataclasses import dataclass
from enum import StrEnum

from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import Blocked, FederationError, NotAddressed, NotToBePassedOn
from inkgrove.messages.instance import Access


def may_pass_on(access: Access | None) -> bool:
    """Whether somebody other than the owner may send the instance to others."""
    return access is None or access.mode not in ("self", "closed")


def may_receive(access: Access | None, recipient: IdentityId, *, is_deletion: bool) -> bool:
    """Whether what was said last goes to somebody whom the owner sent the instance to, or who follows the owner."""
    if is_deletion:
        return True
    match access.mode if access is not None else "listed":
        case "self":
            return False
        case "closed":
            return access is not None and recipient in access.to
        case _:
            return True


def is_pushed_to_followers(access: Access | None) -> bool:
    """Whether every accepted follower gets it unasked."""
    return access is not None and access.mode in ("relations", "public")


class Standing(StrEnum):
    """What a recipient is to the one who sends."""

    KNOWN = "known"
    """They follow the sender or the owner, or have the instance already."""
    STRANGER = "stranger"
    BLOCKED = "blocked"
    """They do not want to hear of the sender or the owner."""


class Fate(StrEnum):
    """What becomes of a parcel for one recipient."""

    ACCEPTED = "accepted"
    HELD = "held"
    """It waits in the request box until the recipient accepts the sender."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a receiver knows about a parcel when it decides."""

    access: Access | None
    """The newest word: of the parcel, or held before."""
    is_from_owner: bool
    """Signed by the node that the owner's own document names."""
    is_deletion: bool


def judge(arrival: Arrival, recipient: IdentityId, standing: Standing) -> tuple[Fate, FederationError | None]:
    """Whether a recipient takes a parcel."""
    mode = arrival.access.mode if arrival.access is not None else "listed"
    if standing is Standing.BLOCKED:
        return Fate.REFUSED, Blocked("the recipient does not take anything from there")
    if mode == "self" and not arrival.is_deletion:
        return Fate.REFUSED, NotToBePassedOn("the owner keeps this instance to themselves")
    if mode == "closed" and not arrival.is_deletion:
        if not arrival.is_from_owner:
            return Fate.REFUSED, NotToBePassedOn("the instance is closed: only the owner's node sends it")
        if arrival.access is None or recipient not in arrival.access.to:
            return Fate.REFUSED, NotAddressed("the instance is closed and not addressed to the recipient")
    return (Fate.ACCEPTED if standing is Standing.KNOWN else Fate.HELD), None
