"""Who may see a row, as one SQL condition that every reading route shares (docs/protocol.md section 8).

The newest held word counts: `self` is for the owner alone, `closed` for those it names and was sent to, `listed` (also
without a word) for those it was sent to, `relations` for accepted followers too, `public` for everyone. The owner sees
everything of their own, and nobody sees what has expired.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, MetaData, Select, and_, exists, or_, select

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.messages.instance import AccessMode
from inkgrove.store import node_tables

_beside = MetaData(schema="node")
_shares, _relations, _keys = (
    table.to_metadata(_beside) for table in (node_tables.shares, node_tables.relations, node_tables.identity_keys)
)
visibility_changes = node_tables.visibility_changes.to_metadata(_beside)


@dataclass(frozen=True, slots=True)
class Earlier:
    """How shares and relations of a reader were before they changed."""

    sent: frozenset[bytes] = frozenset()
    """Instances that had been sent to the reader and are no more."""
    not_sent: frozenset[bytes] = frozenset()
    followed: frozenset[bytes] = frozenset()
    """Identities that the reader followed and does no more."""
    not_followed: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and when; without an identity, anybody."""

    identity: IdentityId | None
    own_keys: tuple[PublicKey, ...]
    now: int

    def sees(self, rows: FromClause) -> ColumnElement[bool]:
        """Whether the reader may see a row."""
        return visible_rows(rows, self.identity, self.own_keys, self.now)


def reader_on(connection: Connection, identity: IdentityId | None, now: int) -> Reader:
    """A reader with the keys that are known to be theirs; `connection` is one of the views."""
    if identity is None:
        return Reader(None, (), now)
    keys = connection.execute(keys_of_identities([identity])).scalars()
    return Reader(identity, tuple(map(PublicKey, keys)), now)


def visible_rows(
    rows: FromClause,
    reader: IdentityId | None,
    own_keys: Collection[PublicKey],
    now: int,
    earlier: Earlier | None = None,
) -> ColumnElement[bool]:
    """Whether the reader, who owns what `own_keys` author, may see a row at a time; None is anybody."""
    is_fresh = or_(rows.c._expires.is_(None), rows.c._expires > now)
    choices: list[ColumnElement[bool]] = [has_mode(rows, "public")]
    if reader is not None:
        was_sent, is_followed = _was_sent(rows, reader, earlier), _is_followed(rows, reader, earlier)
        choices += [
            rows.c._author.in_(sorted(own_keys)),
            and_(or_(rows.c._access.is_(None), has_mode(rows, "listed"), has_mode(rows, "relations")), was_sent),
            and_(has_mode(rows, "closed"), rows.c._access.contains(f'"{reader.hex()}"'), was_sent),
            and_(has_mode(rows, "relations"), is_followed),
        ]
    return and_(is_fresh, or_(*choices))


def _was_sent(rows: FromClause, reader: IdentityId, earlier: Earlier | None) -> ColumnElement[bool]:
    sent: ColumnElement[bool] = exists().where(_shares.c.instance == rows.c._instance, _shares.c.identity == reader)
    if earlier is None:
        return sent
    unchanged = and_(sent, rows.c._instance.not_in(sorted(earlier.not_sent)))
    return or_(unchanged, rows.c._instance.in_(sorted(earlier.sent)))


def _is_followed(rows: FromClause, reader: IdentityId, earlier: Earlier | None) -> ColumnElement[bool]:
    accepted = and_(_relations.c.follower == reader, _relations.c.state == "accepted")
    if earlier is not None:
        accepted = and_(accepted, _relations.c.followee.not_in(sorted(earlier.not_followed)))
    followed = select(_keys.c.author).join_from(_relations, _keys, _keys.c.identity == _relations.c.followee)
    choices = [rows.c._author.in_(followed.where(accepted))]
    if earlier is not None:
        choices.append(rows.c._author.in_(keys_of_identities(earlier.followed)))
    return or_(*choices)


def keys_of_identities(identities: Collection[bytes]) -> Select[Any]:
    """The keys of identities, as a query on the tables of the node."""
    return select(_keys.c.author).where(_keys.c.identity.in_(sorted(identities)))


def has_mode(rows: FromClause, mode: AccessMode) -> ColumnElement[bool]:
    """Whether the newest word on a row's access is this one."""
    return rows.c._access.startswith(f'{{"mode": "{mode}"')
