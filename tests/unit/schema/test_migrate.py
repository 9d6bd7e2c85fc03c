"""Migrations: defaults, fallbacks, the live path, the lint; and step by step equals at once."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkgrove.core.errors import InstanceError
from inkgrove.messages import Create, OutcomeCode, SchemaMigration, SchemaVersion, Update
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.schema import (
    Migration,
    Schema,
    ViewDefinition,
    compile_migration,
    differences,
    fold_schema,
    lint_migration,
)
from tests.support.errors import raises
from tests.support.generated import Generator
from tests.support.tiers import amount
from tests.unit.schema.test_schema import META, SCHEMA_ID, SLOTHMAIL, migration, schema_of


def at(schema: Schema, version: int) -> Migration:
    found = ViewDefinition(schema, [SCHEMA_ID]).migration(version)
    assert isinstance(found, Migration)
    return found


def create(schema: Schema, version: int, **fields: Any) -> dict[str, Any]:
    found = at(schema, version)
    return dict(zip(found.columns, found.read_create(fields), strict=True))


def update(schema: Schema, version: int, **fields: Any) -> dict[str, Any]:
    found = at(schema, version)
    return {found.columns[column]: value for column, value in found.read_update(fields).items()}


def test_version_1_is_read_as_the_first_version_with_fields_and_the_subject_falls_back() -> None:
    schema = schema_of(*SLOTHMAIL)
    assert create(schema, 1, subject="Hello!\n...friend", body=None) == {
        "subject": "<Subject>",
        "body": None,
        "recipient": None,
        "created": None,
    }
    assert create(schema, 4, subject="Hello! ...friend")["subject"] == "Hello! ...friend"


def test_message_is_checked_against_its_own_version() -> None:
    schema = schema_of(*SLOTHMAIL)
    with raises("instance.failed-validation"):
        create(schema, 4, subject="Hello!\n...friend")
    with raises("instance.unknown-field"):
        create(schema, 2, attachments=[])
    with raises("instance.wrong-type"):
        create(schema, 3, body=1)


def test_default_fills_creates_of_earlier_versions_only() -> None:
    schema = schema_of(
        META, migration("a: {action: create, type: text}"), migration("b: {action: create, type: integer, default: 7}")
    )
    assert create(schema, 2, a="x") == {"a": "x", "b": 7}
    assert create(schema, 3, a="x") == {"a": "x", "b": None}
    assert update(schema, 2, a="y") == {"a": "y"}
    # Version 1 is read as version 2, the first with fields.
    assert create(schema, 1) == {"a": None, "b": 7}


def test_a_default_is_carried_along_later_changes_like_a_value() -> None:
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}"),
        migration("b: {action: create, type: integer, default: 7}"),
        migration("b: {action: update, type: text, default: x}"),
        migration("b: {action: update, validation: '[a-z]*', default: fallback}"),
    )
    assert create(schema, 2)["b"] == "fallback"
    assert create(schema, 3, b=5)["b"] == "fallback"
    assert create(schema, 4, b="abc")["b"] == "abc"


def test_null_stays_null_and_is_not_validated() -> None:
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}"),
        migration("a: {action: update, type: integer, default: 1}"),
        migration("a: {action: update, type: text, validation: 'x', default: x}"),
    )
    assert create(schema, 2, a=None) == {"a": None}
    assert update(schema, 2, a=None) == {"a": None}
    assert create(schema, 2) == {"a": None}
    assert create(schema, 2, a="word") == {"a": "x"}


def test_old_values_never_enter_a_field_created_again() -> None:
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}"),
        migration("a: {action: remove}, b: {action: create, type: text}"),
        migration("a: {action: create, type: text, default: new}"),
    )
    assert create(schema, 2, a="old") == {"b": None, "a": "new"}
    assert update(schema, 2, a="old") == {}


def test_messages_off_the_live_path_and_of_unknown_versions() -> None:
    definition = ViewDefinition(schema_of(*SLOTHMAIL, "kind: schema-revert\ntarget: 3\n"), [])
    assert definition.migration(4) is OutcomeCode.OFF_LIVE_PATH
    assert definition.migration(6) is OutcomeCode.VERSION_UNKNOWN
    assert isinstance(definition.migration(5), Migration)
    assert ViewDefinition(schema_of(META), []).migration(1) is OutcomeCode.NO_FIELDS_YET
    assert ViewDefinition(fold_schema(SCHEMA_ID, {}), []).migration(1) is OutcomeCode.SCHEMA_UNKNOWN


def test_view_waits_below_a_version_whose_relation_schema_is_not_registered() -> None:
    author = "11" * 32
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}"),
        migration(f"b: {{action: create, type: relation, schema: ['{author}', 3]}}"),
    )
    waiting = ViewDefinition(schema, [SCHEMA_ID])
    assert (waiting.version, [str(item) for item in waiting.waits_for]) == (2, [f"{author}/3"])
    assert waiting.migration(3) is OutcomeCode.VERSION_UNKNOWN
    ready = ViewDefinition(schema, [SCHEMA_ID, *waiting.waits_for])
    assert (ready.version, ready.waits_for) == (3, [])


@settings(max_examples=amount(100, 300))
@given(st.integers(0, 2**32))
def test_migrating_step_by_step_equals_migrating_at_once(seed: int) -> None:
    generator = Generator(seed)
    generator.world()
    rng = random.Random(seed)
    log = Generator(seed)._schema_log(0)
    schema = fold_schema(generator.schema_ids[0], dict(enumerate(log.payloads, start=1)))
    if not schema.versions:
        return
    path = schema.live_path(len(schema.versions))
    with_fields = [number for number in path if schema.version(number).fields]
    if not with_fields:
        return
    start = rng.choice(path[path.index(with_fields[0]) :])
    fields = {field.name: generator.value(field.type) for field in schema.version(start).fields if rng.random() < 0.8}
    try:
        whole = compile_migration(schema, start, path).read_create(fields)
    except InstanceError as error:
        if error.code not in ("instance.wrong-type", "instance.failed-validation"):
            raise
        return
    written = compile_migration(schema, start, path).read_update(fields)
    row, change, position = fields, fields, path.index(start)
    for place in range(position, len(path)):
        here, there = path[place], path[: place + 2]
        step = compile_migration(schema, here, there)
        row = dict(zip(step.columns, step.read_create(row), strict=True))
        change = {step.columns[column]: value for column, value in step.read_update(change).items()}
    final = [field.name for field in schema.version(path[-1]).fields]
    assert [repr(row[name]) for name in final] == [repr(value) for value in whole]
    assert repr(sorted(change.items())) == repr(sorted((final[column], value) for column, value in written.items()))


def lint(schema: Schema, text: str, *messages: Create | Update) -> dict[str, tuple[str, int, int]]:
    parsed = parse_messages(migration(text))[0]
    assert isinstance(parsed, SchemaMigration)
    report, _ = lint_migration(schema, parsed, messages)
    assert report.only_adds == all(finding.effect in ("adds", "keeps") for finding in report.findings)
    return {finding.field: (finding.effect, finding.fallbacks, finding.values) for finding in report.findings}


def test_lint_tells_additions_from_losses_and_counts_fallbacks() -> None:
    schema = schema_of(*SLOTHMAIL)
    version = SchemaVersion(*SCHEMA_ID, 3)
    messages: list[Create | Update] = [
        Create(version, {"subject": "12", "body": "a"}),
        Create(version, {"subject": "two\nlines", "body": None}),
        Update(version, 1, {"subject": "word"}),
        Create(SchemaVersion(*SCHEMA_ID, 9), {"subject": "unknown version"}),
        Create(version, {"subject": 7}),
    ]
    assert lint(schema, "note: {action: create, type: text}") == {"note": ("adds", 0, 0)}
    assert lint(schema, "subject: {action: update, type: integer, default: 0}", *messages) == {
        "subject": ("may-lose", 2, 3)
    }
    assert lint(schema, "body: {action: remove}", *messages) == {"body": ("loses", 1, 1)}
    assert lint(schema, "body: {action: update, type: 'text[]', default: }", *messages) == {"body": ("keeps", 0, 1)}
    assert lint(schema, "body: {action: update, validation: 'b', default: b}", *messages) == {
        "body": ("may-lose", 1, 1)
    }
    assert lint(schema, "recipient: {action: update, cascade: true, default: }") == {"recipient": ("may-lose", 0, 0)}
    assert lint(schema, "created: {action: update, default: }") == {"created": ("keeps", 0, 0)}


def test_lint_warns_when_the_last_field_goes() -> None:
    schema = schema_of(META, migration("a: {action: create, type: text}"))
    assert lint(schema, "a: {action: remove}") == {"a": ("loses", 0, 0), "*": ("loses", 0, 0)}


def test_differences_go_by_permanent_ids() -> None:
    schema = schema_of(
        META,
        migration("a: {action: create, type: text}, b: {action: create, type: text}"),
        migration("a: {action: remove}, b: {action: update, type: integer, default: }"),
        migration("a: {action: create, type: text}"),
    )
    assert [(item.kind, item.name) for item in differences(schema, 2, 4)] == [
        ("removed", "a"),
        ("changed", "b"),
        ("added", "a"),
    ]
    assert differences(schema, 4, 4) == []


# How much matching a message may ask for: 524,288 bytes, times 4 for small patterns and 16 for large ones

LIGHT, SMALL, LARGE = "(?s).*x", "(?s).*x{1}", r"(?s).*[\pL\pN]"
LEAST_THAT_FAILS = {LIGHT: 524_289, SMALL: 131_073, LARGE: 32_769}


def text_of(size: int) -> str:
    return "x" * size


def changes(*facts: dict[str, Any]) -> str:
    """A migration of the fields f0, f1 and so on."""
    return migration(", ".join(json.dumps({f"f{number}": change}) for number, change in enumerate(facts)))


def with_patterns(*patterns: str | None, type_name: str = "text") -> str:
    plain = {"action": "create", "type": type_name}
    return changes(*(plain | ({"validation": pattern} if pattern else {}) for pattern in patterns))


@pytest.mark.parametrize("pattern", [LIGHT, SMALL, LARGE])
def test_texts_of_a_message_match_up_to_a_sum_of_length_and_weight(pattern: str) -> None:
    schema = schema_of(META, with_patterns(pattern, pattern))
    much = LEAST_THAT_FAILS[pattern]
    assert create(schema, 2, f0=text_of(much - 11), f1=text_of(10))["f1"] == text_of(10)
    for fields in ({"f0": text_of(much)}, {"f0": text_of(much - 10), "f1": text_of(10)}):
        with raises("instance.failed-validation"):
            create(schema, 2, **fields)
        with raises("instance.failed-validation"):
            update(schema, 2, **fields)


def test_bytes_are_counted_and_those_of_an_array_together() -> None:
    schema = schema_of(META, with_patterns(LARGE, type_name="text[]"))
    assert create(schema, 2, f0=["é" * 8_192, "x" * 16_384])
    with raises("instance.failed-validation"):
        create(schema, 2, f0=["é" * 8_192, "x" * 16_385])


def test_what_is_matched_on_the_live_path_counts_too_in_the_order_of_the_message() -> None:
    later = changes(*[{"action": "update", "validation": LARGE, "default": "d"}] * 2)
    again = changes(*[{"action": "update", "validation": LARGE + "?", "default": "e"}] * 2)
    schema = schema_of(META, with_patterns(None, None), later)
    half, more = text_of(16_384), text_of(16_385)
    assert create(schema, 2, f0=half, f1=half) == {"f0": half, "f1": half}
    assert create(schema, 2, f0=half, f1=more) == {"f0": half, "f1": "d"}
    assert create(schema, 2, f1=more, f0=half) == {"f0": "d", "f1": more}
    schema = schema_of(META, with_patterns(None, None), later, again)
    # The first takes all; then not even the default of version 3 is matched at version 4.
    assert create(schema, 2, f0=half, f1=half) == {"f0": half, "f1": "e"}
    assert create(schema, 2, f0=more, f1="x") == {"f0": "e", "f1": "x"}


def test_several_light_patterns_on_the_live_path_cost_what_each_of_them_does() -> None:
    later = [changes(*[{"action": "update", "validation": LIGHT + end, "default": "x"}] * 2) for end in ("", "?")]
    schema = schema_of(META, with_patterns(None, None), *later)
    long, rest = text_of(200_000), text_of(62_144)
    assert create(schema, 2, f0=long, f1=rest) == {"f0": long, "f1": rest}
    assert create(schema, 2, f0=long, f1=rest + "x") == {"f0": long, "f1": "x"}


def test_defaults_of_a_migration_match_up_to_the_same_sum() -> None:
    def defaults(*sizes: int) -> str:
        plain = {"action": "create", "type": "text", "validation": LARGE}
        return changes(*(plain | {"default": text_of(size)} for size in sizes))

    assert schema_of(META, defaults(16_384, 16_384)).stopped_at is None
    assert schema_of(META, defaults(16_384, 16_385)).stopped_at == 2
