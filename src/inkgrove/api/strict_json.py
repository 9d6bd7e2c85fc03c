"""JSON bodies as RFC 8259 has them, and no others: what every route may rely on.

Python's own reader takes NaN, lets the last of two keys win, makes infinity of 1e999 and hands on half surrogates,
which nothing behind can store.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from inkgrove.node.errors import BadJson, TooComplex

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 250_000
"""More than any request needs; as empty lists they would take twenty times the memory of the body."""
MAX_MEMBERS: Final = 1024
"""Of one object: a message has 256 fields at most. Each unknown one would be an error of its own to the framework."""
MAX_DIGITS: Final = 40
"""Of an integer: no field holds one of more than 20, and to read a long one takes the square of its length."""
FEW_VALUES: Final = 4096
"""More than any body needs whose form the framework checks; see `check_media_type`."""


def check_json(body: bytes) -> int:
    """Raise unless the body is one strict JSON value, bounded in depth, values and members; how many values, about.

    The number is exact if it is above `FEW_VALUES`.
    """
    return parse_json(body)[1]


def parse_json(body: bytes) -> tuple[Any, int]:
    """Return the value of a body that `check_json` takes, and how many values it has; raises what that raises."""
    values = body.count(b",") + body.count(b"[") + body.count(b"{")  # more than there are, if texts have such signs
    if values > MAX_VALUES:
        raise TooComplex(f"the body has more than {MAX_VALUES:,} values")
    try:
        value = _decoder.decode(body.decode())
    except UnicodeDecodeError as err:
        raise BadJson(f"the body is not UTF-8 at byte {err.start}") from err
    except json.JSONDecodeError as err:
        raise BadJson(f"the body is not JSON: {err.msg} at line {err.lineno}, column {err.colno}") from err
    except RecursionError:
        raise _too_deep() from None
    # Only these can be in it: brackets enough to be too deep, escapes that spell what UTF-8 cannot.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH or b"\\u" in body:
        _walk(value)
    return value, values if values <= FEW_VALUES else _count(value)


def _count(value: Any) -> int:
    level, count = [value], 0
    while level:
        count += len(level)
        level = [below for item in level if isinstance(item, dict | list) for below in _parts(item)]
    return count


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _walk(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                _check_text(item)
        if depth > MAX_DEPTH and any(isinstance(item, dict | list) for item in level):
            raise _too_deep()
        level = below


def _check_text(text: str) -> None:
    if "\0" in text:
        raise BadJson("a text in the body contains U+0000")
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise BadJson("a text in the body contains half of a surrogate pair") from err


def _too_deep() -> TooComplex:
    return TooComplex(f"the body is nested more than {MAX_DEPTH} deep")


def _make_map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_MEMBERS:
        raise TooComplex(f"an object in the body has more than {MAX_MEMBERS:,} members")
    made = dict(pairs)
    if len(made) != len(pairs):
        # Counted in one pass: who sends the body is not known yet.
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadJson(f"the key {twice[:80]!r} stands twice in one object")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")


def _make_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadJson(f"the number {text[:40]} is out of range")
    return value


def _make_integer(text: str) -> int:
    if len(text) > MAX_DIGITS and len(text.lstrip("-")) > MAX_DIGITS:
        raise TooComplex(f"an integer in the body has more than {MAX_DIGITS} digits")
    return int(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_make_map, parse_constant=_refuse_constant, parse_float=_make_float, parse_int=_make_integer
)
