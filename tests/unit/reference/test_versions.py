"""Rows along the live path: the slothmail story, reverts, fields that come and go (docs/protocol.md section 4)."""

import pytest

from inkgrove.core import Hash
from inkgrove.messages import Outcome, parse_timestamp
from inkgrove.messages.cbor import Value
from tests.unit.reference.builder import (
    REMOVE,
    Map,
    Writer,
    change,
    codes,
    create,
    delete,
    fields,
    make,
    meta,
    migration,
    only_row,
    revert,
    schema_log,
    update,
    view_of,
)

TWO_LINES = "Hello!\n...friend"
CREATED = parse_timestamp("2020-05-22T11:58:50Z")


def slothmail() -> Writer:
    return schema_log(
        migration(subject=make("text"), body=make("text"), recipient=make("relation"), created=make("timestamp")),
        migration(attachments=make("relation[]")),
        migration(
            attachments=REMOVE,
            subject=change("<Subject>", validation=r"^[^#\r\n].*$"),
        ),
    )


def mailbox(schema: Writer) -> Writer:
    """A log with the create of the source texts, which names version 1."""
    log = Writer(2, 1)
    log.write(create(schema.at(1), {"subject": TWO_LINES, "body": None, "created": "2020-05-22T11:58:50+0000"}))
    return log


def test_two_line_subject_of_version_1_gets_the_default_at_version_4() -> None:
    schema = slothmail()
    log = mailbox(schema)
    view = view_of(schema, log)
    assert (view.version, view.waits_for, view.stopped, view.absent) == (4, [], None, 0)
    row = only_row(view)
    assert row.fields == {"subject": "<Subject>", "body": None, "recipient": None, "created": CREATED}
    assert list(row.fields) == ["subject", "body", "recipient", "created"]
    assert (row.instance, row.author, row.log_id, row.seq_num) == (log.hash(1), log.key.public, 1, 1)
    assert (row.last_seq_num, row.last_hash) == (1, log.hash(1))
    assert codes(view) == ["applied"]


def test_update_at_version_4_writes_one_line() -> None:
    schema = slothmail()
    log = mailbox(schema)
    log.write(update(schema.at(4), bytes(log.hash(1)), {"subject": "Hello! ...friend"}))
    row = only_row(view_of(schema, log))
    assert row.fields["subject"] == "Hello! ...friend"
    assert (row.seq_num, row.last_seq_num, row.last_hash) == (1, 2, log.hash(2))


def test_delete_without_a_schema_takes_the_row() -> None:
    schema = slothmail()
    log = mailbox(schema)
    log.write(delete(bytes(log.hash(1))))
    view = view_of(schema, log)
    assert view.rows == []
    assert codes(view) == ["applied", "applied"]


def test_revert_to_version_3_brings_back_subject_and_attachments() -> None:
    schema = slothmail()
    log = mailbox(schema)
    log.write(update(schema.at(3), 1, {"attachments": [b"\x01" * 32]}))
    log.write(update(schema.at(4), 1, {"subject": "Hello! ...friend"}))
    before = view_of(schema, log)
    assert only_row(before).fields["subject"] == "Hello! ...friend"
    assert codes(before) == ["applied", "instance.nothing-left", "applied"]

    schema.write(revert(3))
    after = view_of(schema, log)
    assert after.version == 5
    assert only_row(after).fields == {
        "subject": TWO_LINES,
        "body": None,
        "recipient": None,
        "created": CREATED,
        "attachments": [Hash(b"\x01" * 32)],
    }
    assert codes(after) == ["applied", "applied", "schema.off-live-path"]
    assert after.outcomes[2].outcome is Outcome.OBSOLETE
    assert only_row(after).last_seq_num == 2


def test_delete_that_names_a_version_off_the_live_path_applies() -> None:
    schema = slothmail()
    schema.write(revert(3))
    log = mailbox(schema)
    log.write(delete(1, schema=schema.at(4)))
    view = view_of(schema, log)
    assert view.rows == []
    assert codes(view) == ["applied", "applied"]


def test_revert_of_a_revert_goes_back_to_the_line_that_was_left() -> None:
    schema = slothmail()
    schema.write(revert(3))
    schema.write(revert(4))
    log = mailbox(schema)
    log.write(create(schema.at(4), {"subject": "four"}))
    log.write(create(schema.at(5), {"subject": "five"}))
    log.write(create(schema.at(6), {"subject": "six"}))
    view = view_of(schema, log)
    assert [row["subject"] for row in fields(view)] == ["<Subject>", "four", "six"]
    assert codes(view) == ["applied", "applied", "schema.off-live-path", "applied"]


def test_version_of_a_revert_has_the_fields_of_its_target() -> None:
    schema = slothmail()
    schema.write(revert(3))
    log = Writer(2, 1)
    log.write(create(schema.at(5), {"subject": TWO_LINES, "attachments": []}))
    log.write(create(schema.at(3), {"subject": TWO_LINES, "attachments": []}))
    view = view_of(schema, log)
    assert codes(view) == ["applied", "applied"]
    assert view.rows[0].fields == view.rows[1].fields


def test_field_created_again_is_a_new_field_at_the_end() -> None:
    schema = schema_log(
        migration(a=make("text"), b=make("text")),
        migration(a=REMOVE),
        migration(a=make("text", default="new")),
    )
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "old", "b": "kept"}))
    log.write(update(schema.at(2), 1, {"a": "old too"}))
    log.write(create(schema.at(4), {"b": "later"}))
    view = view_of(schema, log)
    assert fields(view) == [{"b": "kept", "a": "new"}, {"b": "later", "a": None}]
    assert list(view.rows[0].fields) == ["b", "a"]
    assert codes(view) == ["applied", "instance.nothing-left", "applied"]


def test_default_of_a_new_field_fills_earlier_creates_only() -> None:
    schema = schema_log(
        migration(a=make("text")),
        migration(b=make("integer", default=7)),
    )
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "x"}))
    log.write(create(schema.at(3), {"a": "y"}))
    log.write(update(schema.at(3), 1, {"b": 8}))
    log.write(update(schema.at(2), 1, {"a": "z"}))
    assert fields(view_of(schema, log)) == [{"a": "z", "b": 8}, {"a": "y", "b": None}]


def test_default_of_the_first_fields_does_not_fill_a_create_that_is_read_at_their_version() -> None:
    schema = schema_log(migration(a=make("text", default="x")))
    log = Writer(2, 1)
    log.write(create(schema.at(1)))
    assert fields(view_of(schema, log)) == [{"a": None}]


def test_removal_of_the_last_field_ends_rows_created_before() -> None:
    schema = schema_log(migration(a=make("text")), migration(a=REMOVE), migration(b=make("text", default="d")))
    log = Writer(2, 1)
    log.write(create(schema.at(1), {"a": "x"}))  # read as version 2
    log.write(update(schema.at(4), 1, {"b": "y"}))
    log.write(delete(1))
    log.write(create(schema.at(3)))
    log.write(create(schema.at(4), {"b": "z"}))
    view = view_of(schema, log)
    assert codes(view) == [
        "instance.ended-by-migration",
        "instance.create-obsolete",
        "instance.create-obsolete",
        "applied",
        "applied",
    ]
    assert fields(view) == [{"b": "d"}, {"b": "z"}]


def test_revert_before_the_removal_of_the_last_field_keeps_the_rows() -> None:
    schema = schema_log(migration(a=make("text")), migration(a=REMOVE), revert(2))
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "x"}))
    assert fields(view_of(schema, log)) == [{"a": "x"}]


def test_revert_to_a_version_without_fields_makes_creates_pending() -> None:
    schema = schema_log(migration(a=make("text")), revert(1))
    log = Writer(2, 1)
    log.write(create(schema.at(1)))
    log.write(create(schema.at(2), {"a": "x"}))
    log.write(create(schema.at(3)))
    assert codes(view_of(schema, log)) == ["schema.no-fields-yet", "schema.off-live-path", "schema.no-fields-yet"]

    schema.write(migration(b=make("text")))
    view = view_of(schema, log)
    assert codes(view) == ["applied", "schema.off-live-path", "applied"]
    assert fields(view) == [{"b": None}, {"b": None}]


def test_later_meta_is_a_version_that_changes_no_field() -> None:
    schema = schema_log(migration(a=make("text")), meta("renamed"))
    log = Writer(2, 1)
    log.write(create(schema.at(3), {"a": "x"}))
    view = view_of(schema, log)
    assert view.version == 3
    assert fields(view) == [{"a": "x"}]


def test_change_of_type_converts_each_value_or_takes_the_default() -> None:
    schema = schema_log(
        migration(n=make("text", validation="[0-9a-z]+")),
        migration(n=change(-1, type="integer")),
        migration(n=change(["?"], type="text[]")),
        migration(n=change(None, type="text", validation="..")),
    )
    log = Writer(2, 1)
    for text in ("12", "abc", None):
        log.write(create(schema.at(2), {"n": text}))
    log.write(create(schema.at(3), {"n": 345}))
    # integer -> text[] is not in the table: all but null become ["?"], and "?" is too short for the last pattern.
    assert fields(view_of(schema, log)) == [{"n": None}] * 4
    schema = schema_log(
        migration(n=make("text", validation="[0-9a-z]+")),
        migration(n=change(-1, type="integer")),
        migration(n=change(None, type="text")),
        migration(n=change(["?"], type="text[]", validation=".{2}")),
    )
    assert view_of(schema).version == 4  # the default "?" fails its own validation: version 5 is none
    log = Writer(2, 1)
    for text in ("12", "abc", None):
        log.write(create(schema.at(2), {"n": text}))
    log.write(create(schema.at(4), {"n": "The validation fell away with the type."}))
    assert [row["n"] for row in fields(view_of(schema, log))] == [
        "12",
        "-1",
        None,
        "The validation fell away with the type.",
    ]


def test_update_of_a_field_that_leaves_type_and_validation_leaves_values() -> None:
    target: list[Value] = [bytes([9]) * 32, 3]
    schema = schema_log(
        migration(r=make("relation")),
        migration(r=change(None, cascade=True)),
    )
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"r": b"\x05"}))
    assert fields(view_of(schema, log)) == [{"r": Hash(b"\x05")}]
    schema.write(migration(r=change(None, schema=target)))
    view = view_of(schema, log, registered=[schema.schema])
    assert (view.version, [str(name) for name in view.waits_for]) == (3, ["09" * 32 + "/3"])
    assert view_of(schema, log).version == 4  # where nothing is said, everything is registered


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (migration(Subject=make("text")), "'Subject'"),
        (migration(nothing=REMOVE), "'nothing'"),
        (migration(SUBJECT=REMOVE), "'SUBJECT'"),
        (migration(a=make("text"), A=make("text")), "twice"),
        (migration(a=make("string")), "'string'"),
        (migration(a=make("integer", validation="1")), "validation"),
        (migration(a=make("text", validation="(?=x)")), "RE2"),
        (migration(a=make("text", schema=[b"\x01" * 32, 1])), "schema"),
        (migration(a=make("blob", cascade=False)), "cascade"),
        (migration(a=make("integer", default=1.0)), "default"),
        (migration(subject=change("ab", validation="a")), "default"),
        (migration(subject=change(None, type="integer", validation="a")), "validation"),
        (migration(**{f"f{n}": make("text") for n in range(256)}), "257"),
        (revert(3), "version 3"),
        (create([b"\x01" * 32, 12, 1]), "not a schema message"),
        (b"\xff", "malformed"),
    ],
)
def test_schema_message_that_does_not_fit_ends_the_known_versions(bad: Map | bytes, words: str) -> None:
    schema = schema_log(migration(subject=make("text")), bad, migration(later=make("text")))
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"subject": "x"}))
    log.write(create(schema.at(3), {"subject": "x"}))
    log.write(create(schema.at(4), {"subject": "x"}))
    view = view_of(schema, log)
    assert view.version == 2
    assert view.stopped is not None
    assert words in view.stopped
    assert codes(view) == ["applied", "schema.version-invalid", "schema.version-invalid"]


def test_null_validation_is_none_for_every_type() -> None:
    schema = schema_log(
        migration(a=make("text", validation="x"), n=make("integer", validation=None)),
        migration(a=change(None, type="integer", validation=None)),
    )
    assert (view_of(schema).version, view_of(schema).stopped) == (3, None)
