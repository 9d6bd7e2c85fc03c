"""The conversion table: what becomes of a value when its field changes type (docs/protocol.md section 4, conversion).

Every value on its own; a pair of types that is not in the table, or a value that does not convert, is a `MISFIT`.
"""

import re
from typing import Any, Final

from inkgrove.messages.timestamp import render_timestamp
from inkgrove.schema.types import (
    MISFIT,
    Check,
    check_float,
    check_integer,
    check_timestamp,
    check_varchar,
    element_of,
    is_array,
)

_INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_MOST_INTEGER_CHARACTERS = 20  # keeps the length of what int() reads in bounds
_BOOLEANS = {"true": True, "false": False}


def _text_to_integer(value: str) -> Any:
    if len(value) > _MOST_INTEGER_CHARACTERS or not _INTEGER_TEXT.fullmatch(value):
        return MISFIT
    return check_integer(int(value))


def _float_to_integer(value: float) -> Any:
    return check_integer(int(value)) if value.is_integer() else MISFIT


CONVERSIONS: Final[dict[tuple[str, str], Check]] = {
    ("integer", "text"): str,
    ("text", "integer"): _text_to_integer,
    ("integer", "float"): check_float,
    ("float", "integer"): _float_to_integer,
    ("boolean", "text"): lambda value: "true" if value else "false",
    ("text", "boolean"): lambda value: _BOOLEANS.get(value, MISFIT),
    ("timestamp", "text"): render_timestamp,
    ("text", "timestamp"): check_timestamp,
    ("varchar", "text"): lambda value: value,
    ("text", "varchar"): check_varchar,
}


def conversion(before: str, after: str) -> Check:
    """The function that carries a value, which is not null, from one type to another."""
    if before == after:
        return _keep
    if is_array(before) and is_array(after):
        return _each(CONVERSIONS.get((element_of(before), element_of(after)), _misfit))
    if after == f"{before}[]":
        return _wrap
    if before == f"{after}[]":
        return _unwrap
    return CONVERSIONS.get((before, after), _misfit)


def _keep(value: Any) -> Any:
    return value


def _misfit(_value: Any) -> Any:
    return MISFIT


def _wrap(value: Any) -> Any:
    return [value]


def _unwrap(value: Any) -> Any:
    return value[0] if len(value) == 1 else MISFIT


def _each(convert: Check) -> Check:
    def convert_each(value: Any) -> Any:
        elements = [convert(element) for element in value]
        return MISFIT if MISFIT in elements else elements

    return convert_each
