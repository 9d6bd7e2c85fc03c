"""Field types: which values fit, in which form they are kept, and how they convert (docs/protocol.md section 4).

A check returns the value in its kept form (an integer given for a float becomes one, -0.0 becomes 0.0, hex becomes
bytes) or `MISFIT`. A conversion returns a value of another type; for a pair of types that is not in the table, or a
value that does not convert, `MISFIT`.
"""

import re
from binascii import unhexlify
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from inkgrove.core import Hash, is_hash
from inkgrove.core.errors import BadTimestamp
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS, MAX_INSTANCE_ID_BYTES, MAX_STORED_INTEGER, MAX_VARCHAR_CHARACTERS
from inkgrove.messages import Timestamp, parse_timestamp, render_timestamp


class Misfit(Enum):
    """The result of a check or conversion for a value that does not fit."""

    MISFIT = "misfit"


MISFIT: Final = Misfit.MISFIT
Check = Callable[[Any], Any]

# White space as section 4.9 lists it: what `\s` means is another thing in other languages and versions.
_PART_OF_MEDIA_TYPE = r"[^/\x09-\x0d\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
_MEDIA_TYPE = re.compile(f"{_PART_OF_MEDIA_TYPE}/{_PART_OF_MEDIA_TYPE}")
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**63 - 1


def check_varchar(value: Any) -> Any:
    return value if type(value) is str and len(value) <= MAX_VARCHAR_CHARACTERS else MISFIT


def check_text(value: Any) -> Any:
    return value if type(value) is str else MISFIT


def check_integer(value: Any) -> Any:
    return value if type(value) is int and _LEAST_INTEGER <= value <= _MOST_INTEGER else MISFIT


def check_float(value: Any) -> Any:
    if type(value) is float:
        return value + 0.0  # -0.0 becomes 0.0, everything else stays
    if type(value) is not int:
        return MISFIT
    try:
        exact = float(value)
    except OverflowError:  # no message holds such a number, but JSON does
        return MISFIT
    return exact if int(exact) == value else MISFIT


def check_boolean(value: Any) -> Any:
    return value if type(value) is bool else MISFIT


def check_timestamp(value: Any) -> Any:
    if type(value) is Timestamp:
        return value
    if type(value) is not str:
        return MISFIT
    try:
        return parse_timestamp(value)
    except BadTimestamp:
        return MISFIT


def check_relation(value: Any) -> Any:
    content = _bytes_or_hex(value)
    return Hash(content) if content is not None and 1 <= len(content) <= MAX_INSTANCE_ID_BYTES else MISFIT


def check_blob(value: Any) -> Any:
    if type(value) is not dict or value.keys() != {"hash", "size", "type"}:
        return MISFIT
    content, size, media_type = _bytes_or_hex(value["hash"]), value["size"], value["type"]
    if content is None or not is_hash(content):
        return MISFIT
    if type(size) is not int or not 0 <= size <= MAX_STORED_INTEGER:
        return MISFIT
    if type(media_type) is not str or len(media_type) > MAX_VARCHAR_CHARACTERS or not _MEDIA_TYPE.fullmatch(media_type):
        return MISFIT
    return {"hash": Hash(content), "size": size, "type": media_type}


def _bytes_or_hex(value: Any) -> bytes | None:
    if type(value) is str:
        try:
            return unhexlify(value)
        except ValueError:
            return None
    return value if isinstance(value, bytes) else None


def _array_of(check: Check) -> Check:
    def check_array(value: Any) -> Any:
        if type(value) is not list or len(value) > MAX_ARRAY_ELEMENTS:
            return MISFIT
        elements = [check(element) for element in value]
        return MISFIT if MISFIT in elements else elements

    return check_array


_SCALARS: Final[dict[str, Check]] = {
    "varchar": check_varchar,
    "text": check_text,
    "integer": check_integer,
    "float": check_float,
    "boolean": check_boolean,
    "timestamp": check_timestamp,
    "relation": check_relation,
    "blob": check_blob,
}
CHECKS: Final[dict[str, Check]] = {
    **_SCALARS,
    **{f"{name}[]": _array_of(check) for name, check in _SCALARS.items()},
}
"""The check of each type, arrays included. Null is not checked: it fits everywhere."""

RELATION_TYPES: Final = frozenset({"relation", "relation[]"})
VALIDATED_TYPES: Final = frozenset({"varchar", "text", "varchar[]", "text[]"})


def is_array(type_name: str) -> bool:
    """Whether the type is an array."""
    return type_name.endswith("[]")


def element_of(type_name: str) -> str:
    """The type of an array's elements, or the type itself."""
    return type_name.removesuffix("[]")


# Conversions

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


def find_conversion(before: str, after: str) -> Check:
    """Return the function that converts a value, which is not null, from one type to another."""
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
