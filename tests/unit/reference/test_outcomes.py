"""What becomes of a message: the order of the checks, and whose view tells (docs/protocol.md section 6)."""

import pytest

from inkgrove.core import SecretKey
from inkgrove.messages import Access, Outcome, SchemaId, parse_timestamp
from inkgrove.messages.cbor import Value
from inkgrove.reference import fold_views
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

NOBODY = SecretKey.from_seed(b"\x09" * 32).public


def notes() -> Writer:
    return schema_log(migration(a=make("text", validation="[a-z]*"), n=make("integer")))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"x": 1}, "instance.unknown-field"),
        ({"A": "x"}, "instance.unknown-field"),
        ({"n": 1.0}, "instance.wrong-type"),
        ({"n": True}, "instance.wrong-type"),
        ({"a": "X"}, "instance.failed-validation"),
        ({"a": "x\n"}, "instance.failed-validation"),
        ({"a": "x", "n": None}, "applied"),
    ],
)
def test_fields_are_held_against_the_version_named(given: Map, code: str) -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2), given))
    assert codes(view_of(schema, log)) == [code]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"a": 1}, {"x": 1}, "instance.wrong-type"),
        ({"x": 1}, {"a": "X"}, "instance.unknown-field"),
        ({"a": "X"}, {"n": "1"}, "instance.failed-validation"),
    ],
)
def test_first_fault_in_the_order_of_the_message_gives_the_code(first: Map, second: Map, code: str) -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write({"kind": "create", "schema": schema.at(2), "fields": [first, second]})
    assert codes(view_of(schema, log)) == [code]


def test_version_comes_before_fields_and_fields_before_the_create() -> None:
    schema = notes()
    schema.write(migration(b=make("text")))
    schema.write(revert(2))
    log = Writer(2, 1)
    wrong: Map = {"n": "not a number"}
    log.write(update(schema.at(9), 7, wrong))
    log.write(update(schema.at(3), 7, wrong))
    log.write(update(schema.at(4), 7, wrong))
    log.write(update(schema.at(4), 7, {"n": 1}))
    assert codes(view_of(schema, log)) == [
        "schema.version-unknown",
        "schema.off-live-path",
        "instance.wrong-type",
        "instance.not-a-create",
    ]


def test_schema_is_unknown_until_its_first_payload_is_held() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"x": "?"}))
    [view] = fold_views(log.held())
    assert (view.schema, view.version, codes(view)) == (schema.schema, None, ["schema.unknown"])
    with_schema, without = fold_views([*schema.held(without_payloads=(1,)), *log.held()])
    assert codes(with_schema) == ["schema.unknown"]
    # For want of entry 1 nobody knows whether this is a schema log: nothing is said of its migration.
    assert (without.schema, without.outcomes, without.absent) == (None, [], 1)


def test_log_that_does_not_start_with_meta_is_no_schema() -> None:
    log, other = Writer(2, 1), Writer(3, 1)
    log.write(migration(a=make("text")))
    other.write(create(log.at(5)))
    named, without = fold_views([*log.held(), *other.held()])
    assert named.stopped == "Entry 1 of the schema's log is not a schema-meta, with which every schema starts."
    assert codes(named) == ["schema.version-invalid"]
    assert codes(without) == ["instance.wrong-log"]


def test_what_an_update_is_about_decides_after_its_own_faults() -> None:
    schema, other = notes(), schema_log(migration(n=make("integer")), log_id=13)
    foreign = Writer(3, 1)
    foreign_create = foreign.write(create(schema.at(2)))
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"n": 1}))  # 1
    log.write(b"malformed")  # 2
    log.write(create(other.at(2)))  # 3
    log.write(create(schema.at(2), {"n": "x"}))  # 4: quarantined
    log.write(create(schema.at(9)))  # 5: pending
    log.write(create(schema.at(2), {"n": 6}))  # 6: payload withheld
    cases: list[tuple[Value, str]] = [
        (1, "applied"),
        (2, "instance.not-a-create"),
        (3, "instance.other-schema"),
        (4, "instance.create-quarantined"),
        (5, "instance.create-pending"),
        (6, "instance.create-not-held"),
        (7, "instance.not-a-create"),  # an update
        (99, "instance.not-a-create"),  # not lower than its own
        (bytes(foreign_create), "instance.not-a-create"),
        (bytes(log.hash(1)), "applied"),
        (bytes(log.hash(1))[2:34], "instance.create-not-held"),
        (b"\x00\x40" + b"?" * 64, "instance.create-not-held"),
    ]
    for instance, _ in cases:
        log.write(update(schema.at(2), instance, {"n": 2}))
    held = [*schema.held(), *other.held(), *foreign.held(), *log.held(without_payloads=(6,))]
    view = fold_views(held)[0]
    assert view.schema == schema.schema
    assert view.absent == 1
    own = [outcome for outcome in view.outcomes if outcome.author == log.key.public and outcome.seq_num > 6]
    assert [outcome.code for outcome in own] == [code for _, code in cases]


def test_deletes_of_a_create_that_is_not_applied_share_its_outcome() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(9)))
    log.write(delete(1))
    view = view_of(schema, log)
    assert codes(view) == ["schema.version-unknown", "instance.create-pending"]
    assert view.outcomes[1].outcome is Outcome.PENDING
    assert view.outcomes[1].reason.startswith("The create, entry 1, is pending: It names version 9 of schema ")


def test_nothing_is_applied_after_the_first_delete() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"n": 1}))
    log.write(update(schema.at(2), 1, {"n": 2}))
    log.write(delete(1, schema=schema.at(77)))
    log.write(update(schema.at(2), 1, {}))
    log.write(delete(1))
    log.write(update(schema.at(9), 1, {"n": 3}))
    view = view_of(schema, log)
    assert view.rows == []
    assert codes(view) == [
        "applied",
        "applied",
        "applied",
        "instance.after-delete",
        "instance.after-delete",
        "schema.version-unknown",
    ]


def test_delete_that_names_another_schema_does_not_count() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"n": 1}))
    log.write(delete(1, schema=[bytes(NOBODY), 1, 1]))
    log.write(delete(1))
    mine, theirs = sorted(fold_views([*schema.held(), *log.held()]), key=lambda view: len(view.outcomes), reverse=True)
    assert (mine.rows, codes(mine)) == ([], ["applied", "applied"])
    assert (theirs.schema, codes(theirs)) == (SchemaId(NOBODY, 1), ["instance.other-schema"])


def test_update_without_anything_left_is_obsolete_unless_it_sets_access_or_expires() -> None:
    schema = notes()
    schema.write(migration(a=REMOVE, n=change(0, type="float")))
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "x", "n": 2**53 + 1}, expires="2030-01-01T00:00:00Z"))
    log.write(update(schema.at(2), 1, {"a": "y"}))
    log.write(update(schema.at(2), 1, {}))
    log.write(update(schema.at(2), 1, {"a": "y"}, access={"mode": "public"}))
    view = view_of(schema, log)
    assert codes(view) == ["applied", "instance.nothing-left", "instance.nothing-left", "applied"]
    row = only_row(view)
    assert row.fields == {"n": 0.0}
    assert type(row.fields["n"]) is float
    assert (row.access, row.expires) == (Access("public"), parse_timestamp("2030-01-01T00:00:00Z"))
    assert (row.last_seq_num, row.copied_from) == (4, None)

    log.write(update(schema.at(3), 1, expires=None))
    row = only_row(view_of(schema, log))
    assert (row.access, row.expires, row.last_seq_num) == (Access("public"), None, 5)


def test_null_in_an_update_sets_null_and_missing_leaves_the_value() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "x", "n": 1}))
    log.write(update(schema.at(2), 1, {"a": None}))
    assert fields(view_of(schema, log)) == [{"a": None, "n": 1}]


def test_each_kind_of_message_has_its_log() -> None:
    schema = notes()
    identity: Map = {"kind": "key-of", "identity": b"\x01" * 32}
    zero, log = Writer(2, 0), Writer(2, 1)
    zero.write(identity)
    zero.write(create(schema.at(2)))
    zero.write(meta())
    log.write(create(schema.at(2)))
    log.write(identity)
    log.write(meta())
    view = view_of(schema, zero, log)
    assert [(outcome.log_id, outcome.seq_num, outcome.code) for outcome in view.outcomes] == [
        (0, 2, "instance.wrong-log"),
        (0, 3, "instance.wrong-log"),
        (1, 1, "applied"),
        (1, 2, "instance.wrong-log"),
        (1, 3, "instance.wrong-log"),
    ]
    assert len(view.rows) == 1


def test_outcomes_without_a_schema_of_their_own_belong_to_that_of_the_log() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(b"\xa0")
    log.write(delete(b"\x01" * 32))
    [_, without] = fold_views([*schema.held(), *log.held()])
    assert (without.schema, codes(without)) == (None, ["message.unknown-kind", "instance.create-not-held"])
    log.write(create(schema.at(2)))
    log.write(b"\xa0")
    [view] = fold_views([*schema.held(), *log.held(without_payloads=(4,))])
    assert codes(view) == ["message.unknown-kind", "instance.create-not-held", "applied"]
    assert view.absent == 1


def test_messages_of_schemas_that_are_not_registered_have_no_outcome() -> None:
    schema = notes()
    log = Writer(2, 1)
    log.write(create(schema.at(2)))
    log.write(delete(1))
    log.write(b"\xa0")
    log.write(create(schema.at(2)))
    other = SchemaId(NOBODY, 4)
    [view] = fold_views([*schema.held(), *log.held(without_payloads=(4,))], [other])
    assert (view.schema, view.version, view.rows, view.outcomes, view.absent) == (other, None, [], [], 0)


def test_views_come_in_the_order_of_their_schemas() -> None:
    schemas = [Writer(seed, log_id) for seed in (1, 2, 3) for log_id in (300, 2)]
    held = []
    for schema in schemas:
        schema.write(meta())
        held += schema.held()
    ids = [view.schema for view in fold_views(held)]
    assert ids == sorted(schema.schema for schema in schemas)
