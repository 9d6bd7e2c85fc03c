"""Patterns: matched against the whole value by RE2, in linear time, whoever wrote them (docs/protocol.md section 4.7).

Never Python's `re` and never Spark's `rlike`: those backtrack, and read patterns differently. Each pattern has a
bounded memory, which decides whether it is valid, and so have all patterns of a version. How much is matched for one
message is bounded too (`Allowance`). Compiled patterns are cached in bounded memory; the predicates that this module
returns hold none of them, so they can be kept and pickled.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from threading import Lock
from time import sleep, thread_time
from typing import Any, Final, Generic, Protocol, TypeVar

import re2

from inkgrove.core.errors import BadPattern, TooManyPatterns
from inkgrove.core.limits import (
    LARGE_PATTERN_WEIGHT,
    MAX_LARGE_PATTERNS,
    MAX_LIGHT_PATTERN_CHARACTERS,
    MAX_MATCHING,
    MAX_PATTERNS,
    MAX_UNICODE_CLASSES,
    PATTERN_MEMORY_BYTES,
    SMALL_PATTERN_MEMORY_BYTES,
    SMALL_PATTERN_WEIGHT,
)
from inkgrove.schema.types import is_array

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[_Key, _Value]):
    """A cache of values that `make` can make again, bounded by their bytes and not their number; for any thread.

    When there is no room for a new one, others are dropped at random. If the least recently used were dropped, a caller
    who uses a few more in turns than there is room for would never find one; so most are still found.
    """

    def __init__(
        self, make: Callable[[_Key], tuple[_Value, int]], most_bytes: int, random: Random | None = None
    ) -> None:
        """`make` also says how many bytes the value takes at most."""
        self._make = make
        self._most_bytes = most_bytes
        self._random = random or Random()  # noqa: S311  (nothing is secret here)
        self._values: dict[_Key, _Value] = {}
        self._sizes: list[tuple[_Key, int]] = []
        """The keys with the bytes of their values, in no order."""
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bytes(self) -> int:
        """The bytes that all cached values take at most."""
        return self._bytes

    def find(self, key: _Key) -> _Value:
        """Return the value of a key, made now if it is not cached; raises what `make` raises, each time."""
        found = self._values.get(key)
        if found is not None:
            return found
        value, size = self._make(key)
        with self._lock:
            if key not in self._values and size <= self._most_bytes:
                while self._bytes + size > self._most_bytes:
                    self._drop_one()
                self._values[key] = value
                self._sizes.append((key, size))
                self._bytes += size
        return value

    def _drop_one(self) -> None:
        sizes = self._sizes
        chosen = self._random.randrange(len(sizes))
        sizes[chosen], sizes[-1] = sizes[-1], sizes[chosen]
        key, size = sizes.pop()
        del self._values[key]
        self._bytes -= size


_MIB: Final = 1024 * 1024
_KEPT_BYTES: Final = 64 * _MIB
"""For compiled patterns: about 2,000 small ones, or 250 of the largest."""
_KEPT_SET_BYTES: Final = 16 * _MIB
"""For sets of patterns."""
_KEPT_VERDICT_BYTES: Final = 8 * _MIB
"""For verdicts on patterns."""
_SMALL_SET_BYTES: Final = 16 * 1024
"""What the set gets that is made of a small pattern; one of several patterns is tried with so much first."""
_OBJECT_BYTES: Final = 2 * 1024
"""For the objects around a compiled pattern."""
_CLASS_BYTES: Final = 8 * 1024
"""For each Unicode class: RE2 keeps its ranges beside the program, and does not count them as memory of the pattern."""
_MATCHES_BEFORE_A_SET: Final = 4
"""A pattern that is matched more often gets a set, which costs as much to make as the pattern itself."""
_TOO_LARGE: Final = (
    f"; it needs more than its share of {PATTERN_MEMORY_BYTES // 1024} KiB: write + instead of counts such as {{1,64}}"
)


def _options(memory: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return options


_OPTIONS: Final = {
    size: _options(size) for size in (SMALL_PATTERN_MEMORY_BYTES, _SMALL_SET_BYTES, PATTERN_MEMORY_BYTES)
}


# Which patterns a version may have


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What RE2 says about a pattern."""

    is_large: bool
    fault: str | None = None


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise unless the fields of one version may have these patterns; equal ones are compiled once.

    At most `MAX_LARGE_PATTERNS` + 1 large ones are compiled before they are refused. The verdicts are cached, also that
    a pattern is invalid. Raises `TooManyPatterns` or `BadPattern`.
    """
    different = dict.fromkeys(patterns)
    if len(different) > MAX_PATTERNS:
        raise TooManyPatterns(
            f"the fields of a version have at most {MAX_PATTERNS} different patterns, not {len(different)}"
        )
    if sum(map(_count_classes, different)) > MAX_UNICODE_CLASSES:
        raise TooManyPatterns(
            f"the patterns of a version have together at most {MAX_UNICODE_CLASSES} Unicode classes (\\p and \\P)"
        )
    large, faults = 0, []
    for pattern in different:
        verdict = _verdicts.find(pattern)
        if verdict.fault is not None:
            faults.append(verdict.fault)
        large += verdict.is_large
        if large > MAX_LARGE_PATTERNS:
            raise TooManyPatterns(
                f"a version has at most {MAX_LARGE_PATTERNS} large patterns, for which RE2 needs more than"
                f" {SMALL_PATTERN_MEMORY_BYTES // 1024} KiB: write + instead of counts such as {{1,500}}"
            )
    if faults:
        raise BadPattern(faults[0])


def _count_classes(pattern: str) -> int:
    return pattern.count("\\p") + pattern.count("\\P")


def _make_verdict(pattern: str) -> tuple[_Verdict, int]:
    # RE2 compiles without letting other threads run, up to 20 ms for a pattern. So one thread compiles at a time, and
    # after each pattern all others have as long as that took: the node answers others half of the time.
    with _compiling:
        began = thread_time()
        try:
            verdict = _Verdict(_matchers.find(pattern).is_large)  # it is likely to be matched soon
        except BadPattern as err:
            verdict = _Verdict(is_large=False, fault=err.message)
        sleep(thread_time() - began)
    return verdict, 4 * len(pattern) + _OBJECT_BYTES // 4


_compiling: Final = Lock()


def _compile(pattern: str) -> tuple[Any, bool]:
    """Return the compiled pattern and whether it is large; raises `BadPattern`. A small one gets less memory."""
    try:
        return _compile_within(pattern, SMALL_PATTERN_MEMORY_BYTES), False
    except re2.error as err:
        if not _is_too_large(err):
            raise _bad_pattern(pattern, err) from err
    try:
        return _compile_within(pattern, PATTERN_MEMORY_BYTES), True
    except re2.error as err:
        raise _bad_pattern(pattern, err) from err


def _compile_within(pattern: str, memory: int) -> Any:
    return re2.compile(pattern, options=_OPTIONS[memory])


def _reason(err: Exception) -> str:
    reason = err.args[0] if err.args else "not supported"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _is_too_large(err: Exception) -> bool:
    return "too large" in _reason(err)


def _bad_pattern(pattern: str, err: Exception) -> BadPattern:
    hint = _TOO_LARGE if _is_too_large(err) else ""
    return BadPattern(f"the pattern {pattern!r:.120} is not valid: {_reason(err)}{hint}")


# Matching


class Allowance:
    """How much text the values of one message may still be matched against patterns."""

    __slots__ = ("_guessed", "_left")

    def __init__(self) -> None:
        self._left = MAX_MATCHING
        self._guessed: list[tuple[int, tuple[str, ...]]] = []
        """Sizes of texts with patterns that were assumed to be large; whether they are is checked if it matters."""

    def take(self, cost: int) -> bool:
        """Take so much, and return True; if that is not left, take nothing and return False."""
        if cost > self._left:
            self._correct_guesses()
        if cost > self._left:
            return False
        self._left -= cost
        return True

    def covers(self, size: int, patterns: tuple[str, ...]) -> bool:
        """Return whether enough is left to match a text of this size against all of these patterns."""
        most = size * LARGE_PATTERN_WEIGHT * len(patterns)
        if most > self._left:
            self._correct_guesses()
        return most <= self._left or size * _weigh_all(patterns) <= self._left

    def take_covered(self, size: int, patterns: tuple[str, ...]) -> None:
        """Take what `covers` has just said to be left."""
        self._left -= size * LARGE_PATTERN_WEIGHT * len(patterns)
        self._guessed.append((size, patterns))

    def _correct_guesses(self) -> None:
        for size, patterns in self._guessed:
            self._left += size * (LARGE_PATTERN_WEIGHT * len(patterns) - _weigh_all(patterns))
        self._guessed.clear()


class Matches(Protocol):
    """A function that says whether values that are not null match a pattern."""

    def __call__(self, value: Any, allowance: Allowance | None = None, /) -> bool:
        """Take what matching costs, and return whether the value matches; one that costs more than is left does not.

        Without an allowance there is as much as a message has.
        """


def make_validator(pattern: str, type_name: str) -> Matches:
    """Return a predicate over values of the type; of an array every element must match."""

    def check(value: Any, allowance: Allowance | None = None, /) -> bool:
        matches = _matcher(pattern)  # each time: what is not asked for long is not kept
        if not (allowance or Allowance()).take(_size(value) * _weigh(pattern, is_large=matches.is_large)):
            return False
        return all(map(matches, value)) if has_elements else matches(value)

    has_elements = is_array(type_name)
    return check


def make_quick_validator(patterns: Sequence[str], type_name: str) -> Matches:
    """Return a quick predicate over values of the type.

    Its yes says that the value matches every pattern, and takes what all cost; its no says nothing, and takes nothing.
    """

    def check(value: Any, allowance: Allowance | None = None, /) -> bool:
        allowance, size = allowance or Allowance(), _size(value)
        if not allowance.covers(size, wanted):
            return False
        passes = _find_set(wanted)
        is_matched = all(map(passes, value)) if has_elements else passes(value)
        if is_matched:
            allowance.take_covered(size, wanted)
        return is_matched

    wanted, has_elements = tuple(patterns), is_array(type_name)
    return check


def _size(value: str | Sequence[str]) -> int:
    """Count the bytes of a text in UTF-8, or of all texts of an array."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return sum(map(_size, value))


def _weigh_all(patterns: tuple[str, ...]) -> int:
    return sum(_weigh(pattern, is_large=_verdicts.find(pattern).is_large) for pattern in patterns)


def _weigh(pattern: str, *, is_large: bool) -> int:
    if is_large:
        return LARGE_PATTERN_WEIGHT
    is_light = len(pattern) <= MAX_LIGHT_PATTERN_CHARACTERS and "{" not in pattern
    return 1 if is_light else SMALL_PATTERN_WEIGHT


# Predicates find the caches of their own process by these functions: caches are never pickled with them.


def _matcher(pattern: str) -> "_Matcher":
    return _matchers.find(pattern)


def _find_set(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return _sets.find(patterns)


class _Matcher:
    """One pattern; if it is matched more than a few times, a set of it answers most questions."""

    __slots__ = ("_fullmatch", "_matched", "_passes", "_pattern", "is_large")

    def __init__(self, pattern: str) -> None:
        compiled, self.is_large = _compile(pattern)
        self._pattern = pattern
        self._fullmatch = compiled.fullmatch
        self._passes: Callable[[str], bool] | None = None
        self._matched = 0

    @property
    def set_memory(self) -> int:
        """What its set gets."""
        return PATTERN_MEMORY_BYTES if self.is_large else _SMALL_SET_BYTES

    def __call__(self, text: str) -> bool:
        if self._passes is None:
            self._matched += 1
            if self._matched > _MATCHES_BEFORE_A_SET:
                self._passes = _set_of((self._pattern,), self.set_memory) or _never
            return self._fullmatch(text) is not None
        return self._passes(text) or self._fullmatch(text) is not None


def _make_matcher(pattern: str) -> tuple[_Matcher, int]:
    made = _Matcher(pattern)
    memory = PATTERN_MEMORY_BYTES if made.is_large else SMALL_PATTERN_MEMORY_BYTES
    return made, memory + made.set_memory + _OBJECT_BYTES + _CLASS_BYTES * _count_classes(pattern)


def _make_set(patterns: tuple[str, ...]) -> tuple[Callable[[str], bool], int]:
    around = _OBJECT_BYTES + 4 * sum(map(len, patterns))
    for memory in (_SMALL_SET_BYTES, PATTERN_MEMORY_BYTES):
        passes = _set_of(patterns, memory)
        if passes is not None:
            return passes, memory + around
    return _never, around


def _set_of(patterns: tuple[str, ...], memory: int) -> Callable[[str], bool] | None:
    """Return a quick predicate as `make_quick_validator` has it, or None if the memory is too small for it.

    RE2's set matches any number of patterns in one pass, and ten times as fast as a match object is built. It may miss
    a match when its automaton outgrows its memory: so its no must be asked again.
    """
    together = re2.Set.FullMatchSet(_OPTIONS[memory])
    try:
        for pattern in patterns:
            together.Add(pattern)
        together.Compile()
    except re2.error:
        return None
    count = len(patterns)
    return lambda text: len(together.Match(text) or ()) == count


def _never(_text: str) -> bool:
    return False


_verdicts: Final[BoundedCache[str, _Verdict]] = BoundedCache(_make_verdict, _KEPT_VERDICT_BYTES)
_matchers: Final[BoundedCache[str, _Matcher]] = BoundedCache(_make_matcher, _KEPT_BYTES)
_sets: Final[BoundedCache[tuple[str, ...], Callable[[str], bool]]] = BoundedCache(_make_set, _KEPT_SET_BYTES)
