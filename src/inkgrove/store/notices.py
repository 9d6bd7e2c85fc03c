"""Moves in relations that the other side has not heard of yet: the newest of each side (docs/protocol.md section 7)."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, and_, delete, insert, select

from inkgrove.core.keys import IdentityId
from inkgrove.store.federation_tables import notices


class Notice(NamedTuple):
    """A move to be told."""

    id: int
    me: IdentityId
    other: IdentityId
    move: str


def queue_notice(
    connection: Connection, me: IdentityId, other: IdentityId, move: str, *, as_follower: bool, now: int
) -> None:
    """Let the other side hear of a move of ours, and of no earlier one on the same side."""
    is_it = and_(notices.c.me == me, notices.c.other == other, notices.c.as_follower.is_(as_follower))
    connection.execute(delete(notices).where(is_it))
    row = {"me": me, "other": other, "as_follower": as_follower, "move": move, "queued": now}
    connection.execute(insert(notices), row)


def waiting_others(connection: Connection) -> list[IdentityId]:
    """Everyone who is to hear something."""
    return [IdentityId(other) for other in connection.scalars(select(notices.c.other).distinct())]


def due_notices(connection: Connection, others: Collection[IdentityId]) -> list[Notice]:
    """What these are to hear, in order."""
    query = select(notices).where(notices.c.other.in_(list(others))).order_by(notices.c.id)
    return [Notice(row.id, IdentityId(row.me), IdentityId(row.other), row.move) for row in connection.execute(query)]


def find_notices(connection: Connection, me: IdentityId, other: IdentityId) -> list[Notice]:
    """What somebody is to hear from an identity of this node."""
    return [notice for notice in due_notices(connection, [other]) if notice.me == me]


def forget_notices(connection: Connection, told: Collection[Notice]) -> None:
    """They have heard it, or never will; a move made meanwhile has a number of its own and stays."""
    connection.execute(delete(notices).where(notices.c.id.in_([notice.id for notice in told])))
