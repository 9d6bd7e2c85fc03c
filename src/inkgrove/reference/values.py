"""Field types: which values fit one, which match a validation, and how a value becomes one of another type.

docs/protocol.md section 4, "Values" and "Conversion"; the limits are those of section 10.
"""

import re
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Final

import re2

from inkgrove.core import Hash, is_hash
from inkgrove.core.errors import BadTimestamp, BadValue
from inkgrove.core.limits import (
    LARGE_PATTERN_WEIGHT,
    MAX_ARRAY_ELEMENTS,
    MAX_INSTANCE_ID_BYTES,
    MAX_LIGHT_PATTERN_CHARACTERS,
    MAX_MATCHING,
    MAX_STORED_INTEGER,
    MAX_VARCHAR_CHARACTERS,
    PATTERN_MEMORY_BYTES,
    SMALL_PATTERN_MEMORY_BYTES,
    SMALL_PATTERN_WEIGHT,
)
from inkgrove.messages import Timestamp, parse_timestamp, read_bytes_or_hex, render_timestamp
from inkgrove.messages.cbor import Value

_SCALARS: Final = ("varchar", "text", "integer", "float", "boolean", "timestamp", "relation", "blob")
FIELD_TYPES: Final = frozenset(_SCALARS) | {f"{scalar}[]" for scalar in _SCALARS}
TYPES_WITH_VALIDATION: Final = frozenset({"varchar", "text", "varchar[]", "text[]"})
RELATION_TYPES: Final = frozenset({"relation", "relation[]"})

_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**63 - 1
_INTEGER_TEXT = re.compile(r"-?(0|[1-9][0-9]*)")
_LONGEST_INTEGER_TEXT = len(str(_LEAST_INTEGER))
_WHITE_SPACE = frozenset(
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


class Unfit(Enum):
    """The result for a value that does not fit a type."""

    UNFIT = "unfit"


UNFIT: Final = Unfit.UNFIT


def fit(value: Value, field_type: str) -> Value | Unfit:
    """Return the value in the one form that the type has for it, or `UNFIT`; null fits every type."""
    if value is None:
        return None
    if not field_type.endswith("[]"):
        return _fit_scalar(value, field_type)
    if type(value) is not list or len(value) > MAX_ARRAY_ELEMENTS:
        return UNFIT
    elements: list[Value] = []
    for item in value:
        element = _fit_scalar(item, field_type.removesuffix("[]"))
        if element is UNFIT:
            return UNFIT
        elements.append(element)
    return elements


def _fit_scalar(value: Value, field_type: str) -> Value | Unfit:
    if field_type == "varchar":
        return value if type(value) is str and len(value) <= MAX_VARCHAR_CHARACTERS else UNFIT
    if field_type == "text":
        return value if type(value) is str else UNFIT
    if field_type == "integer":
        return value if type(value) is int and _LEAST_INTEGER <= value <= _GREATEST_INTEGER else UNFIT
    if field_type == "float":
        if type(value) is int:
            return _exact_float(value)
        if type(value) is not float:
            return UNFIT
        return 0.0 if value == 0 else value
    if field_type == "boolean":
        return value if type(value) is bool else UNFIT
    if field_type == "timestamp":
        if type(value) is str:
            return _timestamp_of_text(value)
        return value if type(value) is Timestamp else UNFIT
    if field_type == "relation":
        return _bytes_of(value)
    return _fit_blob(value)


def _fit_blob(value: Value) -> Value | Unfit:
    if type(value) is not dict or value.keys() != {"hash", "size", "type"}:
        return UNFIT
    content_hash, size, media_type = _bytes_of(value["hash"]), value["size"], value["type"]
    if not isinstance(content_hash, Hash) or not is_hash(content_hash):
        return UNFIT
    if type(size) is not int or not 0 <= size <= MAX_STORED_INTEGER:
        return UNFIT
    if type(media_type) is not str or not _is_media_type(media_type):
        return UNFIT
    return {"hash": content_hash, "size": size, "type": media_type}


def _is_media_type(text: str) -> bool:
    parts = text.split("/")
    return len(text) <= 255 and len(parts) == 2 and all(parts) and _WHITE_SPACE.isdisjoint(text)


def _bytes_of(value: Value) -> Hash | Unfit:
    try:
        return Hash(read_bytes_or_hex(value, "relation", 1, MAX_INSTANCE_ID_BYTES))
    except BadValue:
        return UNFIT


def _exact_float(value: int) -> float | Unfit:
    # The greatest float; a greater integer cannot be asked for its float at all.
    if abs(value) > int(sys.float_info.max):
        return UNFIT
    return float(value) if int(float(value)) == value else UNFIT


def _timestamp_of_text(text: str) -> Timestamp | Unfit:
    try:
        return parse_timestamp(text)
    except BadTimestamp:
        return UNFIT


def is_pattern(validation: str) -> bool:
    """Whether RE2 takes it as a regular expression, with the memory that a pattern gets."""
    return _is_taken(validation, PATTERN_MEMORY_BYTES)


def is_large_pattern(validation: str) -> bool:
    """Whether RE2 would not take the pattern with the memory that is enough for a small one."""
    return not _is_taken(validation, SMALL_PATTERN_MEMORY_BYTES)


def _is_taken(validation: str, memory: int) -> bool:
    try:
        re2.compile(validation, _re2_options(memory))
    except re2.error:
        return False
    return True


@dataclass(slots=True)
class ReferenceAllowance:
    """How much the values of one message may still cost to match."""

    left: int = MAX_MATCHING


def matches(value: Value, validation: str | None, allowance: ReferenceAllowance) -> bool:
    """Whether the whole text, or each text of an array, matches; null is not matched at all.

    What matching costs is taken from the allowance; if it costs more than is left, the value does not match.
    """
    if value is None or validation is None:
        return True
    pattern = re2.compile(validation, _re2_options(PATTERN_MEMORY_BYTES))
    texts = value if isinstance(value, list) else [value]
    cost = sum(len(str(text).encode()) for text in texts) * _weight(validation)
    if cost > allowance.left:
        return False
    allowance.left -= cost
    return all(pattern.fullmatch(text) is not None for text in texts)


def _weight(validation: str) -> int:
    if is_large_pattern(validation):
        return LARGE_PATTERN_WEIGHT
    if len(validation) > MAX_LIGHT_PATTERN_CHARACTERS or "{" in validation:
        return SMALL_PATTERN_WEIGHT
    return 1


def _re2_options(memory: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return options


def convert(value: Value, old_type: str, new_type: str) -> Value | Unfit:
    """Return a value of one type as a value of another, or `UNFIT`."""
    if value is None or old_type == new_type:
        return value
    old_scalar, new_scalar = old_type.removesuffix("[]"), new_type.removesuffix("[]")
    was_array, is_array = old_type.endswith("[]"), new_type.endswith("[]")
    if was_array and is_array:
        elements: list[Value] = []
        for item in _elements(value):
            element = _convert_scalar(item, old_scalar, new_scalar)
            if element is UNFIT:
                return UNFIT
            elements.append(element)
        return elements
    if is_array:
        return [value] if old_scalar == new_scalar else UNFIT
    if was_array:
        return _elements(value)[0] if old_scalar == new_scalar and len(_elements(value)) == 1 else UNFIT
    return _convert_scalar(value, old_type, new_type)


def _elements(value: Value) -> list[Value]:
    assert isinstance(value, list)
    return value


def _convert_scalar(value: Value, old_type: str, new_type: str) -> Value | Unfit:
    if old_type == new_type:
        return value
    conversion = (old_type, new_type)
    if conversion == ("integer", "text"):
        return str(value)
    if conversion == ("text", "integer"):
        return _integer_of_text(str(value))
    if conversion == ("integer", "float") and isinstance(value, int):
        return _exact_float(value)
    if conversion == ("float", "integer") and isinstance(value, float):
        return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else UNFIT
    if conversion == ("boolean", "text"):
        return "true" if value is True else "false"
    if conversion == ("text", "boolean"):
        return value == "true" if value in ("true", "false") else UNFIT
    if conversion == ("timestamp", "text") and isinstance(value, Timestamp):
        return render_timestamp(value)
    if conversion == ("text", "timestamp"):
        return _timestamp_of_text(str(value))
    if conversion == ("varchar", "text"):
        return value
    if conversion == ("text", "varchar"):
        return value if len(str(value)) <= MAX_VARCHAR_CHARACTERS else UNFIT
    return UNFIT


def _integer_of_text(text: str) -> int | Unfit:
    # The length comes first: Python itself refuses to read a number of thousands of digits.
    if len(text) > _LONGEST_INTEGER_TEXT or text == "-0" or not _INTEGER_TEXT.fullmatch(text):
        return UNFIT
    number = int(text)
    return number if _LEAST_INTEGER <= number <= _GREATEST_INTEGER else UNFIT
