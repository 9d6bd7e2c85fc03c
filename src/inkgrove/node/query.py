"""Reading views and instances on behalf of a caller (docs/protocol.md sections 6 and 8).

What may be seen is one condition of SQL (`store/views/access.py`), the same for lists, counts, relations and single
rows.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from inkgrove.core.errors import BadFilter, InkgroveError, QueryTooExpensive, TooManyQueries
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.core.keys import PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.node.caller import ANYBODY, Caller
from inkgrove.node.cursor import parse_cursor, render_cursor
from inkgrove.node.errors import ViewError
from inkgrove.node.expansion import Expansion, expand
from inkgrove.node.node import Node
from inkgrove.node.position import render_position
from inkgrove.node.schemas import Schemas, find_view_on
from inkgrove.node.sessions import authenticate_on
from inkgrove.schema.types import RELATION_TYPES
from inkgrove.store.logs import count_after
from inkgrove.store.views import (
    Filter,
    Owner,
    Reader,
    View,
    ViewRow,
    count_rows,
    find_newest_cursor,
    owners_on,
    parse_filter,
    read_page,
    read_row,
    read_views,
    reader_on,
    view_of,
    view_of_instance,
)

MAX_PAGE: Final = 1000
_COUNTED: Final = 10_000
_schemas: WeakKeyDictionary[Node, Schemas] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a view, as it stands in the address."""

    where: Sequence[str] = ()
    sort: Sequence[str] = ()
    limit: int = 50
    cursor: str | None = None
    fields: Sequence[str] | None = None
    expand: Sequence[str] = ()
    with_count: bool = False
    may_lack_count: bool = False
    """Whether a count that would cost too much is left out rather than refused."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A page of rows that the caller may see."""

    view: View
    rows: Sequence[ViewRow]
    expansion: Expansion | None
    """What the rows point to, if that was asked for."""
    cursor: str | None
    count: int | None
    changes: str
    """The place in the changes of the view that these rows are of."""
    owners: Mapping[PublicKey, Owner]
    """Of all these rows, by author."""


@dataclass(frozen=True, slots=True)
class ListedView:
    """A view as the list shows it."""

    view: View
    rows: int | None
    """How many the caller may see; None if nobody asked, a service may not read them, or to count costs too much."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the views have come."""

    is_current: bool
    position: str | None
    """For those who are signed in: the token that `at_least` takes."""
    behind: int | None
    """For administrators: how much they have not seen yet, 10,000 at most."""


def schemas_of(node: Node) -> Schemas:
    """The schemas that a node has folded."""
    return _schemas.setdefault(node, Schemas(node))


def ask(node: Node, asking: Caller | str | None, name: str, question: Question, *, at_once: bool = False) -> Answer:
    """A page of a view, by `AUTHOR/LOG` or name; `asking` is who asks, or their token. `at_once`: see `Database`."""

    def work(connection: Connection) -> Answer:
        caller = _caller(node, connection, asking)
        answer = None
        try:
            with node.limit_for(caller.identity).on(connection):
                view, reader, where, answer = _answer(node, connection, caller, name, question)
                if question.with_count:
                    # Last: where a count is refused, PostgreSQL answers nothing more.
                    answer = replace(answer, count=count_rows(connection, view, where=where, reader=reader))
        except (QueryTooExpensive, TooManyQueries):
            if answer is None or not question.may_lack_count:
                raise
        return answer

    database = node.views.database
    answer = database.read_at_once(work) if at_once else database.read(work)
    node.reads.add((row.instance, row.author) for row in answer.rows)
    return answer


def _answer(
    node: Node, connection: Connection, caller: Caller, name: str, question: Question
) -> tuple[View, Reader, list[Filter], Answer]:
    """The answer without a count, and what is to be counted."""
    view = find_view_on(connection, name)
    reader = reader_on(connection, caller.reader_of(view.schema_id), node.clock())
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
    changes = node.vault.hide(str(find_newest_cursor(connection, view, reader.now)))
    authors = {row.author for row in page.rows}
    if expansion is not None:
        authors |= expansion.authors()
    owners = owners_on(connection, authors)
    return view, reader, where, Answer(view, page.rows, expansion, cursor, None, changes, owners)


def _caller(node: Node, connection: Connection, asking: Caller | str | None) -> Caller:
    """Who asks: found in the very transaction that reads, so that a token which was revoked before reads nothing."""
    if isinstance(asking, Caller):
        return asking
    return ANYBODY if asking is None else authenticate_on(connection, node, asking)


def _parse_sort(texts: Sequence[str]) -> list[tuple[str, bool]]:
    sort = [(text.removeprefix("-"), text.startswith("-")) for text in texts]
    if len({name for name, _ in sort}) != len(sort) or len(sort) > 8:
        raise BadFilter("a view is sorted by at most eight columns, each named once")
    return sort


def _chosen(question: Question, types: Mapping[str, str]) -> set[str] | None:
    if question.fields is None:
        return None
    for name in question.fields:
        if name not in types:
            raise BadFilter(f"the view has no field {name[:80]!r}; its fields are: {', '.join(types)}", field=name[:80])
    return {*question.fields, *question.expand}


def _target(node: Node, connection: Connection, caller: Caller, view: View, field: str) -> View | None:
    """The view that a relation points into, if there is one; raises if the caller may not read it."""
    if dict(view.fields).get(field) not in RELATION_TYPES:
        raise BadFilter(f"{field[:80]!r} is no relation of this view", field=field[:80])
    target = relation_schema(node, view, field)
    if target is None:
        raise BadFilter(f"the relation {field!r} names no schema", field=field)
    caller.reader_of(target)
    return view_of(connection, target)


def relation_schema(node: Node, view: View, field: str) -> SchemaId | None:
    """The schema that a relation of a view points to, at the view's version."""
    schema = schemas_of(node).read(view.schema_id)
    if view.version > len(schema.versions):
        return None
    found = {item.name: item.schema for item in schema.version(view.version).fields}
    return found.get(field)


def list_views(node: Node, caller: Caller, *, with_count: bool) -> tuple[list[ListedView], Freshness]:
    """Every view of the node, and how far they have come."""

    def work(connection: Connection) -> list[ListedView]:
        reader = reader_on(connection, caller.identity, node.clock())
        views = list(read_views(connection).values())
        counts: dict[SchemaId, int] = {}
        if with_count:
            with suppress(QueryTooExpensive, TooManyQueries), node.limit_for(caller.identity).on(connection):
                for view in views:
                    if _may_read(caller, view.schema_id):
                        counts[view.schema_id] = count_rows(connection, view, reader=reader)
        return [ListedView(view, counts.get(view.schema_id)) for view in views]

    return node.views.database.read(work), _freshness(node, caller)


def _may_read(caller: Caller, schema_id: SchemaId) -> bool:
    try:
        caller.reader_of(schema_id)
    except InkgroveError:
        return False
    return True


def _freshness(node: Node, caller: Caller) -> Freshness:
    _, offset = node.views.progress()
    behind = node.database.read(lambda connection: count_after(connection, offset, _COUNTED))
    return Freshness(
        behind == 0,
        None if caller.identity is None else render_position(node.vault, offset),
        behind if caller.is_administrator and caller.grant is None else None,
    )


# Instances


def parse_instance(text: str) -> Hash:
    """An instance id in an address."""
    try:
        return parse_hash(text)
    except InkgroveError:
        raise ViewError("view.unknown-instance", "no such instance is here, or it may not be seen") from None


def find_row(node: Node, connection: Connection, caller: Caller, instance: Hash) -> tuple[View, ViewRow]:
    """The row of an instance, if the caller may see it; `connection` is one of the views."""
    view = view_of_instance(connection, instance)
    reader = reader_on(connection, caller.identity, node.clock())
    row = None if view is None else read_row(connection, view, instance, reader)
    if view is None or row is None:
        raise ViewError("view.unknown-instance", "no such instance is here, or it may not be seen")
    # Only who may see the row learns that a service lacks the right to read it.
    caller.reader_of(view.schema_id, instance)
    return view, row


def show_instance(
    node: Node, asking: Caller | str | None, instance: Hash, *, at_once: bool = False
) -> tuple[View, ViewRow, Owner]:
    """An instance as it is now; `asking` is who asks, or their token. `at_once`: see `Database`."""

    def work(connection: Connection) -> tuple[View, ViewRow, Owner]:
        view, row = find_row(node, connection, _caller(node, connection, asking), instance)
        return view, row, owners_on(connection, [row.author])[row.author]

    database = node.views.database
    view, row, owner = database.read_at_once(work) if at_once else database.read(work)
    node.reads.add([(row.instance, row.author)])
    return view, row, owner
