"""Whose deliveries an identity takes in from now on; nobody follows anybody by it (docs/protocol.md section 8.6)."""

from typing import NamedTuple

from sqlalchemy import Connection, and_, delete, select

from inkgrove.core import IdentityId
from inkgrove.store.database import insert_new
from inkgrove.store.federation_tables import accepted_senders


class AcceptedSender(NamedTuple):
    """A sender whose deliveries are taken in, and since when."""

    sender: IdentityId
    since: int


def add_sender(connection: Connection, identity: IdentityId, sender: IdentityId, now: int) -> None:
    """Let an identity take in what a sender sends from now on; twice is once."""
    row = {"identity": identity, "sender": sender, "since": now}
    connection.execute(insert_new(connection, accepted_senders), row)


def remove_sender(connection: Connection, identity: IdentityId, sender: IdentityId) -> bool:
    """Let what a sender sends wait for the identity's word again; whether they had been accepted."""
    is_it = and_(accepted_senders.c.identity == identity, accepted_senders.c.sender == sender)
    return connection.execute(delete(accepted_senders).where(is_it)).rowcount > 0


def list_senders(
    connection: Connection, identity: IdentityId, *, after: IdentityId | None = None, limit: int
) -> list[AcceptedSender]:
    """The senders that an identity has accepted, ordered by id."""
    query = select(accepted_senders.c.sender, accepted_senders.c.since).where(accepted_senders.c.identity == identity)
    if after is not None:
        query = query.where(accepted_senders.c.sender > after)
    found = connection.execute(query.order_by(accepted_senders.c.sender).limit(limit))
    return [AcceptedSender(IdentityId(sender), since) for sender, since in found]
