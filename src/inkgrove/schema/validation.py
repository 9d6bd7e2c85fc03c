"""Patterns: matched against the whole value by RE2, in linear time, whoever wrote them (docs/protocol.md section 4).

Never Python's `re` and never Spark's `rlike`: those backtrack, and read patterns differently.
"""

from collections.abc import Callable, Sequence
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
    return _over_elements(_matcher(pattern), type_name)


def sieve(patterns: Sequence[str], type_name: str) -> Check:
    """A quick predicate: its yes says that the value matches every pattern; its no says nothing."""
    return _over_elements(_sieve(tuple(patterns)), type_name)


def _over_elements(matches: Callable[[str], bool], type_name: str) -> Check:
    return matches if not is_array(type_name) else lambda value: all(map(matches, value))


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Callable[[str], bool]:
    fullmatch = compile_pattern(pattern).fullmatch
    passes = _sieve((pattern,))
    return lambda text: passes(text) or fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _sieve(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """RE2's set matches any number of patterns in one pass, and ten times as fast as a match object is built.

    It may miss a match when its automaton outgrows its memory: so its no must be asked again.
    """
    together = re2.Set.FullMatchSet(_OPTIONS)
    try:
        for pattern in patterns:
            together.Add(pattern)
        together.Compile()
    except re2.error:
        return lambda _text: False
    count = len(patterns)
    return lambda text: len(together.Match(text) or ()) == count
