"""Conditions on rows: typed filters, from text or values, as SQL with bound parameters; the order of rows and pages.

docs/protocol.md section 6. A comparison with null is never true, whatever the operator; `is-null` asks for it.
"""

import json
import operator as operators
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, get_args

from sqlalchemy import ColumnElement, Double, FromClause, LargeBinary, Text, and_, bindparam, false, or_, tuple_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from inkgrove.core.errors import BadFilter
from inkgrove.schema import CHECKS, MISFIT, is_array
from inkgrove.store.views.tables import cell_encoder

Operator = Literal["eq", "ne", "lt", "lte", "gt", "gte", "in", "contains", "is-null"]
OPERATORS: Final[dict[str, Operator]] = {name: name for name in get_args(Operator)}
Types = Mapping[str, str]
"""The type of each column that can be asked about."""

OWN_COLUMNS: Final[Types] = {
    "_instance": "relation",
    "_author": "relation",
    "_log_id": "integer",
    "_seq_num": "integer",
    "_last_seq_num": "integer",
}
"""What every view has beside its fields."""

MAX_VALUES: Final = 1000
"""How many values the filters of one question have, all together."""
MAX_CONDITIONS_OF_FIELD: Final = 8
"""How many filters of one question are about one field: SQLite reads a long value anew for each of them."""
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operators.eq,
    "ne": operators.ne,
    "lt": operators.lt,
    "lte": operators.le,
    "gt": operators.gt,
    "gte": operators.ge,
}
SQLITE_FROM_HEX: Final = {LargeBinary: "inkgrove_bytes", Double: "inkgrove_float"}
"""Functions that `Database` gives SQLite, by the type of the column that is compared."""
_UNORDERED: Final = ("blob", "boolean", "relation")


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field."""

    field: str
    operator: Operator
    value: Any


def parse_filter(text: str, types: Types) -> Filter:
    """A filter from `FIELD:OPERATOR:VALUE`; values of `in` are separated by commas, or a JSON list.

    Raises BadFilter.
    """
    name, _, rest = text.partition(":")
    operator, colon, value = rest.partition(":")
    if not colon or operator not in OPERATORS:
        raise BadFilter(f"{text[:80]!r} is not FIELD:OPERATOR:VALUE; operators are {', '.join(OPERATORS)}")
    return make_filter(name, OPERATORS[operator], value, types)


def make_filter(name: str, operator: Operator, text: str, types: Types) -> Filter:
    """A filter whose value is given as people type it; raises BadFilter."""
    type_name = type_of(types, name)
    if operator == "is-null":
        if text not in ("true", "false"):
            raise BadFilter("is-null is true or false", field=name)
        return Filter(name, operator, text == "true")
    if operator == "in":
        values = (
            _parse_json(text, name) if text.startswith("[") else [_parse(item, type_name) for item in text.split(",")]
        )
        return Filter(name, operator, values)
    return Filter(name, operator, _parse(text, type_name))


def _parse(text: str, type_name: str) -> object:
    """A value as JSON would give it; what does not fit stays text, and is refused when it is checked."""
    try:
        if type_name == "integer" and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit():
            return int(text) if len(text) <= 20 else text
        if type_name == "float":
            return float(text)
        if type_name == "boolean":
            return {"true": True, "false": False}.get(text, text)
        if is_array(type_name) or type_name == "blob":
            return json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text


def _parse_json(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise BadFilter(f"the list of values for {name!r} is not JSON", field=name) from err


def type_of(types: Types, name: str) -> str:
    """The type of a column; raises BadFilter if there is none of this name."""
    found = types.get(name) or OWN_COLUMNS.get(name)
    if found is None:
        names = ", ".join(types) or "none"
        raise BadFilter(f"the view has no field {name[:80]!r}; its fields are: {names}", field=name[:80])
    return found


class _Holds(FunctionElement[bool]):
    """Whether a text holds another, letter by letter; SQLite's LIKE would take upper for lower case."""

    inherit_cache = True
    name = "holds"


@compiles(_Holds, "sqlite")
def _sqlite_holds(element: Any, compiler: Any, **options: Any) -> str:
    return f"(instr({compiler.process(element.clauses, **options)}) > 0)"


@compiles(_Holds, "postgresql")
def _postgresql_holds(element: Any, compiler: Any, **options: Any) -> str:
    return f"(strpos({compiler.process(element.clauses, **options)}) > 0)"


class _IsAmong(FunctionElement[bool]):
    """Whether a column has one of the values of a list, which is one parameter: see `list_parameter`."""

    inherit_cache = True
    name = "is_among"


@compiles(_IsAmong, "sqlite")
def _sqlite_is_among(element: Any, compiler: Any, **options: Any) -> str:
    column, given = element.clauses
    # JSON has no bytes, and SQLite does not read every float exactly: both come as hex.
    of_hex = next((name for kind, name in SQLITE_FROM_HEX.items() if isinstance(column.type, kind)), "")
    value = f"{of_hex}(value)" if of_hex else "value"
    column, given = (compiler.process(part, **options) for part in (column, given))
    return f"({column} IN (SELECT {value} FROM json_each({given})))"


@compiles(_IsAmong, "postgresql")
def _postgresql_is_among(element: Any, compiler: Any, **options: Any) -> str:
    column, given = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} = ANY ({given}))"


def is_among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether a column has one of the values of the parameter `name`, which `list_parameter` makes.

    However many values there are, the query is the same.
    """
    return _IsAmong(column, bindparam(name, type_=Text().with_variant(ARRAY(column.type), "postgresql")))


def list_parameter(dialect: str, cells: Sequence[Any]) -> Any:
    """The cells of one column as the parameter of `is_among`."""
    if dialect == "postgresql":
        return list(cells)
    hexed = [cell.hex() if isinstance(cell, bytes | float) else cell for cell in cells]
    return json.dumps(hexed, ensure_ascii=False)


def _is_list(item: Filter) -> bool:
    return item.operator == "in" and isinstance(item.value, list)


def cells_of(types: Types, item: Filter) -> list[Any]:
    """The values of a filter as the database compares them, none for `is-null`; raises BadFilter."""
    type_name = type_of(types, item.field)
    if item.operator == "is-null":
        return []
    if item.operator == "contains":
        if type_name not in ("varchar", "text"):
            raise BadFilter(f"contains looks for a text in a varchar or text, {item.field!r} is {type_name}")
        return [_cell("text", item.field, item.value)]
    if item.operator == "in":
        if not _is_list(item):
            raise BadFilter(f"in takes a list of values for {item.field!r}", field=item.field)
        return [_cell(type_name, item.field, value) for value in item.value]
    value = _cell(type_name, item.field, item.value)
    if item.operator not in ("eq", "ne") and (is_array(type_name) or type_name in _UNORDERED):
        raise BadFilter(f"values of {type_name} have no order", field=item.field)
    return [value]


class Condition(NamedTuple):
    """A filter without its values."""

    field: str
    operator: Operator
    is_wanted: bool = True
    """Of `is-null` what it asks for."""

    def on(self, rows: FromClause, name: str) -> ColumnElement[bool]:
        """The condition on the rows of a view; its parameter, if it has one, is called `name`."""
        column: ColumnElement[Any] = rows.c[self.field]
        if self.operator == "is-null":
            return column.is_(None) if self.is_wanted else column.is_not(None)
        if self.operator == "in":
            return is_among(column, name)
        given = bindparam(name, type_=column.type)
        if self.operator == "contains":
            return _Holds(column, given)
        compared: ColumnElement[bool] = _COMPARISONS[self.operator](column, given)
        return compared


def split_filters(types: Types, where: Sequence[Filter], dialect: str) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """Conditions for `build_conditions`, and their values as parameters; raises BadFilter."""
    if sum(len(item.value) if _is_list(item) else 1 for item in where) > MAX_VALUES:
        raise BadFilter(f"a question has at most {MAX_VALUES} values in all its filters: ask in parts")
    _, most = Counter(item.field for item in where).most_common(1)[0] if where else ("", 0)
    if most > MAX_CONDITIONS_OF_FIELD:
        raise BadFilter(f"a question has at most {MAX_CONDITIONS_OF_FIELD} conditions on one field: ask in parts")
    conditions, parameters = [], {}
    for number, item in enumerate(where):
        cells = cells_of(types, item)
        conditions.append(Condition(item.field, item.operator, item.operator != "is-null" or bool(item.value)))
        if item.operator == "in":
            parameters[f"where{number}"] = list_parameter(dialect, cells)
        elif cells:
            parameters[f"where{number}"] = cells[0]
    return tuple(conditions), parameters


def build_conditions(rows: FromClause, conditions: Sequence[Condition]) -> list[ColumnElement[bool]]:
    """The conditions on the rows of a view, with the parameters that `split_filters` names."""
    return [condition.on(rows, f"where{number}") for number, condition in enumerate(conditions)]


def _cell(type_name: str, name: str, value: Any) -> Any:
    kept = CHECKS[type_name](value) if value is not None and _is_storable(value) else MISFIT
    if kept is MISFIT:
        raise BadFilter(f"{value!r:.60} is no {type_name}, which {name!r} is", field=name)
    encode = cell_encoder(type_name)
    return kept if encode is None else encode(kept)


def _is_storable(value: Any) -> bool:
    """Whether a database takes the value: what no message can hold, no row has."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list):
        return all(_is_storable(item) for item in value)
    if isinstance(value, dict):
        return all(_is_storable(key) and _is_storable(item) for key, item in value.items())
    return True


# Order


class SortKey(NamedTuple):
    """A column that rows are sorted by."""

    column: ColumnElement[Any]
    descends: bool
    may_be_null: bool


def build_order(keys: Sequence[SortKey]) -> list[ColumnElement[Any]]:
    """The terms of ORDER BY; null is the least of all values, which only one of the databases does by itself."""
    order: list[ColumnElement[Any]] = []
    for column, descends, may_be_null in keys:
        term = column.desc() if descends else column.asc()
        if may_be_null:
            term = term.nulls_last() if descends else term.nulls_first()
        order.append(term)
    return order


def is_after_row(keys: Sequence[SortKey], values: Sequence[Any]) -> ColumnElement[bool]:
    """Later in the order of the keys than a row with these values: parameters, or None for null."""
    first = keys[0]
    if len({key.descends for key in keys}) == 1 and not any(key.may_be_null for key in keys):
        # As one comparison of tuples an index leads straight to the row.
        columns, given = tuple_(*(key.column for key in keys)), tuple_(*values)
        return columns < given if first.descends else columns > given
    choices = []
    for number, key in enumerate(keys):
        same = [_is(earlier.column, value) for earlier, value in zip(keys[:number], values, strict=False)]
        choices.append(and_(*same, _is_beyond(key, values[number])))
    later = or_(*choices)
    if first.may_be_null:
        return later
    return and_(first.column <= values[0] if first.descends else first.column >= values[0], later)


def _is(column: ColumnElement[Any], value: Any) -> ColumnElement[bool]:
    return column.is_(None) if value is None else column == value


def _is_beyond(key: SortKey, value: Any) -> ColumnElement[bool]:
    if value is None:
        return false() if key.descends else key.column.is_not(None)
    return or_(key.column < value, key.column.is_(None)) if key.descends else key.column > value
