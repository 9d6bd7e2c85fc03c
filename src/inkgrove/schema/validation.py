"""Patterns: matched against the whole value by RE2, in linear time, whoever wrote them (docs/protocol.md section 4).

Never Python's `re` and never Spark's `rlike`: those backtrack, and read patterns differently.
"""

from functools import lru_cache
from typing import Any

import re2

from inkgrove.core.errors import BadPattern
from inkgrove.schema.types import Check, is_array

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """The compiled pattern, or `BadPattern` for one that RE2 does not support."""
    try:
        return re2.compile(pattern, options=_OPTIONS)
    except re2.error as err:
        reason = err.args[0] if err.args else "not supported"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(f"the pattern {pattern!r:.120} is not valid: {text}") from err


def validator(pattern: str, type_name: str) -> Check:
    """A predicate over values of the type that are not null; of an array every element must match."""
    fullmatch = compile_pattern(pattern).fullmatch
    if is_array(type_name):
        return lambda value: all(fullmatch(element) is not None for element in value)
    return lambda value: fullmatch(value) is not None
