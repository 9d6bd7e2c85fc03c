"""Where the next page of a view starts, as a text that clients hand back: the last row's own values in the sort order.

It opens nothing: what may be seen is decided anew for every page. It is checked before it comes near the database.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.node.errors import BadCursor
from inkgrove.store.views import type_of

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
    """The cursor behind a row with these values."""
    cells = [{"hex": value.hex()} if isinstance(value, bytes) else value for value in values]
    return urlsafe_b64encode(json.dumps([list(sort), cells], separators=(",", ":")).encode()).decode().rstrip("=")


def parse_cursor(text: str, sort: Sort, types: Mapping[str, str]) -> tuple[Any, ...]:
    """The values of a cursor that was made for this sort order; raises `BadFilter` if there is no such column."""
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
