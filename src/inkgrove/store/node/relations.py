"""Relations between identities, and whom instances were sent to (docs/protocol.md sections 7 and 8)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.store.db.connection import Compiled, CompiledList, RetryTransaction, in_lists, insert_new, put_row
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import identities, known_identities, relations, shares
from inkgrove.store.node.identities import LIVING

RelationState = Literal["requested", "accepted", "refused", "blocked"]
Side = Literal["following", "followers"]


@dataclass(frozen=True, slots=True)
class ListedRelation:
    """A relation as one of its two identities sees it."""

    side: Side
    identity: IdentityId
    """The other one."""
    fqdn: str | None
    """Its name, if it is hosted here or was found elsewhere."""
    state: RelationState
    group: str | None
    changed: int


def find_relation_state(connection: Connection, follower: IdentityId, followee: IdentityId) -> RelationState | None:
    """Find the state of a relation; None if there is none."""
    state: RelationState | None = connection.scalar(select(relations.c.state).where(_is_it(follower, followee)))
    return state


def lock_relation_state(connection: Connection, follower: IdentityId, followee: IdentityId) -> RelationState | None:
    """Find and lock the state of a relation until this transaction, one that writes, has ended."""
    query = select(relations.c.state).where(_is_it(follower, followee)).with_for_update()
    state: RelationState | None = connection.scalar(query)
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


def put_relation_state(
    connection: Connection, follower: IdentityId, followee: IdentityId, state: RelationState, now: int
) -> None:
    """Set the state of a relation."""
    row = {"follower": follower, "followee": followee, "state": state, "changed": now}
    put_row(connection, relations, row)


def begin_relation(
    connection: Connection, follower: IdentityId, followee: IdentityId, state: RelationState, now: int
) -> None:
    """Add a relation that `lock_relation_state` did not find; raises `RetryTransaction` if another process has."""
    row = {"follower": follower, "followee": followee, "state": state, "changed": now}
    begun = connection.execute(insert_new(connection, relations).returning(relations.c.follower), row).first()
    if begun is None:
        raise RetryTransaction  # another process has begun it meanwhile: its move has to be looked at first


def put_relation_group(
    connection: Connection, follower: IdentityId, followee: IdentityId, side: Side, group: str | None
) -> None:
    """Put a relation into a group of the one who sees it on this side."""
    column = relations.c.follower_group if side == "following" else relations.c.followee_group
    connection.execute(update(relations).where(_is_it(follower, followee)).values({column: group}))


def remove_relation(connection: Connection, follower: IdentityId, followee: IdentityId) -> None:
    """Forget a relation."""
    connection.execute(delete(relations).where(_is_it(follower, followee)))


def _is_it(follower: IdentityId, followee: IdentityId) -> ColumnElement[bool]:
    return and_(relations.c.follower == follower, relations.c.followee == followee)


def read_relations(
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


def add_shares(connection: Connection, rows: Collection[tuple[Hash, IdentityId]], now: int) -> None:
    """Add shares; those that are there stay as they are."""
    values = [{"instance": instance, "identity": identity, "shared": now} for instance, identity in rows]
    if values:
        connection.execute(insert_new(connection, shares), values)


def shares_of(connection: Connection, instance: Hash) -> list[IdentityId]:
    """Whom an instance was sent to."""
    query = select(shares.c.identity).where(shares.c.instance == instance).order_by(shares.c.identity)
    return [IdentityId(found) for found in connection.scalars(query)]


def authors_shared_with(connection: Connection, identity: IdentityId) -> list[PublicKey]:
    """The keys that created what was sent to an identity."""
    created = shares.join(entries, entries.c.hash == shares.c.instance).join(logs, logs.c.id == entries.c.log)
    query = select(logs.c.author).select_from(created).where(shares.c.identity == identity).distinct()
    return sorted(PublicKey(author) for author in connection.scalars(query))


def remove_shares(connection: Connection, identity: IdentityId, authors: Collection[PublicKey]) -> None:
    """Let nothing that these keys created count as sent to an identity any more."""
    for some in in_lists(authors):
        created = select(entries.c.hash).join_from(entries, logs, logs.c.id == entries.c.log)
        is_theirs = created.where(entries.c.hash == shares.c.instance, logs.c.author.in_(some)).exists()
        connection.execute(delete(shares).where(shares.c.identity == identity, is_theirs))


def is_follower(connection: Connection, follower: IdentityId, followee: IdentityId) -> bool:
    """Whether the followee has accepted the follower."""
    return _accepted.first(connection, follower=follower, followee=followee) is not None


_accepted: Final = Compiled(
    lambda _: select(relations.c.changed).where(
        relations.c.follower == bindparam("follower"),
        relations.c.followee == bindparam("followee"),
        relations.c.state == "accepted",
    )
)


def find_followers_elsewhere(
    connection: Connection, followees: Collection[IdentityId]
) -> dict[IdentityId, set[IdentityId]]:
    """The accepted followers of identities that live on other nodes, by followee."""
    found: dict[IdentityId, set[IdentityId]] = {}
    for some in in_lists(followees):
        for followee, follower in _followers_elsewhere.rows(connection, some):
            found.setdefault(IdentityId(followee), set()).add(IdentityId(follower))
    return found


_followers_elsewhere: Final = CompiledList(
    lambda followees: select(relations.c.followee, relations.c.follower).where(
        relations.c.followee.in_(followees), relations.c.state == "accepted", relations.c.follower.not_in(LIVING)
    )
)


def find_states_between(
    connection: Connection, identity: IdentityId, first: IdentityId, second: IdentityId
) -> list[tuple[IdentityId, RelationState]]:
    """The relations, in both directions, of an identity with two others: each as its followee and its state."""
    rows = _states_between.rows(connection, me=identity, first=first, second=second)
    return [(IdentityId(followee), state) for followee, state in rows]


_TWO_OTHERS: Final[list[BindParameter[bytes]]] = [bindparam("first"), bindparam("second")]
_states_between: Final = Compiled(
    lambda _: select(relations.c.followee, relations.c.state).where(
        or_(
            (relations.c.follower == bindparam("me")) & relations.c.followee.in_(_TWO_OTHERS),
            relations.c.follower.in_(_TWO_OTHERS) & (relations.c.followee == bindparam("me")),
        )
    )
)


def was_sent(connection: Connection, instance: Hash, identity: IdentityId) -> bool:
    """Whether an instance was sent to an identity, which has it."""
    return _share.first(connection, instance=instance, identity=identity) is not None


_share: Final = Compiled(
    lambda _: select(shares.c.shared).where(
        shares.c.instance == bindparam("instance"), shares.c.identity == bindparam("identity")
    )
)


def find_shares_elsewhere(connection: Connection, instances: Collection[Hash]) -> dict[Hash, set[IdentityId]]:
    """The identities of other nodes that instances were sent to, by instance."""
    found: dict[Hash, set[IdentityId]] = {}
    for some in in_lists(instances):
        for instance, identity in _shares_elsewhere.rows(connection, some):
            found.setdefault(Hash(instance), set()).add(IdentityId(identity))
    return found


_shares_elsewhere: Final = CompiledList(
    lambda instances: select(shares.c.instance, shares.c.identity).where(
        shares.c.instance.in_(instances), shares.c.identity.not_in(LIVING)
    )
)
