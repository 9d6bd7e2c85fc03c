"""What a receiver makes of an instance that arrives: pure decisions (docs/protocol.md section 8).

Whom a sender sends to is decided in `node/audience.py`; nobody relies on the other side having done so.
"""

from dataclasses import dataclass
from enum import StrEnum

from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import Blocked, FederationError, NotAddressed, NotToBePassedOn
from inkgrove.messages.instance import Access
from inkgrove.node.audience import mode_of


class Standing(StrEnum):
    """What a recipient is to the one who sends."""

    KNOWN = "known"
    """There is an accepted relation with the sender or the owner, they have the instance, or wrote to the sender."""
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
    mode = mode_of(arrival.access)
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
