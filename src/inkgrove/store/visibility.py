"""Who may see a row, as one SQL condition that every reading route shares (docs/protocol.md section 8).

The newest held word counts: `self` is for the owner alone, `closed` for those it names and was sent to, `listed` (also
without a word) for those it was sent to, `relations` for accepted followers, `public` for everyone. The owner sees
everything of their own, and nobody sees what has expired.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    LargeBinary,
    MetaData,
    Select,
    Text,
    and_,
    bindparam,
    exists,
    or_,
    select,
)

from inkgrove.core import IdentityId, PublicKey
from inkgrove.messages import AccessMode
from inkgrove.store import node_tables
from inkgrove.store.compiled import Compiled

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

    @property
    def kind(self) -> int | None:
        """What `visible_to` takes: how many keys, as the next power of two, so that kinds are few; None for anybody."""
        if self.identity is None:
            return None
        return 1 << (len(self.own_keys) - 1).bit_length() if self.own_keys else 0

    def parameters(self) -> dict[str, Any]:
        """The values for a query with the condition `visible_to` of this kind."""
        if self.identity is None:
            return {"now": self.now}
        # The last key stands for those that are missing.
        keys = {f"own_key_{n}": self.own_keys[min(n, len(self.own_keys) - 1)] for n in range(self.kind or 0)}
        return {"now": self.now, "reader": self.identity, "reader_text": _mention(self.identity), **keys}


_own_keys: Final = Compiled(lambda _: select(_keys.c.author).where(_keys.c.identity == bindparam("identity")))


def reader_on(connection: Connection, identity: IdentityId | None, now: int) -> Reader:
    """A reader with the keys that are known to be theirs; `connection` is one of the views."""
    if identity is None:
        return Reader(None, (), now)
    keys = sorted(PublicKey(key) for (key,) in _own_keys.rows(connection, identity=identity))
    return Reader(identity, tuple(keys), now)


class _Who(NamedTuple):
    """A reader in a condition, as values or as parameters."""

    identity: Any
    text: Any
    """How a list of identities in JSON names them."""
    keys: list[Any]


def visible_to(rows: FromClause, kind: int | None) -> ColumnElement[bool]:
    """Whether a reader of this kind may see a row; to be run with `Reader.parameters`."""
    who = None
    if kind is not None:
        keys: list[Any] = [bindparam(f"own_key_{number}", type_=LargeBinary) for number in range(kind)]
        who = _Who(bindparam("reader", type_=LargeBinary), bindparam("reader_text", type_=Text), keys)
    return _is_visible(rows, who, bindparam("now", type_=BigInteger), None)


def visible_rows(
    rows: FromClause,
    reader: IdentityId | None,
    own_keys: Collection[PublicKey],
    now: int,
    earlier: Earlier | None = None,
) -> ColumnElement[bool]:
    """Whether the reader, who owns what `own_keys` author, may see a row at a time; None is anybody."""
    who = None if reader is None else _Who(reader, _mention(reader), sorted(own_keys))
    return _is_visible(rows, who, now, earlier)


def _mention(reader: IdentityId) -> str:
    return f'"{reader.hex()}"'


def _is_visible(rows: FromClause, who: _Who | None, now: Any, earlier: Earlier | None) -> ColumnElement[bool]:
    is_fresh = or_(rows.c._expires.is_(None), rows.c._expires > now)
    choices: list[ColumnElement[bool]] = [has_mode(rows, "public")]
    if who is not None:
        was_sent, is_followed = _was_sent(rows, who.identity, earlier), _is_followed(rows, who.identity, earlier)
        choices += [
            rows.c._author.in_(who.keys),
            and_(or_(rows.c._access.is_(None), has_mode(rows, "listed")), was_sent),
            and_(has_mode(rows, "closed"), rows.c._access.contains(who.text), was_sent),
            and_(has_mode(rows, "relations"), is_followed),
        ]
    return and_(is_fresh, or_(*choices))


def _was_sent(rows: FromClause, reader: Any, earlier: Earlier | None) -> ColumnElement[bool]:
    sent: ColumnElement[bool] = exists().where(_shares.c.instance == rows.c._instance, _shares.c.identity == reader)
    if earlier is None:
        return sent
    unchanged = and_(sent, rows.c._instance.not_in(sorted(earlier.not_sent)))
    return or_(unchanged, rows.c._instance.in_(sorted(earlier.sent)))


def _is_followed(rows: FromClause, reader: Any, earlier: Earlier | None) -> ColumnElement[bool]:
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
