"""Reads rows of views: pages with typed filters and sorting that stay right while rows change, single rows, counts.

docs/protocol.md section 6. Only visible rows are read, and elements of lists are left out whose target is gone.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Table, bindparam, func, select

from inkgrove.core import Hash, PublicKey
from inkgrove.core.errors import BadFilter
from inkgrove.messages import Access, Timestamp, access_from_json
from inkgrove.schema import is_array
from inkgrove.store.db.connection import Compiled, in_lists
from inkgrove.store.views.access import Reader, ReaderKind, visible_rows
from inkgrove.store.views.catalog import View
from inkgrove.store.views.filters import (
    Condition,
    Filter,
    SortKey,
    build_conditions,
    build_order,
    is_after_row,
    split_filters,
    type_of,
)
from inkgrove.store.views.tables import ROW_COLUMNS, cell_decoder, deleted, gone, is_text, rows_of

_BARE_ROW: Final = 1_000
"""About how many bytes a row has in an answer beside its values."""
_CACHED_QUERIES: Final = 256
"""How many different queries of a kind are kept as text: strangers can ask any number."""
_ACCESS: Final = ROW_COLUMNS.index("_access")


@dataclass(slots=True)  # not frozen: that takes three times as long to make, and a page makes many
class ViewRow:
    """A row of a view, with the entries it came from."""

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
class RowPage:
    """Rows of a view in order."""

    rows: list[ViewRow]
    keys: list[Sequence[Any]]
    """What each row is sorted by, as the driver gave it."""
    is_last: bool
    kinds: Sequence[type | None] = ()
    """What to make of the keys: SQLite's driver gives numbers for booleans."""

    @property
    def after(self) -> tuple[Any, ...] | None:
        """Where the next page starts; None at the end."""
        return None if self.is_last else (*map(_as, self.kinds, self.keys[-1]), self.keys[-1][-1])

    def cut(self, count: int) -> "RowPage":
        """The page with the first rows only."""
        return self if count >= len(self.rows) else RowPage(self.rows[:count], self.keys[:count], False, self.kinds)


class _QueryShape(NamedTuple):
    """A query of a view without its values: all queries of one shape share one prepared statement."""

    view: int
    generation: int
    fields: tuple[tuple[str, str], ...]
    cascading: int | None
    where: tuple[Condition, ...]
    reader: ReaderKind | None
    """None: every row is shown."""

    def table(self) -> Table:
        return rows_of(self.view, self.generation, self.fields)

    def conditions(self, table: Table) -> list[ColumnElement[bool]]:
        return [*build_conditions(table, self.where), *visible_rows(table, self.cascading, self.reader)]


def _split_query(
    connection: Connection, view: View, where: Sequence[Filter], reader: Reader | None
) -> tuple[_QueryShape, dict[str, Any]]:
    conditions, parameters = split_filters(dict(view.fields), where, connection.dialect.name)
    if reader is not None:
        parameters |= reader.parameters()
    kind = None if reader is None else reader.kind
    return _QueryShape(view.id, view.generation, view.fields, view.cascading, conditions, kind), parameters


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
    most_bytes: int | None = None,
) -> RowPage:
    """One page of a view: `sort` are columns with whether they descend; ties are broken by the instance id.

    The next page starts behind the last row's own values: rows that come or go elsewhere neither repeat nor skip any.
    Without a `reader` every row is shown; `only` chooses fields. A page ends before it has more than about
    `most_bytes`, but not before its first row.
    """
    if not view.is_built:
        return RowPage([], [], is_last=True)
    types = dict(view.fields)
    for name, _ in sort:
        if (type_name := type_of(types, name)) == "blob" or is_array(type_name):
            raise BadFilter(f"values of {type_name} have no order", field=name)
    shape, parameters = _split_query(connection, view, where, reader)
    fields = tuple((name, kind) for name, kind in view.fields if only is None or name in only)
    nulls: _CursorNulls = None
    if after is not None:
        nulls = tuple(value is None for value in after)
        parameters |= {f"after{number}": value for number, value in enumerate(after) if value is not None}
    found: list[Any] = []
    size, is_last = 0, True
    start = len(ROW_COLUMNS) + len(fields)
    long = [_ACCESS, *(len(ROW_COLUMNS) + n for n, (_, kind) in enumerate(fields) if is_text(kind))]
    for part in page_queries(shape, tuple(sort), nulls, fields):
        with part.reading(connection, limit=limit + 1 - len(found), **parameters) as rows_of_part:
            for row in rows_of_part:
                if most_bytes is not None:
                    size += _BARE_ROW
                    for number in long:
                        if row[number] is not None:
                            size += len(row[number])
                if len(found) == limit or (found and most_bytes is not None and size > most_bytes):
                    is_last = False
                    break
                found.append(row)
        if not is_last:
            break
    kinds = [bool if type_of(types, name) == "boolean" else None for name, _ in sort]
    return RowPage(_decode(connection, view, found, fields), [row[start:] for row in found], is_last, kinds)


def weight_of(row: ViewRow) -> int:
    """About how many bytes a row has in an answer."""
    to = 0 if row.access is None else len(row.access.to)
    return _BARE_ROW + 64 * to + sum(map(_weight, row.fields.values()))


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, bytes):
        return 2 * len(value)
    if isinstance(value, Mapping):
        return sum(map(_weight, value.values()))
    return sum(map(_weight, value)) if isinstance(value, Sequence) else 0


def _as(kind: type | None, value: Any) -> Any:
    return value if kind is None or value is None else kind(value)


_Sort = tuple[tuple[str, bool], ...]
_CursorNulls = tuple[bool, ...] | None
"""Which values of the cursor that a page starts behind are null; None for the first page."""


@lru_cache(maxsize=_CACHED_QUERIES)
def page_queries(
    shape: _QueryShape, sort: _Sort, after: _CursorNulls, fields: tuple[tuple[str, str], ...]
) -> list[Compiled]:
    """The queries for a page in the order in which they are to be run."""

    def part(number: int) -> Compiled:
        # Built when it is compiled, and not kept: the text is a hundredth of it.
        return Compiled(lambda _: list(_build_page(shape, sort, after, fields))[number])

    return [part(number) for number, _ in enumerate(_build_page(shape, sort, after, fields))]


def _build_page(
    shape: _QueryShape, sort: _Sort, after: _CursorNulls, fields: tuple[tuple[str, str], ...]
) -> Iterator[Select[Any]]:
    table, types = shape.table(), dict(shape.fields)
    keys = [SortKey(table.c[name], descends, name in types) for name, descends in sort]
    keys.append(SortKey(table.c._instance, keys[-1].descends if keys else False, may_be_null=False))
    columns = [table.c[name] for name in (*ROW_COLUMNS, *(name for name, _ in fields))]
    query = select(*columns, *[key.column.label(f"key{n}") for n, key in enumerate(keys)])
    query = query.where(*shape.conditions(table)).limit(bindparam("limit", type_=BigInteger))
    never_null = {item.field for item in shape.where if item.operator != "is-null"}
    cursor = None
    if after is not None:
        names = enumerate(zip(after, keys, strict=True))
        cursor = [None if no else bindparam(f"after{n}", type_=key.column.type) for n, (no, key) in names]
    return _parts(query, keys, cursor, never_null)


def _parts(
    query: Select[Any], keys: list[SortKey], after: Sequence[Any] | None, never_null: Collection[str]
) -> Iterator[Select[Any]]:
    """The rows behind a cursor in their order, as one query or as two: those with null in the first column apart.

    An index then leads to the cursor in either database, wherever it sorts nulls.
    """
    first, rest = keys[0], keys[1:]
    if not first.may_be_null or first.column.key in never_null:
        sure = [first._replace(may_be_null=False), *rest]
        part = query if after is None else query.where(is_after_row(sure, after))
        yield part.order_by(*build_order(sure))
        return
    for is_null in (False, True) if first.descends else (True, False):
        own = rest if is_null else [first._replace(may_be_null=False), *rest]
        part = query.where(first.column.is_(None) if is_null else first.column.is_not(None)).order_by(*build_order(own))
        if after is None:
            yield part
        elif (after[0] is None) == is_null:
            yield part.where(is_after_row(own, after[1:] if is_null else after))
            after = None


def read_row(connection: Connection, view: View, instance: Hash, reader: Reader | None = None) -> ViewRow | None:
    """One row by its instance, if it is there and may be seen."""
    if not view.is_built:
        return None
    shape, parameters = _split_query(connection, view, (), reader)
    rows = _decode(connection, view, _row_query(shape).rows(connection, instance=instance, **parameters), view.fields)
    return rows[0] if rows else None


@lru_cache(maxsize=1024)
def _row_query(shape: _QueryShape) -> Compiled:
    def build(_: Connection) -> Select[Any]:
        table = shape.table()
        return select(*_columns(table)).where(table.c._instance == bindparam("instance"), *shape.conditions(table))

    return Compiled(build)


def read_rows(
    connection: Connection, view: View, instances: Collection[Hash], reader: Reader | None = None
) -> list[ViewRow]:
    """The rows of some instances, as far as they are there and may be seen."""
    if not view.is_built or not instances:
        return []
    shape, parameters = _split_query(connection, view, (), reader)
    table = view.table()
    query = select(*_columns(table)).where(*shape.conditions(table))
    found: list[Any] = []
    for some in in_lists(instances):
        found += connection.execute(query.where(table.c._instance.in_(some)), parameters).all()
    return _decode(connection, view, found, view.fields)


def _columns(table: Table) -> list[ColumnElement[Any]]:
    """All columns, in the order in which they are decoded."""
    return [*(table.c[name] for name in ROW_COLUMNS), *(c for c in table.c if c.name not in ROW_COLUMNS)]


def read_all_rows(connection: Connection, view: View, page: int = 5_000) -> Iterator[ViewRow]:
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
    shape, parameters = _split_query(connection, view, where, reader)
    row = _count_query(shape).first(connection, **parameters)
    return int(row[0])


@lru_cache(maxsize=_CACHED_QUERIES)
def _count_query(shape: _QueryShape) -> Compiled:
    def build(_: Connection) -> Select[Any]:
        table = shape.table()
        return select(func.count()).select_from(table).where(*shape.conditions(table))

    return Compiled(build)


def _decode(
    connection: Connection, view: View, found: Sequence[Sequence[Any]], chosen: Sequence[tuple[str, str]]
) -> list[ViewRow]:
    """Rows from their cells: `ROW_COLUMNS`, then the chosen fields, then whatever else."""
    first = len(ROW_COLUMNS)
    end = first + len(chosen)
    chosen_names = [name for name, _ in chosen]
    decoders = [(name, decode) for name, kind in chosen if (decode := cell_decoder(kind)) is not None]
    names, rows = [name for name, _ in view.fields], []
    for row in found:
        instance, author, log_id, seq_num, last_seq_num, last_hash, access, expires, copied_from, seq_nums = row[:10]
        fields = dict(zip(chosen_names, row[first:end], strict=True))
        for name, decode in decoders:
            if (cell := fields[name]) is not None:
                fields[name] = decode(cell)
        if seq_nums is None:
            sources = dict.fromkeys(fields, seq_num)
        else:
            numbers = zip(names, json.loads(seq_nums), strict=True)
            sources = {name: number for name, number in numbers if name in fields}
        rows.append(
            ViewRow(
                Hash(instance),
                PublicKey(author),
                log_id,
                seq_num,
                last_seq_num,
                Hash(last_hash or instance),
                _access(access),
                None if expires is None else Timestamp(expires),
                None if copied_from is None else Hash(copied_from),
                sources,
                fields,
            )
        )
    drop_lost_elements(connection, view, rows, dict(chosen))
    return rows


def decode_rows(connection: Connection, view: View, found: Sequence[Mapping[str, Any]]) -> list[ViewRow]:
    """Rows from all their cells, without elements of lists whose target is gone."""
    names = (*ROW_COLUMNS, *(name for name, _ in view.fields))
    return _decode(connection, view, [[row[name] for name in names] for row in found], view.fields)


def drop_lost_elements(connection: Connection, view: View, rows: Sequence[ViewRow], chosen: Mapping[str, str]) -> None:
    """Remove those elements from cascading lists whose target was deleted or is gone."""
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


@lru_cache(maxsize=1024)
def _access(text: str | None) -> Access | None:
    return None if text is None else access_from_json(json.loads(text))
