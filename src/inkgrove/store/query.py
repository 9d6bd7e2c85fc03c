"""Reading views: typed filters, sorting, pages that stay right while rows change; all in SQL with bound parameters.

docs/protocol.md section 6. Rows that went by cascade are left out here, and so are elements of lists whose target went.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    exists,
    func,
    literal,
    not_,
    null,
    or_,
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
from inkgrove.schema.types import CHECKS, MISFIT, is_array
from inkgrove.store.cells import cell_decoder, cell_encoder
from inkgrove.store.database import in_lists
from inkgrove.store.view_store import View, find_view
from inkgrove.store.view_tables import NOT_APPLIED, SORTABLE, deleted, gone, outcomes_of_none

Operator = Literal["eq", "ne", "lt", "lte", "gt", "gte", "in", "contains", "is-null"]


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field."""

    field: str
    operator: Operator
    value: Any


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
) -> Page:
    """One page of a view: `sort` are fields with whether they descend; ties are broken by the instance id.

    The next page starts behind the last row's own values: rows that come or go elsewhere neither repeat nor skip any.
    """
    if not view.is_built:
        return Page([], None)
    table = view.table()
    conditions = [_condition(view, table, item) for item in where]
    conditions += _not_gone(view, table)
    keys: list[tuple[ColumnElement[Any], bool]] = []
    for name, descends in sort:
        column = _column(view, table, name)
        # Null sorts first in one database and last in the other: say it.
        keys += [(column.is_(None), descends), (column, descends)]
    keys.append((table.c._instance, False))
    if after is not None:
        conditions.append(_behind(keys, after))
    order = [column.desc() if descends else column.asc() for column, descends in keys]
    query = select(table, *[column.label(f"key{n}") for n, (column, _) in enumerate(keys)])
    found = connection.execute(query.where(*conditions).order_by(*order).limit(limit + 1)).all()
    rows = _decode(connection, view, [dict(row._mapping) for row in found[:limit]])
    last = found[limit - 1] if len(found) > limit else None
    return Page(rows, None if last is None else tuple(getattr(last, f"key{n}") for n in range(len(keys))))


def read_all(connection: Connection, view: View, page: int = 5_000) -> Iterator[ViewRow]:
    """Every row of a view, page by page."""
    after = None
    while True:
        found = read_page(connection, view, limit=page, after=after)
        yield from found.rows
        if found.after is None:
            return
        after = found.after


def count_rows(connection: Connection, view: View) -> int:
    """How many rows a view has."""
    if not view.is_built:
        return 0
    table = view.table()
    return connection.scalar(select(func.count()).select_from(table).where(*_not_gone(view, table))) or 0


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


def _behind(keys: Sequence[tuple[ColumnElement[Any], bool]], after: tuple[Any, ...]) -> ColumnElement[bool]:
    """Later in the order than the given values."""
    choices = []
    for number, (column, descends) in enumerate(keys):
        same = [
            earlier.is_(None) if value is None else earlier == value
            for (earlier, _), value in zip(keys[:number], after, strict=False)
        ]
        value = after[number]
        if value is not None:
            choices.append(and_(*same, column < value if descends else column > value))
    return or_(*choices)


def _not_gone(view: View, table: Table) -> list[ColumnElement[bool]]:
    if not view.cascades:
        return []
    return [not_(exists().where(gone.c.view == view.id, gone.c.instance == table.c._instance))]


def _type_of(view: View, name: str) -> str:
    for field_name, type_name in view.fields:
        if field_name == name:
            return type_name
    names = ", ".join(field_name for field_name, _ in view.fields) or "none"
    raise BadFilter(f"the view has no field {name[:80]!r}; its fields are: {names}", field=name)


def _column(view: View, table: Table, name: str) -> ColumnElement[Any]:
    if name in SORTABLE:
        return table.c[name]
    _type_of(view, name)
    return table.c[name]


def _condition(view: View, table: Table, item: Filter) -> ColumnElement[bool]:
    type_name = _type_of(view, item.field)
    column: ColumnElement[Any] = table.c[item.field]
    if item.operator == "is-null":
        return column.is_(None) if item.value else column.is_not(None)
    if item.operator == "contains":
        if type_name not in ("varchar", "text") or not isinstance(item.value, str):
            raise BadFilter(f"contains looks for a text in a varchar or text, {item.field!r} is {type_name}")
        return column.contains(item.value, autoescape=True)
    if item.operator == "in":
        if not isinstance(item.value, list):
            raise BadFilter(f"in takes a list of values for {item.field!r}")
        return column.in_([_cell(type_name, item.field, value) for value in item.value])
    value = _cell(type_name, item.field, item.value)
    if item.operator not in ("eq", "ne") and (is_array(type_name) or type_name in ("blob", "boolean", "relation")):
        raise BadFilter(f"values of {type_name} have no order", field=item.field)
    comparisons: dict[str, ColumnElement[bool]] = {
        "eq": column == value,
        "ne": column != value,
        "lt": column < value,
        "lte": column <= value,
        "gt": column > value,
        "gte": column >= value,
    }
    return comparisons[item.operator]


def _cell(type_name: str, name: str, value: Any) -> Any:
    kept = CHECKS[type_name](value) if value is not None else MISFIT
    if kept is MISFIT:
        raise BadFilter(f"{value!r:.60} is no {type_name}, which {name!r} is", field=name)
    encode = cell_encoder(type_name)
    return kept if encode is None else encode(kept)


def _decode(connection: Connection, view: View, found: Sequence[Mapping[str, Any]]) -> list[ViewRow]:
    decoders = [(name, cell_decoder(type_name)) for name, type_name in view.fields]
    rows = []
    for row in found:
        fields = {name: None if row[name] is None else decode(row[name]) for name, decode in decoders}
        seq_nums = _seq_nums(row["_field_seq_nums"], row["_seq_num"], len(decoders))
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
                dict(zip((name for name, _ in view.fields), seq_nums, strict=True)),
                fields,
            )
        )
    lists = [(name, target) for name, target in view.cascades.items() if _type_of(view, name) == "relation[]"]
    for name, target in lists:
        _drop_lost_elements(connection, rows, name, target)
    return rows


def _seq_nums(text_of_list: str | None, create_seq: int, count: int) -> list[int]:
    return [create_seq] * count if text_of_list is None else json.loads(text_of_list)


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
    "OutcomeRow",
    "Page",
    "ViewRow",
    "count_outcomes",
    "count_rows",
    "read_all",
    "read_outcomes",
    "read_page",
]
