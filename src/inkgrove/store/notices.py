"""Moves in relations that the other side has not heard of yet: the newest of each side (docs/protocol.md section 7)."""

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, delete, select

from inkgrove.core import IdentityId
from inkgrove.store.compiled import Compiled, CompiledList
from inkgrove.store.database import TryAgain, in_lists, insert_new
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
    # With a number of its own: who is telling the earlier one must not forget this one with it.
    if connection.execute(insert_new(connection, notices).returning(notices.c.id), row).first() is None:
        raise TryAgain  # another process has queued one meanwhile


def waiting_others(connection: Connection) -> list[IdentityId]:
    """Everyone who is to hear something."""
    return [IdentityId(other) for (other,) in _others.rows(connection)]


def due_notices(connection: Connection, others: Collection[IdentityId]) -> list[Notice]:
    """What these are to hear, in order."""
    rows = _due.rows(connection, list(others))
    return [Notice(number, IdentityId(me), IdentityId(other), move) for number, me, other, move in rows]


# The outbox asks for these at every turn, and most of the time there are none.
_others: Final = Compiled(lambda _: select(notices.c.other).distinct())
_due: Final = CompiledList(
    lambda others: (
        select(notices.c.id, notices.c.me, notices.c.other, notices.c.move)
        .where(notices.c.other.in_(others))
        .order_by(notices.c.id)
    )
)


def find_notices(connection: Connection, me: IdentityId, other: IdentityId) -> list[Notice]:
    """What somebody is to hear from an identity of this node."""
    return [notice for notice in due_notices(connection, [other]) if notice.me == me]


def forget_old_notices(connection: Connection, others: Collection[IdentityId], queued_before: int) -> None:
    """Stop trying to tell what has waited since before a time."""
    for some in in_lists(others):
        connection.execute(delete(notices).where(notices.c.other.in_(some), notices.c.queued < queued_before))


def forget_notices(connection: Connection, told: Collection[Notice]) -> None:
    """They have heard it; a move made meanwhile has a number of its own and stays."""
    connection.execute(delete(notices).where(notices.c.id.in_([notice.id for notice in told])))
