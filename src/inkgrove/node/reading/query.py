"""Reads views and instances on behalf of a caller (docs/protocol.md sections 6 and 8).

The condition of what may be seen is in `store/views/access.py`, for lists, counts, relations and single rows alike.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import isfinite
from typing import Any, Final

from inkgrove.core import Hash, PublicKey, parse_hash
from inkgrove.core.errors import BadFilter, InkgroveError, QueryTooExpensive, TooManyQueries
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import SchemaId, access_to_json, value_to_json
from inkgrove.node.errors import BadCursor, RequestError, ViewError
from inkgrove.node.identity.caller import ANYBODY, Caller
from inkgrove.node.identity.sessions import authenticate_on
from inkgrove.node.reading.schemas import resolve_view_on
from inkgrove.node.runtime.node import Node
from inkgrove.node.runtime.vault import Vault
from inkgrove.schema import RELATION_TYPES
from inkgrove.store.db import Connection
from inkgrove.store.logs import Offset, count_after
from inkgrove.store.views import (
    Filter,
    Owner,
    Reader,
    View,
    ViewRow,
    count_rows,
    find_newest_cursor,
    follow_lines,
    owners_on,
    parse_filter,
    read_page,
    read_row,
    read_rows,
    read_views,
    reader_on,
    type_of,
    view_of,
    view_of_instance,
    weight_of,
)

# Relations of a page, followed one step. The size of the answer is bounded: a list may name 1,024 large rows.

_PIECE: Final = 50
Related = ViewRow | Sequence[ViewRow | None] | None
"""The rows that a relation points to; None where nothing may be seen."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The rows that the first rows of a page point to, as far as they fit."""

    related: Sequence[Mapping[str, Related]]
    """For each row that fits, by relation; for the first row always."""
    left_out: Sequence[str] = ()
    """The relations that do not fit as a whole, of the first row, which is then the only one."""

    def authors(self) -> set[PublicKey]:
        """Return the authors of the related rows."""
        found = chain.from_iterable(row.values() for row in self.related)
        items = chain.from_iterable(item if isinstance(item, Sequence) else [item] for item in found)
        return {item.author for item in items if item is not None}


def expand(
    connection: Connection,
    rows: Sequence[ViewRow],
    targets: Mapping[str, View | None],
    reader: Reader,
    most_bytes: int,
) -> Expansion:
    """Follow relations, each into its view, until rows and related rows have about `most_bytes`."""
    relations = {field: _Relation(view, _named(rows, field)) for field, view in targets.items()}
    related: list[dict[str, Related]] = []
    to_read = to_show = most_bytes
    for row in rows:
        to_show -= weight_of(row)
        shown: dict[str, Related] = {}
        left_out: dict[str, None] = {}
        for field, relation in relations.items():
            items: list[ViewRow | None] = []
            for name in _elements(row.fields[field]):
                if name not in relation.known and to_read > 0:
                    to_read -= relation.read(connection, reader)
                found, weight = relation.known.get(name, (None, to_show + 1))
                if weight > to_show:
                    found, weight = None, 0
                    left_out[field] = None
                to_show -= weight
                items.append(found)
            is_list = isinstance(row.fields[field], list)
            shown[field] = items if is_list else items[0] if items else None
        if left_out:
            return Expansion(related) if related else Expansion([shown], list(left_out))
        related.append(shown)
    return Expansion(related)


class _Relation:
    """The rows that a relation points to, read in the order in which the page names them."""

    def __init__(self, view: View | None, wanted: Iterable[Hash]) -> None:
        self._view, self._wanted = view, iter(wanted)
        self.known: dict[Hash, tuple[ViewRow | None, int]] = {}
        """The rows that were read, each with its size."""

    def read(self, connection: Connection, reader: Reader) -> int:
        """Read the next rows, and return their size."""
        some = list(islice(self._wanted, _PIECE))
        rows = [] if self._view is None else read_rows(connection, self._view, some, reader)
        self.known |= dict.fromkeys(some, (None, 0))
        self.known |= {row.instance: (row, weight_of(row)) for row in rows}
        missing = [name for name in some if self.known[name][0] is None]
        if self._view is not None and missing:
            # Relations lead to the last of the line of what they name.
            last = follow_lines(connection, self._view, missing)
            found = {row.instance: row for row in read_rows(connection, self._view, set(last.values()), reader)}
            self.known |= {name: (found[to], weight_of(found[to])) for name, to in last.items() if to in found}
        return sum(self.known[name][1] for name in some)


def _named(rows: Sequence[ViewRow], field: str) -> dict[Hash, None]:
    """Each instance that a relation names, in order and once."""
    return dict.fromkeys(name for row in rows for name in _elements(row.fields[field]))


def _elements(value: Any) -> Sequence[Hash]:
    return [] if value is None else value if isinstance(value, list) else [value]


# Cursors: the values of a page's last row in the sort order, as a text that clients hand back. A cursor grants nothing:
# what may be seen is decided for every page. It is checked before it is used in a query.

Sort = Sequence[tuple[str, bool]]
_KINDS: Final[dict[str, type]] = {
    "varchar": str,
    "text": str,
    "integer": int,
    "timestamp": int,
    "float": float,
    "boolean": bool,
    "relation": bytes,
}


def render_cursor(sort: Sort, values: Sequence[Any]) -> str:
    """Return the cursor behind a row with these values."""
    cells = [{"hex": value.hex()} if isinstance(value, bytes) else value for value in values]
    return urlsafe_b64encode(json.dumps([list(sort), cells], separators=(",", ":")).encode()).decode().rstrip("=")


def parse_cursor(text: str, sort: Sort, types: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the values of a cursor for this sort order; raises `BadCursor`, or `BadFilter` for an unknown column."""
    refusal = BadCursor("the cursor is not one of a page with this sort order: begin again without it")
    try:
        made_for, cells = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        values = [bytes.fromhex(cell["hex"]) if isinstance(cell, dict) else cell for cell in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise refusal from None
    names = [*(name for name, _ in sort), "_instance"]
    if made_for != [list(item) for item in sort] or len(values) != len(names):
        raise refusal
    if not all(_fits(name, value, types) for name, value in zip(names, values, strict=True)):
        raise refusal
    return tuple(values)


def _fits(name: str, value: Any, types: Mapping[str, str]) -> bool:
    type_name = type_of(types, name)
    if value is None:
        return name in types
    if type(value) is not _KINDS.get(type_name):
        return False
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, int):
        return abs(value) <= MAX_STORED_INTEGER + 1
    return not isinstance(value, str) or ("\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value))


# Position tokens: an offset of the store as a text that clients and other nodes hand back. Its numbers count all that
# the node stores, so it is encrypted, and every token has one length.

MAX_TOKEN: Final = 200
"""Characters that a token has at most."""
_POSITION: Final = "position"


def render_position(vault: Vault, offset: Offset) -> str:
    """Return the token of an offset."""
    return vault.encrypt_text(f"{_POSITION} {offset.xid:020d} {offset.position:020d}")


def parse_position(vault: Vault, token: str) -> Offset:
    """Return the offset of a token that this node made; raises `request.invalid`."""
    parts = (vault.decrypt_text(token) or "").split(" ")
    if len(parts) != 3 or parts[0] != _POSITION:
        raise RequestError(
            "request.invalid", "this is no position token of this node: take `position` of an answer as it is"
        )
    offset = Offset(int(parts[1]), int(parts[2]))
    assert max(map(abs, offset)) <= MAX_STORED_INTEGER, "only what this node has rendered is revealed"
    return offset


MAX_PAGE: Final = 1000
_COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewQuery:
    """A query of a view, as the address has it."""

    where: Sequence[str] = ()
    sort: Sequence[str] = ()
    limit: int = 50
    cursor: str | None = None
    fields: Sequence[str] | None = None
    expand: Sequence[str] = ()
    with_count: bool = False
    is_count_optional: bool = False
    """Whether a count that would cost too much is left out rather than refused."""


@dataclass(frozen=True, slots=True)
class ViewPage:
    """A page of rows that the caller may see."""

    view: View
    rows: Sequence[ViewRow]
    expansion: Expansion | None
    """What the rows point to, if that was asked for."""
    cursor: str | None
    count: int | None
    changes: str
    """The cursor of the change feed at these rows."""
    owners: Mapping[PublicKey, Owner]
    """Of all these rows, by author."""


@dataclass(frozen=True, slots=True)
class ListedView:
    """A view as the list shows it."""

    view: View
    rows: int | None
    """How many the caller may see; None if nobody asked, a service may not read them, or to count costs too much."""


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """How far the views have come."""

    is_current: bool
    position: str | None
    """For those who are signed in: the token that `at_least` takes."""
    lag: int | None
    """For administrators: how much they have not seen yet, 10,000 at most."""


def query_view(
    node: Node, asking: Caller | str | None, name: str, question: ViewQuery, *, at_once: bool = False
) -> ViewPage:
    """Return a page of a view, by `AUTHOR/LOG` or name.

    `asking` is the caller or their token. `at_once`: see `Database.read_at_once`.
    """

    def work(connection: Connection) -> ViewPage:
        caller = _caller(node, connection, asking)
        answer = None
        try:
            with node.find_query_limit(caller.identity).on(connection):
                view, reader, where, answer = _answer(node, connection, caller, name, question)
                if question.with_count:
                    # Last: where a count is refused, PostgreSQL answers nothing more.
                    answer = replace(answer, count=count_rows(connection, view, where=where, reader=reader))
        except (QueryTooExpensive, TooManyQueries):
            if answer is None or not question.is_count_optional:
                raise
        return answer

    database = node.views.database
    answer = database.read_at_once(work) if at_once else database.read(work)
    node.reads.add((row.instance, row.author) for row in answer.rows)
    return answer


def _answer(
    node: Node, connection: Connection, caller: Caller, name: str, question: ViewQuery
) -> tuple[View, Reader, list[Filter], ViewPage]:
    """Return the page without a count, and what is to be counted."""
    view = resolve_view_on(connection, name)
    reader = reader_on(connection, caller.read_as(view.schema_id), node.clock())
    types = dict(view.fields)
    where = [parse_filter(text, types) for text in question.where]
    sort = _parse_sort(question.sort)
    after = None if question.cursor is None else parse_cursor(question.cursor, sort, types)
    page = read_page(
        connection,
        view,
        where=where,
        sort=sort,
        limit=question.limit,
        after=after,
        reader=reader,
        only=_chosen(question, types),
        most_bytes=node.settings.max_page_bytes,
    )
    expansion = None
    if question.expand:
        targets = {field: _target(node, connection, caller, view, field) for field in question.expand}
        expansion = expand(connection, page.rows, targets, reader, node.settings.max_page_bytes)
        page = page.cut(len(expansion.related))
    cursor = None if page.after is None else render_cursor(sort, page.after)
    changes = node.vault.encrypt_text(str(find_newest_cursor(connection, view, reader.now)))
    authors = {row.author for row in page.rows}
    if expansion is not None:
        authors |= expansion.authors()
    owners = owners_on(connection, authors)
    return view, reader, where, ViewPage(view, page.rows, expansion, cursor, None, changes, owners)


def _caller(node: Node, connection: Connection, asking: Caller | str | None) -> Caller:
    """Return the caller, read in the transaction that reads the rows: a revoked token reads nothing."""
    if isinstance(asking, Caller):
        return asking
    return ANYBODY if asking is None else authenticate_on(connection, node, asking)


def _parse_sort(texts: Sequence[str]) -> list[tuple[str, bool]]:
    sort = [(text.removeprefix("-"), text.startswith("-")) for text in texts]
    if len({name for name, _ in sort}) != len(sort) or len(sort) > 8:
        raise BadFilter("a view is sorted by at most eight columns, each named once")
    return sort


def _chosen(question: ViewQuery, types: Mapping[str, str]) -> set[str] | None:
    if question.fields is None:
        return None
    for name in question.fields:
        if name not in types:
            raise BadFilter(f"the view has no field {name[:80]!r}; its fields are: {', '.join(types)}", field=name[:80])
    return {*question.fields, *question.expand}


def _target(node: Node, connection: Connection, caller: Caller, view: View, field: str) -> View | None:
    """Return the view that a relation points to, if there is one; raises if the caller may not read it."""
    if dict(view.fields).get(field) not in RELATION_TYPES:
        raise BadFilter(f"{field[:80]!r} is no relation of this view", field=field[:80])
    target = relation_schema(node, view, field)
    if target is None:
        raise BadFilter(f"the relation {field!r} names no schema", field=field)
    caller.read_as(target)
    return view_of(connection, target)


def relation_schema(node: Node, view: View, field: str) -> SchemaId | None:
    """Return the schema that a relation of a view points to, at the view's version."""
    schema = node.schemas.read(view.schema_id)
    if view.version > len(schema.versions):
        return None
    found = {item.name: item.schema for item in schema.version(view.version).fields}
    return found.get(field)


def list_views(node: Node, caller: Caller, *, with_count: bool) -> tuple[list[ListedView], ViewProgress]:
    """Return every view of the node, and how far they have come."""

    def work(connection: Connection) -> list[ListedView]:
        reader = reader_on(connection, caller.identity, node.clock())
        views = list(read_views(connection).values())
        counts: dict[SchemaId, int] = {}
        if with_count:
            with suppress(QueryTooExpensive, TooManyQueries), node.find_query_limit(caller.identity).on(connection):
                for view in views:
                    if _may_read(caller, view.schema_id):
                        counts[view.schema_id] = count_rows(connection, view, reader=reader)
        return [ListedView(view, counts.get(view.schema_id)) for view in views]

    return node.views.database.read(work), _freshness(node, caller)


def _may_read(caller: Caller, schema_id: SchemaId) -> bool:
    try:
        caller.read_as(schema_id)
    except InkgroveError:
        return False
    return True


def _freshness(node: Node, caller: Caller) -> ViewProgress:
    _, offset = node.views.progress()
    behind = node.database.read(lambda connection: count_after(connection, offset, _COUNTED))
    return ViewProgress(
        behind == 0,
        None if caller.identity is None else render_position(node.vault, offset),
        behind if caller.sees_all else None,
    )


# Instances


def parse_instance(text: str) -> Hash:
    """Parse an instance id in an address; raises `view.unknown-instance`."""
    try:
        return parse_hash(text)
    except InkgroveError:
        raise ViewError("view.unknown-instance", "no such instance is here, or it may not be seen") from None


def find_row(node: Node, connection: Connection, caller: Caller, instance: Hash) -> tuple[View, ViewRow]:
    """Return the row of an instance, by a connection of the views; raises `view.unknown-instance`.

    An instance that others continue has none: then it is the row of the last of its line.
    """
    view = view_of_instance(connection, instance)
    reader = reader_on(connection, caller.identity, node.clock())
    row = None if view is None else read_row(connection, view, instance, reader)
    if view is not None and row is None:
        last = follow_lines(connection, view, [instance]).get(instance)
        row = None if last is None else read_row(connection, view, last, reader)
    if view is None or row is None:
        raise ViewError("view.unknown-instance", "no such instance is here, or it may not be seen")
    # Only who may see the row learns that a service lacks the right to read it.
    caller.read_as(view.schema_id, instance)
    return view, row


def show_instance(
    node: Node, asking: Caller | str | None, instance: Hash, *, at_once: bool = False
) -> tuple[View, ViewRow, Owner]:
    """Return an instance as it is now; arguments as of `query_view`. Raises `view.unknown-instance`."""

    def work(connection: Connection) -> tuple[View, ViewRow, Owner]:
        view, row = find_row(node, connection, _caller(node, connection, asking), instance)
        return view, row, owners_on(connection, [row.author])[row.author]

    database = node.views.database
    view, row, owner = database.read_at_once(work) if at_once else database.read(work)
    node.reads.add([(row.instance, row.author)])
    return view, row, owner


def row_document(row: ViewRow, owner: Owner) -> dict[str, Any]:
    """Return a row as JSON, as every reading route shows it."""
    return {
        "instance": row.instance.hex(),
        "author": row.author.hex(),
        "owner": {"id": owner.id.hex(), "fqdn": owner.fqdn},
        "log_id": row.log_id,
        "seq_num": row.seq_num,
        "last_seq_num": row.last_seq_num,
        "last_hash": row.last_hash.hex(),
        "fields": {name: value_to_json(value) for name, value in row.fields.items()},
        "access": None if row.access is None else access_to_json(row.access),
        "expires": None if row.expires is None else str(row.expires),
        "copied_from": None if row.copied_from is None else row.copied_from.hex(),
    }
