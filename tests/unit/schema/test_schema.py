"""Schemas folded from messages: versions, fields with their permanent ids, reverts, and what ends a schema."""

import subprocess
import sys
from time import perf_counter

import pytest

from inkgrove.core import PublicKey
from inkgrove.core.errors import BadPattern, InkgroveError
from inkgrove.messages import SchemaId, encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.reference import is_pattern
from inkgrove.schema import FieldId, Schema, check_patterns, fold_schema, make_validator

SCHEMA_ID = SchemaId(PublicKey(b"\1" * 32), 12)
META = "kind: schema-meta\nname: slothmail\nspec: 1\n"


def migration(text: str) -> str:
    return f"kind: schema-migration\nfields: [{text}]\n"


def schema_of(*documents: str) -> Schema:
    payloads = [encode_message(message) for message in parse_messages("---\n".join(documents))]
    return fold_schema(SCHEMA_ID, dict(enumerate(payloads, start=1)))


SLOTHMAIL = [
    META,
    migration(
        "subject: {action: create, type: text}, body: {action: create, type: text},"
        " recipient: {action: create, type: relation}, created: {action: create, type: timestamp}"
    ),
    migration("attachments: {action: create, type: 'relation[]'}"),
    migration(
        "attachments: {action: remove}, subject: {action: update, validation: '^[^#\\r\\n].*$', default: <Subject>}"
    ),
]


def names(schema: Schema, version: int) -> list[str]:
    return [field.name for field in schema.version(version).fields]


def test_slothmail_has_four_versions() -> None:
    schema = schema_of(*SLOTHMAIL)
    assert [names(schema, n) for n in (1, 2, 3, 4)] == [
        [],
        ["subject", "body", "recipient", "created"],
        ["subject", "body", "recipient", "created", "attachments"],
        ["subject", "body", "recipient", "created"],
    ]
    assert schema.version(4).fields[0].validation == r"^[^#\r\n].*$"
    assert schema.meta is not None
    assert schema.meta.name == "slothmail"
    assert schema.stopped_by is None


def test_revert_takes_up_its_target_and_its_fields() -> None:
    schema = schema_of(*SLOTHMAIL, "kind: schema-revert\ntarget: 3\n")
    assert schema.live_path(5) == (1, 2, 3, 5)
    assert schema.version(5).fields == schema.version(3).fields


def test_revert_of_a_revert_and_migration_after_it() -> None:
    schema = schema_of(
        *SLOTHMAIL,
        "kind: schema-revert\ntarget: 3\n",
        "kind: schema-revert\ntarget: 4\n",
        migration("attachments: {action: create, type: text}"),
        "kind: schema-revert\ntarget: 5\n",
    )
    assert [schema.live_path(n) for n in (6, 7, 8)] == [(1, 2, 3, 4, 6), (1, 2, 3, 4, 6, 7), (1, 2, 3, 5, 8)]
    assert names(schema, 6) == ["subject", "body", "recipient", "created"]
    # The field of version 7 is another one than that of version 3.
    assert schema.version(7).fields[-1].id == FieldId(7, 0)
    assert schema.version(8).fields[-1].id == FieldId(3, 0)


def test_field_removed_and_created_again_is_new() -> None:
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}"),
        migration("a: {action: remove}"),
        migration("a: {action: create, type: text}"),
    )
    assert [schema.version(n).fields[0].id for n in (2, 4)] == [FieldId(2, 0), FieldId(4, 0)]


def test_later_meta_replaces_the_metadata_and_is_a_version() -> None:
    schema = schema_of(*SLOTHMAIL, "kind: schema-meta\nname: snailmail\nspec: 1\n")
    assert schema.meta is not None
    assert (schema.meta.name, len(schema.versions)) == ("snailmail", 5)
    assert names(schema, 5) == names(schema, 4)


def test_update_keeps_what_it_does_not_name_and_drops_what_the_new_type_cannot_have() -> None:
    author = "11" * 32
    schema = schema_of(
        META,
        migration(
            "a: {action: create, type: text, validation: 'x+'},"
            f" b: {{action: create, type: relation, schema: ['{author}', 3], cascade: true}}"
        ),
        migration("a: {action: update, type: 'text[]', default: }, b: {action: update, type: 'relation[]', default: }"),
        migration("a: {action: update, type: integer, default: 1}, b: {action: update, type: text, default: x}"),
        migration("a: {action: update, type: text, default: '1'}, b: {action: update, type: relation, default: }"),
    )
    kept = schema.version(3).fields
    assert (kept[0].validation, kept[1].schema, kept[1].cascade) == ("x+", SchemaId(PublicKey(b"\x11" * 32), 3), True)
    for version in (4, 5):
        dropped = schema.version(version).fields
        assert (dropped[0].validation, dropped[1].schema, dropped[1].cascade) == (None, None, False)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (migration("subject: {action: create, type: text}"), "schema.field-exists"),
        (migration("SUBJECT: {action: create, type: text}"), "schema.field-exists"),
        (migration("nothing: {action: remove}"), "schema.no-such-field"),
        (migration("Subject: {action: remove}"), "schema.no-such-field"),
        (migration("nothing: {action: update, default: }"), "schema.no-such-field"),
        (migration("a: {action: create, type: number}"), "schema.unknown-type"),
        (migration("a: {action: create, type: 'text[][]'}"), "schema.unknown-type"),
        (migration("a: {action: create, type: integer, default: x}"), "schema.bad-default"),
        (migration("a: {action: create, type: text, validation: 'x+', default: y}"), "schema.bad-default"),
        (migration("subject: {action: update, type: integer, default: x}"), "schema.bad-default"),
        (migration("a: {action: create, type: text, validation: '('}"), "schema.bad-pattern"),
        (migration("a: {action: create, type: text, validation: '(?=x)'}"), "schema.bad-pattern"),
        (migration("a: {action: create, type: text, validation: '(x)\\1'}"), "schema.bad-pattern"),
        (migration("a: {action: create, type: integer, validation: 'x'}"), "schema.validation-not-allowed"),
        (migration("a: {action: create, type: text, cascade: true}"), "schema.relation-only"),
        (migration(f"a: {{action: create, type: text, schema: ['{'11' * 32}', 3]}}"), "schema.relation-only"),
        ("kind: schema-revert\ntarget: 3\n", "schema.bad-revert-target"),
        ("kind: schema-revert\ntarget: 4\n", "schema.bad-revert-target"),
        ("kind: delete\ninstance: 1\n", "schema.not-a-schema-message"),
        (
            migration(", ".join(f"f{n}: {{action: create, type: text}}" for n in range(256))),
            "schema.too-many-fields",
        ),
    ],
)
def test_invalid_message_ends_the_schema_at_the_version_before(bad: str, code: str) -> None:
    schema = schema_of(META, migration("subject: {action: create, type: text}"), bad, SLOTHMAIL[2])
    assert len(schema.versions) == 2
    assert schema.stopped_at == 3
    assert schema.stopped_by is not None
    assert schema.stopped_by.code == code
    assert [schema.is_invalid_at(n) for n in (2, 3, 4)] == [False, True, True]


def test_exactly_256_fields_are_fine() -> None:
    assert (
        len(schema_of(META, migration(", ".join(f"f{n}: {{action: create, type: text}}" for n in range(256)))).versions)
        == 2
    )


def test_fold_goes_on_from_versions_that_are_known() -> None:
    documents = [*SLOTHMAIL, "kind: schema-meta\nname: other\nspec: 1\n", "kind: schema-revert\ntarget: 2\n"]
    payloads = {n: encode_message(m) for n, m in enumerate(parse_messages("---\n".join(documents)), start=1)}
    whole = fold_schema(SCHEMA_ID, payloads)
    assert len(whole.versions) == 6
    for known in range(7):
        assert fold_schema(SCHEMA_ID, payloads, first=whole.versions[:known]) == whole


def test_first_entry_must_be_a_meta() -> None:
    schema = schema_of(SLOTHMAIL[1])
    assert (schema.versions, schema.stopped_at) == ((), 1)
    assert schema.stopped_by is not None
    assert schema.stopped_by.code == "schema.not-a-schema"


def test_undecodable_or_missing_payload_ends_the_known_versions() -> None:
    payloads = {n: encode_message(m) for n, m in enumerate(parse_messages("---\n".join(SLOTHMAIL)), start=1)}
    rubbish = fold_schema(SCHEMA_ID, {**payloads, 3: b"rubbish"})
    assert (len(rubbish.versions), rubbish.stopped_at) == (2, 3)
    missing = fold_schema(SCHEMA_ID, {n: payload for n, payload in payloads.items() if n != 3})
    assert (len(missing.versions), missing.stopped_at, missing.is_invalid_at(3)) == (2, None, False)


def test_forked_schema_log_ends_before_the_fork() -> None:
    payloads = {n: encode_message(m) for n, m in enumerate(parse_messages("---\n".join(SLOTHMAIL)), start=1)}
    schema = fold_schema(SCHEMA_ID, payloads, invalid_from=3)
    assert len(schema.versions) == 2
    assert [schema.is_invalid_at(n) for n in (2, 3)] == [False, True]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "([a-z]+)*!", "(a|aa)+$"])
def test_catastrophic_patterns_take_linear_time(pattern: str) -> None:
    matches = make_validator(pattern, "text")
    short, long = "a" * 3_000 + "#", "a" * 30_000 + "#"
    matches(short)
    start = perf_counter()
    assert not matches(long)
    # A backtracking engine needs more time than there is for thirty characters; a second is ages here.
    assert perf_counter() - start < 1


@pytest.mark.parametrize(
    ("pattern", "is_taken"),
    [
        (r".{1,255}", True),
        (r"(?s).{1,500}", True),
        (r"[\pL\pN ._-]+", True),
        (r"\p{Lu}\p{Ll}+( \p{Lu}\p{Ll}+)*", True),
        (r"\pL{1,5}", True),
        (r"\pL{1,20}", False),
        (r"(?s).*(" + "|".join(f"a.{{{n}}}" for n in range(100, 160)) + ")", False),
        (r"((.{10}){10}){10}|((.{9}){10}){10}", False),
    ],
)
def test_pattern_has_a_bounded_memory_in_both_folds(pattern: str, is_taken: bool) -> None:
    assert is_pattern(pattern) is is_taken
    try:
        check_patterns([pattern])
    except BadPattern:
        assert not is_taken
    else:
        assert is_taken


def test_pattern_that_is_too_large_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadPattern, match=r"128 KiB: write \+ instead of counts"):
        check_patterns(["[\\pL ]{1,64}"])


_MEMORY = """
from pathlib import Path
from inkgrove.schema.validation import make_validator
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
text = "".join("ab"[(n * n * 7919 >> 5) % 2] for n in range(1_000))
patterns = [f"(?s).*a.{{{n}}}b[^x]*{n}|(?:[a-z]{{1,40}}[0-9]?){{1,9}}x{n}" for n in range(100, 800, 2)]
kept = [make_validator(pattern, "text") for pattern in patterns]
kept[0](text)
before = resident()
for matches in kept:
    matches(text)
print(resident() - before)
"""


def test_hundreds_of_patterns_leave_little_in_memory() -> None:
    grown = int(subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, check=True, text=True).stdout)
    assert grown < 100 * 1024 * 1024


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=x)", "(?<!x)y", "(x)\\1", "[z-a]", "*", "\\"])
def test_unsupported_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(BadPattern) as caught:
        check_patterns([pattern])
    assert isinstance(caught.value, InkgroveError)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("pattern", "value", "is_match"),
    [
        (r"^[^#\r\n].*$", "Hello! ...friend", True),
        (r"^[^#\r\n].*$", "Hello!\n...friend", False),
        (r"^[^#\r\n].*$", "", False),
        ("a|ab", "ab", True),
        ("a", "ab", False),
        ("a", "ba", False),
        (".", "ü", True),
        (".", "🦥", True),
        ("", "", True),
    ],
)
def test_pattern_is_matched_against_the_whole_value(pattern: str, value: str, is_match: bool) -> None:
    assert bool(make_validator(pattern, "text")(value)) is is_match
    assert bool(make_validator(pattern, "text[]")([value, value])) is is_match
    assert make_validator(pattern, "text[]")([])
