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
    func,
    not_,
    or_,
    select,
)

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey, identity_of
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import AccessMode
from inkgrove.store.db import node_tables
from inkgrove.store.db.connection import Compiled, CompiledList, in_lists
from inkgrove.store.db.log_tables import entries, schemas
from inkgrove.store.views.catalog import VIEW_COLUMNS, View, make_view
from inkgrove.store.views.tables import decode_cell, gone, views

_beside = MetaData(schema="node")
_shares, _relations, _keys = (
    table.to_metadata(_beside) for table in (node_tables.shares, node_tables.relations, node_tables.identity_keys)
)
visibility_changes = node_tables.visibility_changes.to_metadata(_beside)


@dataclass(frozen=True, slots=True)
class EarlierVisibility:
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
    earlier: EarlierVisibility | None = None,
) -> ColumnElement[bool]:
    """Whether the reader, who owns what `own_keys` author, may see a row at a time; None is anybody."""
    who = None if reader is None else _Who(reader, _mention(reader), sorted(own_keys))
    return _is_visible(rows, who, now, earlier)


def _mention(reader: IdentityId) -> str:
    return f'"{reader.hex()}"'


def _is_visible(rows: FromClause, who: _Who | None, now: Any, earlier: EarlierVisibility | None) -> ColumnElement[bool]:
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


def _was_sent(rows: FromClause, reader: Any, earlier: EarlierVisibility | None) -> ColumnElement[bool]:
    sent: ColumnElement[bool] = exists().where(_shares.c.instance == rows.c._instance, _shares.c.identity == reader)
    if earlier is None:
        return sent
    unchanged = and_(sent, rows.c._instance.not_in(sorted(earlier.not_sent)))
    return or_(unchanged, rows.c._instance.in_(sorted(earlier.sent)))


def _is_followed(rows: FromClause, reader: Any, earlier: EarlierVisibility | None) -> ColumnElement[bool]:
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


# One row of a view as one reader may see it (docs/protocol.md section 8).


class VisibleRow(NamedTuple):
    """The values of an instance by field, at the version of its view."""

    schema: SchemaId
    fields: dict[str, Any]


def find_visible_row(
    connection: Connection,
    view: View,
    instance: Hash,
    reader: IdentityId | None,
    own_keys: Collection[PublicKey],
    now: int,
) -> VisibleRow | None:
    """The row of an instance, if the reader may see it."""
    if not view.is_built:
        return None
    rows = view.table()
    is_gone = exists().where(gone.c.view == view.id, gone.c.instance == rows.c._instance)
    query = select(rows).where(rows.c._instance == instance, visible_rows(rows, reader, own_keys, now), not_(is_gone))
    row = connection.execute(query).first()
    if row is None:
        return None
    cells = row._mapping
    return VisibleRow(view.schema_id, {name: decode_cell(kind, cells[name]) for name, kind in view.fields})


# Who owns rows: the identities behind the keys that wrote them, with the names that this node knows.


_beside_owners = MetaData(schema="node")
_keys_owners, _hosted, _known = (
    table.to_metadata(_beside_owners)
    for table in (node_tables.identity_keys, node_tables.identities, node_tables.known_identities)
)


class Owner(NamedTuple):
    """An identity, and the name it has here or was found under elsewhere; None if it was never looked up."""

    id: IdentityId
    fqdn: str | None


def owners_on(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, Owner]:
    """Whose keys these are, in one query; `connection` is one of the views. An unknown key stands for itself."""
    found = {
        PublicKey(author): Owner(IdentityId(identity), fqdn)
        for some in in_lists(authors)
        for author, identity, fqdn in _owners.rows(connection, some)
    }
    return {author: found.get(author) or Owner(identity_of(author), None) for author in authors}


_owners: Final = CompiledList(
    lambda authors: (
        select(_keys_owners.c.author, _keys_owners.c.identity, func.coalesce(_hosted.c.fqdn, _known.c.fqdn))
        .select_from(
            _keys_owners.outerjoin(_hosted, _hosted.c.id == _keys_owners.c.identity).outerjoin(
                _known, _known.c.id == _keys_owners.c.identity
            )
        )
        .where(_keys_owners.c.author.in_(authors))
    )
)


# Where an instance is found: the view of its schema, and its place in the log store.


_beside_instance_finding = MetaData(schema="node")
_schemas, _entries = schemas.to_metadata(_beside_instance_finding), entries.to_metadata(_beside_instance_finding)


def _query(_: Connection) -> Select[Any]:
    is_of_schema = and_(views.c.author == _schemas.c.author, views.c.log_id == _schemas.c.log_id)
    named = select(*VIEW_COLUMNS).select_from(_entries).join(_schemas, _schemas.c.id == _entries.c.schema)
    is_it = and_(_entries.c.hash == bindparam("instance"), _entries.c.kind == "create")
    return named.join(views, is_of_schema).where(is_it)


_view_of_instance: Final = Compiled(_query)


def view_of_instance(connection: Connection, instance: Hash) -> View | None:
    """The view that an instance's row would be in; `connection` is one of the views, with the node's tables."""
    row = _view_of_instance.first(connection, instance=instance)
    return None if row is None else make_view(*row)
