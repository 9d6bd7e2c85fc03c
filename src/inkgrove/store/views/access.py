"""Who may see a row, as one SQL condition that every reader of views shares (docs/protocol.md sections 6 and 8).

The newest access of an instance counts: `self` is for the owner alone, `closed` for those it names and was sent to,
`listed` (the default) for those it was sent to, `relations` for accepted followers, `public` for everyone. Owners see
everything of their own. Nobody sees a row that has expired or has gone by cascade.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    LargeBinary,
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

from inkgrove.core import Hash, IdentityId, PublicKey, identity_of
from inkgrove.messages import AccessMode, SchemaId
from inkgrove.store.db import log_tables, node_tables
from inkgrove.store.db.connection import Compiled, CompiledList, in_lists
from inkgrove.store.views.catalog import VIEW_COLUMNS, View, make_view
from inkgrove.store.views.tables import decode_cell, gone, node_table, views

_shares, _relations, _keys, _hosted, _known = map(
    node_table,
    (
        node_tables.shares,
        node_tables.relations,
        node_tables.identity_keys,
        node_tables.identities,
        node_tables.known_identities,
    ),
)
_schemas, _entries = node_table(log_tables.schemas), node_table(log_tables.entries)


class _ReaderTerms(NamedTuple):
    """A reader inside a condition, as values or as parameters; without an identity, anybody."""

    now: Any
    identity: Any = None
    text: Any = None
    """How the JSON of an access names the identity."""
    keys: Sequence[Any] = ()


class ReaderKind(NamedTuple):
    """All of a reader that the text of a query depends on; the values are `Reader.parameters`."""

    key_count: int | None
    """How many keys are theirs, as the next power of two, so that kinds are few; None for anybody."""

    def terms(self) -> _ReaderTerms:
        """The reader as parameters."""
        now = bindparam("now", type_=BigInteger)
        if self.key_count is None:
            return _ReaderTerms(now)
        keys = [bindparam(f"own_key_{number}", type_=LargeBinary) for number in range(self.key_count)]
        reader, text = bindparam("reader", type_=LargeBinary), bindparam("reader_text", type_=Text)
        return _ReaderTerms(now, reader, text, keys)


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and when; without an identity, anybody."""

    identity: IdentityId | None
    own_keys: tuple[PublicKey, ...]
    now: int

    @property
    def kind(self) -> ReaderKind:
        """The kind of a prepared query that answers this reader."""
        if self.identity is None:
            return ReaderKind(None)
        return ReaderKind(1 << (len(self.own_keys) - 1).bit_length() if self.own_keys else 0)

    def parameters(self) -> dict[str, Any]:
        """The values for a query that was built for this reader's kind."""
        if self.identity is None:
            return {"now": self.now}
        # The last key stands for those that are missing.
        count = self.kind.key_count or 0
        keys = {f"own_key_{n}": self.own_keys[min(n, len(self.own_keys) - 1)] for n in range(count)}
        return {"now": self.now, "reader": self.identity, "reader_text": _mention(self.identity), **keys}

    def terms(self) -> _ReaderTerms:
        """The reader as values."""
        if self.identity is None:
            return _ReaderTerms(self.now)
        return _ReaderTerms(self.now, self.identity, _mention(self.identity), sorted(self.own_keys))


def _mention(reader: IdentityId) -> str:
    return f'"{reader.hex()}"'


_own_keys: Final = Compiled(lambda _: select(_keys.c.author).where(_keys.c.identity == bindparam("identity")))


def reader_on(connection: Connection, identity: IdentityId | None, now: int) -> Reader:
    """A reader with the keys that are known to be theirs; `connection` is one of the views."""
    if identity is None:
        return Reader(None, (), now)
    keys = sorted(PublicKey(key) for (key,) in _own_keys.rows(connection, identity=identity))
    return Reader(identity, tuple(keys), now)


@dataclass(frozen=True, slots=True)
class EarlierVisibility:
    """How shares and relations of a reader were before they changed."""

    sent: frozenset[bytes] = frozenset()
    """Instances that had been sent to the reader and are no more."""
    not_sent: frozenset[bytes] = frozenset()
    followed: frozenset[bytes] = frozenset()
    """Identities that the reader followed and does no more."""
    not_followed: frozenset[bytes] = frozenset()


def visible_rows(
    rows: FromClause,
    cascading: int | ColumnElement[int] | None,
    reader: Reader | ReaderKind | None,
    earlier: EarlierVisibility | None = None,
) -> list[ColumnElement[bool]]:
    """The conditions under which a reader sees a row; a query for a `ReaderKind` runs with `Reader.parameters`.

    `cascading` is the view from which rows can go by cascade (`View.cascading`); None where none can, and for images
    of rows as they were. Without a `reader` every row is visible that has not gone. `earlier` asks about the past.
    """
    conditions: list[ColumnElement[bool]] = []
    if cascading is not None:
        conditions.append(not_(exists().where(gone.c.view == cascading, gone.c.instance == rows.c._instance)))
    if reader is not None:
        conditions.append(_is_allowed(rows, reader.terms(), earlier))
    return conditions


def _is_allowed(rows: FromClause, reader: _ReaderTerms, earlier: EarlierVisibility | None) -> ColumnElement[bool]:
    is_fresh = or_(rows.c._expires.is_(None), rows.c._expires > reader.now)
    choices: list[ColumnElement[bool]] = [has_mode(rows, "public")]
    if reader.identity is not None:
        was_sent, is_followed = _was_sent(rows, reader.identity, earlier), _is_followed(rows, reader.identity, earlier)
        choices += [
            rows.c._author.in_(reader.keys),
            and_(or_(rows.c._access.is_(None), has_mode(rows, "listed")), was_sent),
            and_(has_mode(rows, "closed"), rows.c._access.contains(reader.text), was_sent),
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
    """Whether the newest access of a row has this mode."""
    return rows.c._access.startswith(f'{{"mode": "{mode}"')


# Single instances


class VisibleRow(NamedTuple):
    """The values of an instance by field, at the version of its view."""

    schema: SchemaId
    fields: dict[str, Any]


def find_visible_row(connection: Connection, view: View, instance: Hash, reader: Reader) -> VisibleRow | None:
    """The row of an instance, if the reader may see it; lists have all their elements, whatever they point to."""
    if not view.is_built:
        return None
    rows = view.table()
    query = select(rows).where(rows.c._instance == instance, *visible_rows(rows, view.cascading, reader))
    row = connection.execute(query).first()
    if row is None:
        return None
    cells = row._mapping
    return VisibleRow(view.schema_id, {name: decode_cell(kind, cells[name]) for name, kind in view.fields})


def _select_view_of_instance(_: Connection) -> Select[Any]:
    is_of_schema = and_(views.c.author == _schemas.c.author, views.c.log_id == _schemas.c.log_id)
    named = select(*VIEW_COLUMNS).select_from(_entries).join(_schemas, _schemas.c.id == _entries.c.schema)
    is_it = and_(_entries.c.hash == bindparam("instance"), _entries.c.kind == "create")
    return named.join(views, is_of_schema).where(is_it)


_view_of_instance: Final = Compiled(_select_view_of_instance)


def view_of_instance(connection: Connection, instance: Hash) -> View | None:
    """The view that an instance's row would be in; `connection` is one of the views, with the node's tables."""
    row = _view_of_instance.first(connection, instance=instance)
    return None if row is None else make_view(*row)


# Owners


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
        select(_keys.c.author, _keys.c.identity, func.coalesce(_hosted.c.fqdn, _known.c.fqdn))
        .join_from(_keys, _hosted, _hosted.c.id == _keys.c.identity, isouter=True)
        .outerjoin(_known, _known.c.id == _keys.c.identity)
        .where(_keys.c.author.in_(authors))
    )
)
