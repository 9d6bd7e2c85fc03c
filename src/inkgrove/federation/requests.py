"""The box of requests: what strangers sent waits until the recipient accepts or refuses the sender."""

from typing import Literal

from sqlalchemy import Connection

from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import NoSuchRequest
from inkgrove.federation.inbox import receive
from inkgrove.federation.receiving import Receipt
from inkgrove.messages.delivery import decode_delivery
from inkgrove.node.node import Node
from inkgrove.store import relations
from inkgrove.store.identities import find_identity
from inkgrove.store.notices import queue_notice
from inkgrove.store.requests import read_requests, remove_read, remove_requests

Decision = Literal["accept", "refuse"]


def decide_request(node: Node, recipient: IdentityId, via: IdentityId, decision: Decision) -> list[Receipt]:
    """Accept a sender, who follows the recipient from then on, and take in what they sent; or forget it all."""

    def settle(connection: Connection) -> dict[int, bytes]:
        parcels = read_requests(connection, recipient, via)
        if not parcels:
            raise NoSuchRequest("nothing of this sender waits")
        if decision == "accept":
            relations.put_state(connection, via, recipient, "accepted", node.clock())
            if find_identity(connection, via) is None:
                queue_notice(connection, recipient, via, "accept", as_follower=False, now=node.clock())
        else:
            remove_requests(connection, recipient, via)
        return parcels

    parcels = node.database.write(settle)
    return [] if decision == "refuse" else _take(node, parcels)


def release_held(node: Node, recipient: IdentityId, via: IdentityId) -> list[Receipt]:
    """Take in what waits of a sender whom the recipient knows by now."""
    parcels = node.database.read(lambda connection: read_requests(connection, recipient, via))
    return _take(node, parcels) if parcels else []


def _take(node: Node, parcels: dict[int, bytes]) -> list[Receipt]:
    # Received again as if it came now: what was said about access since then counts. Only then does it leave the box,
    # so that a crash in between loses nothing.
    receipts = [receipt for parcel in parcels.values() for receipt in receive(node, decode_delivery(parcel))]
    node.database.write(lambda connection: remove_read(connection, list(parcels)))
    return receipts
