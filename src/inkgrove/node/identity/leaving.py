"""What rests while an identity is about to leave for another node (docs/protocol.md section 7.10).

Every transaction that signs for an identity, or lets it have something, asks here, and nobody begins to leave before it
has ended (`hold_departures`). So the file that goes to the new node, which is written after that, has all that was
taken before; what comes later stays with its senders.
"""

from collections.abc import Collection
from typing import Final

from inkgrove.core import IdentityId
from inkgrove.node.errors import IdentityLeaving, RecipientLeaving
from inkgrove.store.db import Connection
from inkgrove.store.node import hold_departures, leaving_among

RETRY_SECONDS: Final = 5
"""How long others are asked to wait before they send something again."""


def require_staying(connection: Connection, identity: IdentityId) -> None:
    """Raise `identity.leaving` if an identity is about to leave for another node; it does not begin to from now on."""
    hold_departures(connection)
    if leaving_among(connection, [identity]):
        raise IdentityLeaving(
            "you are about to move to another node: nothing is signed or changed here until you have, or have taken"
            " it back (DELETE /me/move)"
        )


def require_receiving(connection: Connection, recipients: Collection[IdentityId]) -> None:
    """Raise `identity.recipient-leaving` if one of those who are to get something is about to leave."""
    hold_departures(connection)
    leaving = leaving_among(connection, recipients)
    if leaving:
        raise RecipientLeaving(
            "the recipient is moving to another node at this moment: send it again later",
            identities=sorted(identity.hex() for identity in leaving),
            retry_after=RETRY_SECONDS,
        )
