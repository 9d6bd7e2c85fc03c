"""Reading views: typed filters, sorting, pages that stay right while rows change; all in SQL with bound parameters.

docs/protocol.md section 6. Rows that went by cascade are left out here, and so are elements of lists whose target went.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    exists,
    func,
    literal,
    not_,
    null,
    select,
    text,
    union_all,
)

from inkgrove.core.errors import BadFilter
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.messages.instance import Access
from inkgrove.messages.outcomes import MEANINGS, Outcome, OutcomeCode
from inkgrove.messages.timestamp import Timestamp
from inkgrove.schema.types import is_array
from inkgrove.store.cells import cell_decoder
from inkgrove.store.database import in_lists
from inkgrove.store.filters import Filter, Key, Operator, condition, is_behind, order_of, type_of
from inkgrove.store.view_store import View, find_view
from inkgrove.store.view_tables import NOT_APPLIED, ROW_COLUMNS, deleted, gone, outcomes_of_none
from inkgrove.store.visibility import Reader


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A row of a view, with where it came from."""

    instance: Hash
    author: PublicKey
    log_id: int
    seq_num: int
    last_seq_num: int
    last_hash: Hash
    access: Access | None
    expires: Timestamp | None
    copied_from: Hash | None
    field_seq_nums: dict[str, int]
    """The entry behind each value."""
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and where the next page starts; None at the end."""

    rows: list[ViewRow]
    after: tuple[Any, ...] | None


def read_page(
    connection: Connection,
    view: View,
    *,
    where: Sequence[Filter] = (),
    sort: Sequence[tuple[str, bool]] = (),
    limit: int = 100,
    after: tuple[Any, ...] | None = None,
    reader: Reader | None = None,
    only: Collection[str] | None = None,
) -> Page:
    """One page of a view: `sort` are columns with whether they descend; ties are broken by the instance id.

    The next page starts behind the last row's own values: rows that come or go elsewhere neither repeat nor skip any.
    Without a `reader` every row is shown; `only` chooses fields.
    """
    if not view.is_built:
        return Page([], None)
    table, types = view.table(), dict(view.fields)
    conditions = _conditions(view, table, where, reader)
    for name, _ in sort:
        if (type_name := type_of(types, name)) == "blob" or is_array(type_name):
            raise BadFilter(f"values of {type_name} have no order", field=name)
    keys = [Key(table.c[name], descends, name in types) for name, descends in sort]
    keys.append(Key(table.c._instance, keys[-1].descends if keys else False, may_be_null=False))
    fields = [(name, kind) for name, kind in view.fields if only is None or name in only]
    columns = [table.c[name] for name in (*ROW_COLUMNS, *(name for name, _ in fields))]
    query = select(*columns, *[key.column.label(f"key{n}") for n, key in enumerate(keys)]).where(*conditions)
    never_null = {item.field for item in where if item.operator != "is-null"}
    found: list[Any] = []
    for part in _parts(query, keys, after, never_null):
        found += connection.execute(part.limit(limit + 1 - len(found))).all()
        if len(found) > limit:
            break
    rows = _decode(connection, view, [row._mapping for row in found[:limit]], fields)
    last = found[limit - 1] if len(found) > limit else None
    return Page(rows, None if last is None else tuple(getattr(last, f"key{n}") for n in range(len(keys))))


def _parts(
    query: Select[Any], keys: list[Key], after: tuple[Any, ...] | None, never_null: Collection[str]
) -> Iterator[Select[Any]]:
    """The rows behind a place in their order, as one query or as two: those without a value in the first column apart.

    An index then leads to the place in either database, whatever it thinks of nulls.
    """
    first, rest = keys[0], keys[1:]
    if not first.may_be_null or first.column.key in never_null:
        sure = [first._replace(may_be_null=False), *rest]
        part = query if after is None else query.where(is_behind(sure, after))
        yield part.order_by(*order_of(sure))
        return
    for is_null in (False, True) if first.descends else (True, False):
        own = rest if is_null else [first._replace(may_be_null=False), *rest]
        part = query.where(first.column.is_(None) if is_null else first.column.is_not(None)).order_by(*order_of(own))
        if after is None:
            yield part
        elif (after[0] is None) == is_null:
            yield part.where(is_behind(own, after[1:] if is_null else after))
            after = None


def read_row(connection: Connection, view: View, instance: Hash, reader: Reader | None = None) -> ViewRow | None:
    """One row by its instance, if it is there and may be seen."""
    rows = read_rows(connection, view, [instance], reader)
    return rows[0] if rows else None


def read_rows(
    connection: Connection, view: View, instances: Collection[Hash], reader: Reader | None = None
) -> list[ViewRow]:
    """The rows of some instances, as far as they are there and may be seen."""
    if not view.is_built or not instances:
        return []
    table = view.table()
    conditions = _conditions(view, table, (), reader)
    found: list[Any] = []
    for some in in_lists(instances):
        found += connection.execute(select(table).where(table.c._instance.in_(some), *conditions)).all()
    return _decode(connection, view, [row._mapping for row in found], view.fields)


def _conditions(view: View, table: Table, where: Sequence[Filter], reader: Reader | None) -> list[ColumnElement[bool]]:
    types = dict(view.fields)
    conditions = [condition(table, types, item) for item in where] + not_gone(view, table)
    return conditions if reader is None else [*conditions, reader.sees(table)]


def read_all(connection: Connection, view: View, page: int = 5_000) -> Iterator[ViewRow]:
    """Every row of a view, page by page."""
    after = None
    while True:
        found = read_page(connection, view, limit=page, after=after)
        yield from found.rows
        if found.after is None:
            return
        after = found.after


def count_rows(
    connection: Connection, view: View, *, where: Sequence[Filter] = (), reader: Reader | None = None
) -> int:
    """How many rows a view has, or how many of them the reader sees."""
    if not view.is_built:
        return 0
    table = view.table()
    query = select(func.count()).select_from(table).where(*_conditions(view, table, where, reader))
    return connection.scalar(query) or 0


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What became of a message."""

    author: PublicKey
    log_id: int
    seq_num: int
    hash: Hash
    outcome: str
    code: str
    reason: str


def read_outcomes(connection: Connection, view: int | None, limit: int, only: str | None = None) -> list[OutcomeRow]:
    """What became of the messages of a view, log by log; None for those of no schema."""
    selects: list[Select[Any]] = []
    for table, is_rows in _tables_of_outcomes(connection, view):
        if is_rows:
            if only not in (None, Outcome.APPLIED.value):
                continue
            place = (table.c._log.label("log"), table.c._seq_num.label("seq_num"), table.c._instance.label("hash"))
            applied = (literal(Outcome.APPLIED.value), literal(OutcomeCode.APPLIED.code), null())
            selects.append(select(*place, table.c._author, table.c._log_id, *applied))
            continue
        query = select(table)
        if only is not None:
            query = query.where(table.c.outcome == only)
        if only not in (None, Outcome.APPLIED.value):
            query = query.where(text(NOT_APPLIED))  # lets the database use the small index
        selects.append(query)
    if not selects:
        return []
    both = union_all(*selects) if len(selects) > 1 else selects[0]
    found = connection.execute(both.order_by(text("log"), text("seq_num"), text("hash")).limit(limit))
    return [
        OutcomeRow(
            PublicKey(author), log_id, seq_num, Hash(entry_hash), outcome, code, reason or MEANINGS.get(code, "")
        )
        for _, seq_num, entry_hash, author, log_id, outcome, code, reason in found
    ]


def count_outcomes(connection: Connection, view: int | None) -> dict[str, int]:
    """How many messages of a view had each outcome."""
    counts: Counter[str] = Counter()
    for table, is_rows in _tables_of_outcomes(connection, view):
        if is_rows:
            counts[Outcome.APPLIED.value] += connection.scalar(select(func.count()).select_from(table)) or 0
            continue
        for outcome, count in connection.execute(select(table.c.outcome, func.count()).group_by(table.c.outcome)):
            counts[outcome] += count
    return {outcome: count for outcome, count in counts.items() if count}


def _tables_of_outcomes(connection: Connection, number: int | None) -> list[tuple[Table, bool]]:
    """Where outcomes are found, each with whether it is the rows, which are the outcomes of their creates."""
    if number is None:
        return [(outcomes_of_none, False)]
    view = find_view(connection, number)
    if view is None or not view.is_built:
        return []
    return [(view.outcomes(), False), (view.table(), True)]


def not_gone(view: View, table: FromClause) -> list[ColumnElement[bool]]:
    """The condition that a row did not go by cascade, if rows of the view can."""
    if not view.cascades:
        return []
    return [not_(exists().where(gone.c.view == view.id, gone.c.instance == table.c._instance))]


def _decode(
    connection: Connection, view: View, found: Sequence[Mapping[str, Any]], chosen: Sequence[tuple[str, str]]
) -> list[ViewRow]:
    decoders = [(name, cell_decoder(type_name)) for name, type_name in chosen]
    names = [name for name, _ in view.fields]
    rows = []
    for row in found:
        fields = {name: None if row[name] is None else decode(row[name]) for name, decode in decoders}
        seq_nums = _seq_nums(row["_field_seq_nums"], row["_seq_num"], len(names))
        rows.append(
            ViewRow(
                Hash(row["_instance"]),
                PublicKey(row["_author"]),
                row["_log_id"],
                row["_seq_num"],
                row["_last_seq_num"],
                Hash(row["_last_hash"] or row["_instance"]),
                _access(row["_access"]),
                None if row["_expires"] is None else Timestamp(row["_expires"]),
                None if row["_copied_from"] is None else Hash(row["_copied_from"]),
                {name: seq_num for name, seq_num in zip(names, seq_nums, strict=True) if name in fields},
                fields,
            )
        )
    drop_lost_elements(connection, view, rows, dict(chosen))
    return rows


def _seq_nums(text_of_list: str | None, create_seq: int, count: int) -> list[int]:
    return [create_seq] * count if text_of_list is None else json.loads(text_of_list)


def decode_rows(connection: Connection, view: View, found: Sequence[Mapping[str, Any]]) -> list[ViewRow]:
    """Rows from all their cells, elements of lists left out whose target went."""
    return _decode(connection, view, found, view.fields)


def drop_lost_elements(connection: Connection, view: View, rows: Sequence[ViewRow], chosen: Mapping[str, str]) -> None:
    """Take those elements out of cascading lists whose target was deleted or went."""
    for name, target in view.cascades.items():
        if chosen.get(name) == "relation[]":
            _drop_lost_elements(connection, rows, name, target)


def _drop_lost_elements(connection: Connection, rows: Sequence[ViewRow], name: str, target: int) -> None:
    named = {element for row in rows for element in row.fields[name] or ()}
    lost: set[bytes] = set()
    for some in in_lists(named):
        for table in (deleted, gone):
            query = select(table.c.instance).where(table.c.view == target, table.c.instance.in_(some))
            lost.update(connection.scalars(query))
    for row in rows:
        if row.fields[name]:
            row.fields[name] = [element for element in row.fields[name] if element not in lost]


def _access(text: str | None) -> Access | None:
    if text is None:
        return None
    value = json.loads(text)
    return Access(value["mode"], tuple(IdentityId.fromhex(to) for to in value["to"]))


__all__ = [
    "Filter",
    "Operator",
    "OutcomeRow",
    "Page",
    "ViewRow",
    "count_outcomes",
    "count_rows",
    "decode_rows",
    "drop_lost_elements",
    "not_gone",
    "read_all",
    "read_outcomes",
    "read_page",
    "read_row",
    "read_rows",
]
