"""Patterns in great numbers: how often they are compiled, what is kept of them, and how many a version may have."""

from collections import Counter
from itertools import pairwise
from random import Random
from threading import Thread
from time import sleep

import pytest
import re2
from pyspark import cloudpickle

from inkgrove.core.errors import BadPattern, TooManyPatterns
from inkgrove.core.limits import MAX_FIELDS, MAX_LARGE_PATTERNS, MAX_PATTERNS, MAX_UNICODE_CLASSES
from inkgrove.reference import is_large_pattern
from inkgrove.schema import BoundedCache, check_patterns, make_quick_validator, make_validator, patterns_of, validation
from tests.unit.schema.test_schema import META, migration, schema_of

SMALL = [f"word[0-9]{{2}}-{number}" for number in range(2 * MAX_FIELDS)]
LARGE = [f"(?s)x{number}.{{1,480}}" for number in range(400)]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each pattern has been compiled, be it in a set; nothing is kept at first."""
    counted: Counter[str] = Counter()
    compile_one, full_match_set = re2.compile, re2.Set.FullMatchSet

    def compile_counted(pattern: str, options: object = None) -> object:
        counted[pattern] += 1
        return compile_one(pattern, options=options)

    class CountedSet:
        """A set that says what is added to it."""

        @staticmethod
        def FullMatchSet(options: object) -> object:  # noqa: N802
            return CountedSet(full_match_set(options))

        def __init__(self, made: object) -> None:
            self._made = made

        def Add(self, pattern: str) -> None:  # noqa: N802
            counted[pattern] += 1
            self._made.Add(pattern)  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self._made, name)

    monkeypatch.setattr(re2, "compile", compile_counted)
    monkeypatch.setattr(re2, "Set", CountedSet)
    for name, make, most_bytes in (
        ("_verdicts", validation._make_verdict, validation._KEPT_VERDICT_BYTES),
        ("_matchers", validation._make_matcher, validation._KEPT_BYTES),
        ("_sets", validation._make_set, validation._KEPT_SET_BYTES),
    ):
        monkeypatch.setattr(validation, name, BoundedCache(make, most_bytes, Random(7)))
    return counted


# What is kept compiled


def test_patterns_of_several_schemas_in_turns_are_compiled_once(compiled: Counter[str]) -> None:
    """As many as two schemas of 256 fields have: more than 256 patterns, which used to be the most that were kept."""
    checks = [make_validator(pattern, "text") for pattern in SMALL]
    for _ in range(20):
        for number, matches in enumerate(checks):
            assert matches(f"word12-{number}")
            assert not matches("word")
    assert len(compiled) == len(SMALL)
    assert max(compiled.values()) <= 2  # by itself, and as a set


def test_turns_of_more_large_patterns_than_there_is_room_for_still_find_most(compiled: Counter[str]) -> None:
    checks = [make_validator(pattern, "text") for pattern in LARGE]
    room = validation._KEPT_BYTES // (2 * 128 * 1024)
    used = checks[: room * 6 // 5]
    for _ in range(3):
        for matches in used:
            matches("x")
    before = compiled.total()
    rounds = 10
    for _ in range(rounds):
        for matches in used:
            matches("x")
    # A large pattern is compiled twice, first with too little memory: if none were found, it would be 2 for each use.
    assert compiled.total() - before < rounds * len(used)
    assert validation._matchers.bytes <= validation._KEPT_BYTES


def test_sets_of_patterns_in_turns_are_made_once(compiled: Counter[str]) -> None:
    sieves = [make_quick_validator([first, second], "text") for first, second in pairwise(SMALL[:300])]
    for _ in range(5):
        for passes in sieves:
            passes("word12-0")
    assert max(compiled.values()) <= 2  # each pattern stands in two sets


def test_pattern_that_is_matched_now_and_then_gets_no_set(compiled: Counter[str]) -> None:
    check_patterns([SMALL[0]])
    assert make_validator(SMALL[0], "text")("word12-0")
    assert compiled == {SMALL[0]: 1}


def test_kept_things_are_bounded_by_bytes_and_the_next_always_fits() -> None:
    made: list[int] = []

    def make(key: int) -> tuple[str, int]:
        made.append(key)
        return f"value {key}", key

    kept = BoundedCache(make, 100, Random(1))
    for key in (10, 20, 30, 40, 50, 60, 10, 100, 5):
        assert kept.find(key) == f"value {key}"
        assert kept.bytes <= 100
        assert kept.find(key) == f"value {key}"
    count = len(made)
    assert kept.find(101) == "value 101"
    assert kept.find(101) == "value 101"
    assert made[count:] == [101, 101]  # what never fits is made each time, and takes no other's place
    assert len(kept) > 0


def test_predicates_can_be_sent_to_other_processes() -> None:
    for made in (make_validator("a+", "text"), make_quick_validator(["a+", ".*"], "text")):
        assert made("aa")
        sent = cloudpickle.loads(cloudpickle.dumps(made))
        assert sent("aa")
        assert not sent("b")


# What a version may have


def fields(patterns: list[str]) -> str:
    return migration(
        ", ".join(
            f"f{n}: {{action: create, type: text, validation: '{pattern}'}}" for n, pattern in enumerate(patterns)
        )
    )


def classes(count: int) -> list[str]:
    """Patterns with so many Unicode classes together, of which all are small."""
    sizes = [30] * (count // 30) + [count % 30]
    return [f"{number}[" + r"\pZ" * size + "]" for number, size in enumerate(sizes) if size]


@pytest.mark.parametrize(
    ("most", "over"),
    [
        (SMALL[:MAX_PATTERNS], SMALL[: MAX_PATTERNS + 1]),
        (LARGE[:MAX_LARGE_PATTERNS], LARGE[: MAX_LARGE_PATTERNS + 1]),
        (classes(MAX_UNICODE_CLASSES), classes(MAX_UNICODE_CLASSES + 1)),
        (SMALL[:1] * MAX_FIELDS, LARGE),
    ],
    ids=["patterns", "large-patterns", "unicode-classes", "equal-patterns"],
)
def test_patterns_of_a_version_are_bounded_together(most: list[str], over: list[str]) -> None:
    assert schema_of(META, fields(most)).stopped_by is None
    stopped = schema_of(META, fields(over[:MAX_FIELDS])).stopped_by
    assert stopped is not None
    assert stopped.code == "schema.too-many-patterns"


def test_what_is_too_much_is_refused_before_it_is_compiled(compiled: Counter[str]) -> None:
    for patterns in (SMALL[: MAX_PATTERNS + 1], classes(MAX_UNICODE_CLASSES + 1)):
        with pytest.raises(TooManyPatterns):
            check_patterns(patterns)
    assert not compiled
    with pytest.raises(TooManyPatterns):
        check_patterns(LARGE[:MAX_PATTERNS])
    assert len(compiled) == MAX_LARGE_PATTERNS + 1


def test_one_thread_compiles_at_a_time_and_pauses_after_each_pattern(
    compiled: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RE2 does not let other threads run while it compiles: they wait for one pattern, not for several."""
    counted_compile, under_way, most = re2.compile, 0, 0
    pauses: list[float] = []

    def compile_slowly(pattern: str, options: object = None) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        sleep(0.002)  # now another thread could begin
        under_way -= 1
        return counted_compile(pattern, options=options)

    monkeypatch.setattr(re2, "compile", compile_slowly)
    monkeypatch.setattr(validation, "sleep", pauses.append)
    threads = [Thread(target=check_patterns, args=(SMALL[start : start + 10],)) for start in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled.total() == 40
    assert most == 1
    assert len(pauses) == 40
    assert min(pauses) > 0


def test_too_many_fields_are_counted_before_a_pattern_is_compiled(compiled: Counter[str]) -> None:
    stopped = schema_of(META, fields(SMALL[:MAX_PATTERNS] * 3)).stopped_by
    assert stopped is not None
    assert stopped.code == "schema.too-many-fields"
    assert not compiled


def test_fields_are_counted_as_the_migration_leaves_them() -> None:
    full = fields(["x"] * MAX_FIELDS)
    assert schema_of(META, full, migration("f0: {action: remove}, g: {action: create, type: text}")).stopped_by is None
    swapped = schema_of(META, full, migration("g: {action: create, type: text}, f0: {action: remove}"))
    assert swapped.stopped_by is None
    over = schema_of(META, full, migration("g: {action: create, type: text}")).stopped_by
    assert over is not None
    assert over.code == "schema.too-many-fields"


def test_patterns_are_compiled_once_however_often_a_schema_is_folded(compiled: Counter[str]) -> None:
    documents = [META, fields(SMALL[:100]), migration("f0: {action: update, validation: 'word.*', default: word}")]
    for _ in range(3):
        assert schema_of(*documents).stopped_by is None
    assert set(compiled.values()) == {1}


def test_what_is_no_pattern_is_known_without_compiling_it_again(compiled: Counter[str]) -> None:
    for _ in range(3):
        with pytest.raises(BadPattern):
            check_patterns(["(", *SMALL[:3]])
    assert compiled == Counter(["(", *SMALL[:3]])


@pytest.mark.parametrize(
    ("pattern", "is_large"),
    [
        (r"\d{4}-\d{2}-\d{2}", False),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", False),
        (r"[^@ ]+@[^@ ]+\.[a-z]+", False),
        ("|".join(f"choice{number}" for number in range(50)), False),
        (r"https?://[^\s/$.?#].[^\s]*", False),
        (r"[^#\r\n].*", False),
        (r"(?s).{1,500}", True),
        (r"[\pL\pN ._-]+", True),
    ],
)
def test_both_folds_tell_large_patterns_from_small_ones(pattern: str, is_large: bool) -> None:
    assert is_large_pattern(pattern) is is_large
    assert validation._verdicts.find(pattern).is_large is is_large


def test_patterns_of_a_message_are_those_that_it_brings() -> None:
    schema = schema_of(META, fields(["a", "b"]), migration("f0: {action: remove}, c: {action: create, type: text}"))
    assert [patterns_of(version.message) for version in schema.versions] == [[], ["a", "b"], []]
