"""Who follows whom (docs/protocol.md section 7)."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, literal, or_, select, update

from inkgrove.core import IdentityId
from inkgrove.store.database import TryAgain, insert_new, put_row
from inkgrove.store.node_tables import identities, known_identities, relations

State = Literal["requested", "accepted", "refused", "blocked"]
Side = Literal["following", "followers"]


@dataclass(frozen=True, slots=True)
class ListedRelation:
    """A relation as one of its two identities sees it."""

    side: Side
    identity: IdentityId
    """The other one."""
    fqdn: str | None
    """Its name, if it is hosted here or was found elsewhere."""
    state: State
    group: str | None
    changed: int


def find_state(connection: Connection, follower: IdentityId, followee: IdentityId) -> State | None:
    """How a relation stands."""
    state: State | None = connection.scalar(select(relations.c.state).where(_is_it(follower, followee)))
    return state


def lock_state(connection: Connection, follower: IdentityId, followee: IdentityId) -> State | None:
    """How a relation stands, which nobody else changes before this transaction, one that writes, has ended."""
    query = select(relations.c.state).where(_is_it(follower, followee)).with_for_update()
    state: State | None = connection.scalar(query)
    return state


def count_requested(connection: Connection, followee: IdentityId) -> int:
    """How many ask to follow somebody and have no answer yet."""
    is_open = and_(relations.c.followee == followee, relations.c.state == "requested")
    return connection.scalar(select(func.count()).select_from(relations).where(is_open)) or 0


def has_accepted_relation(connection: Connection, identity: IdentityId) -> bool:
    """Whether somebody follows an identity, or it follows somebody."""
    is_side = or_(relations.c.follower == identity, relations.c.followee == identity)
    query = select(relations.c.state).where(is_side, relations.c.state == "accepted").limit(1)
    return connection.scalar(query) is not None


def put_state(connection: Connection, follower: IdentityId, followee: IdentityId, state: State, now: int) -> None:
    """Set how a relation stands."""
    row = {"follower": follower, "followee": followee, "state": state, "changed": now}
    put_row(connection, relations, row)


def begin(connection: Connection, follower: IdentityId, followee: IdentityId, state: State, now: int) -> None:
    """Set how a relation stands that `lock_state` did not find: there was nothing to lock."""
    row = {"follower": follower, "followee": followee, "state": state, "changed": now}
    begun = connection.execute(insert_new(connection, relations).returning(relations.c.follower), row).first()
    if begun is None:
        raise TryAgain  # another process has begun it meanwhile: what follows from its move is to be decided anew


def put_group(
    connection: Connection, follower: IdentityId, followee: IdentityId, side: Side, group: str | None
) -> None:
    """Put a relation into a group of the one who sees it on this side."""
    column = relations.c.follower_group if side == "following" else relations.c.followee_group
    connection.execute(update(relations).where(_is_it(follower, followee)).values({column: group}))


def remove(connection: Connection, follower: IdentityId, followee: IdentityId) -> None:
    """Forget a relation."""
    connection.execute(delete(relations).where(_is_it(follower, followee)))


def _is_it(follower: IdentityId, followee: IdentityId) -> ColumnElement[bool]:
    return and_(relations.c.follower == follower, relations.c.followee == followee)


def list_relations(
    connection: Connection, identity: IdentityId, *, after: tuple[Side, IdentityId] | None, limit: int
) -> list[ListedRelation]:
    """Both sides of an identity's relations, ordered by side and the other's id."""
    rows: list[Any] = []
    lives_here = case((identities.c.lives_here, identities.c.fqdn))
    name = func.coalesce(lives_here, known_identities.c.fqdn, identities.c.fqdn)
    for side, own, other, group in (
        ("followers", relations.c.followee, relations.c.follower, relations.c.followee_group),
        ("following", relations.c.follower, relations.c.followee, relations.c.follower_group),
    ):
        if after is not None and side < after[0]:
            continue
        query = (
            select(literal(side), other, name, relations.c.state, group, relations.c.changed)
            .select_from(
                relations.outerjoin(identities, identities.c.id == other).outerjoin(
                    known_identities, known_identities.c.id == other
                )
            )
            .where(own == identity)
            .order_by(other)
            .limit(limit - len(rows))
        )
        if after is not None and side == after[0]:
            query = query.where(other > after[1])
        rows += connection.execute(query).all()
        if len(rows) == limit:
            break
    return [ListedRelation(row[0], IdentityId(row[1]), *row[2:]) for row in rows]
