"""For whom a parcel is, asked before anything in it is verified: signatures are dear, and keys to make them are not.

docs/protocol.md section 8.9. Nothing here believes the parcel: a wrong word on its author only makes it look like that
of somebody whom a recipient knows, and then a signature refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import FederationError
from inkgrove.messages.delivery import Parcel
from inkgrove.node.errors import DeliveryError
from inkgrove.node.identity import find_owner
from inkgrove.node.publishing import SenderRelation, read_sender_relation
from inkgrove.store.node.identities import living_among

STRANGER_ENTRIES: Final = 2_000
"""How many entries of a delivery are verified for recipients who do not know the sender."""
_AUTHOR: Final = slice(1, 33)
"""Where the author stands in an entry."""


@dataclass(slots=True)
class Budget:
    """How many entries are still verified for strangers in a delivery."""

    entries: int = STRANGER_ENTRIES


def refusals_of(
    connection: Connection, via: IdentityId, parcel: Parcel, budget: Budget
) -> Mapping[IdentityId, InkgroveError]:
    """For which recipients a parcel is refused as it is, and why; whoever is left makes it worth verifying.

    Raises `parcel.bad` if its entries are of several authors.
    """
    living = living_among(connection, set(parcel.recipients))
    refused: dict[IdentityId, InkgroveError] = {
        to: FederationError("federation.unknown-recipient", f"{to} does not live here")
        for to in parcel.recipients
        if to not in living
    }
    if not living:
        return refused
    author = decode_entry(parcel.entries[0][0]).author
    if any(encoded[_AUTHOR] != author for encoded, _ in parcel.entries):
        raise ParcelError("parcel.bad", "the entries of a parcel are of one log")
    owner = find_owner(connection, author)
    standings = {to: read_sender_relation(connection, to, via, owner, parcel.instance) for to in living}
    refused |= {
        to: DeliveryError("federation.blocked", "the recipient does not take anything from there")
        for to, standing in standings.items()
        if standing is SenderRelation.BLOCKED
    }
    if SenderRelation.STRANGER in standings.values() and SenderRelation.KNOWN not in standings.values():
        budget.entries -= len(parcel.entries)
        if budget.entries < 0:
            words = f"of strangers at most {STRANGER_ENTRIES:,} entries are taken at once: send less of it"
            refused |= {
                to: FederationError("federation.stranger-sends-too-much", words)
                for to in standings
                if to not in refused
            }
    return refused
