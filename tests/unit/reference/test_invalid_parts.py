"""Forks and lies about sizes: what they take back and what not (docs/protocol.md section 2)."""

from inkgrove.core import HeldEntry, verify_signed
from inkgrove.messages import Outcome
from inkgrove.reference import fold_views
from tests.unit.reference.builder import (
    Writer,
    codes,
    create,
    delete,
    fields,
    make,
    migration,
    schema_log,
    update,
    view_of,
)


def notes() -> Writer:
    return schema_log(migration(a=make("text")))


def two_creates(schema: Writer) -> Writer:
    log = Writer(2, 1)
    log.write(create(schema.at(2), {"a": "one"}))
    log.write(create(schema.at(2), {"a": "two"}))
    return log


def test_fork_takes_back_updates_and_keeps_deletes_of_any_branch() -> None:
    schema = notes()
    log = two_creates(schema)
    branch = log.branch_at(3)
    log.write(update(schema.at(2), 1, {"a": "changed"}))
    branch.write(delete(2))
    branch.write(update(schema.at(2), 1, {"a": "changed too"}))
    view = view_of(schema, log, branch)
    assert fields(view) == [{"a": "one"}]
    assert view.rows[0].last_seq_num == 1
    assert [(outcome.seq_num, outcome.code) for outcome in view.outcomes] == [
        (1, "applied"),
        (2, "applied"),
        (3, "log.forked"),
        (3, "log.forked"),
        (4, "log.forked"),
    ]
    assert view.outcomes[2].hash < view.outcomes[3].hash
    assert view.outcomes[4].reason == "The log is forked at entry 3."


def test_delete_in_a_branch_that_names_another_schema_does_not_count() -> None:
    schema = notes()
    log = two_creates(schema)
    branch = log.branch_at(3)
    log.write(delete(1, schema=[b"\x07" * 32, 1, 1]))
    branch.write(delete(2, schema=schema.at(99)))
    assert fields(view_of(schema, log, branch)) == [{"a": "one"}]


def test_create_in_the_invalid_part_cannot_be_deleted_or_seen() -> None:
    schema = notes()
    log = two_creates(schema)
    branch = log.branch_at(3)
    log.write(create(schema.at(2), {"a": "three"}))
    branch.write(delete(1))
    log.write(delete(3))
    view = view_of(schema, log, branch)
    assert fields(view) == [{"a": "two"}]
    assert codes(view) == ["applied", "applied", "log.forked", "log.forked", "log.forked"]


def test_log_is_invalid_from_a_lie_about_a_size_and_its_deletes_count() -> None:
    schema = notes()
    log = two_creates(schema)
    log.write(delete(1), lies_about_size=True)
    log.write(update(schema.at(2), 2, {"a": "changed"}))
    log.write(b"rubbish")
    view = view_of(schema, log)
    assert fields(view) == [{"a": "two"}]
    assert codes(view) == ["applied", "applied", *["log.invalid-since"] * 3]
    assert view.outcomes[2].outcome is Outcome.QUARANTINED
    assert "entry 3" in view.outcomes[4].reason


def test_code_tells_the_lie_from_the_fork_behind_it() -> None:
    schema = notes()
    log = two_creates(schema)
    log.write(create(schema.at(2)), lies_about_size=True)
    branch = log.branch_at(4)
    log.write(create(schema.at(2)))
    branch.write(delete(2))
    assert codes(view_of(schema, log, branch)) == [
        "applied",
        "applied",
        "log.invalid-since",
        "log.forked",
        "log.forked",
    ]


def test_entry_without_a_path_is_not_there_but_its_claims_count() -> None:
    schema = notes()
    log = two_creates(schema)
    branch = log.branch_at(2)
    branch.write(create(schema.at(2), {"a": "other"}))
    branch.write(create(schema.at(2), {"a": "third"}))
    # Entry 3 of the branch claims another entry 2, which is not held itself.
    held = schema.held() + log.held() + branch.held()[2:]
    [view] = fold_views(held)
    assert fields(view) == [{"a": "one"}]
    assert codes(view) == ["applied", "log.forked", "log.forked"]
    # Without the contradicted entry there is no fork, and entry 3 stands alone.
    [view] = fold_views(schema.held() + log.held()[:1] + branch.held()[2:])
    assert codes(view) == ["applied"]


def test_rubbish_payload_is_as_good_as_none() -> None:
    schema = notes()
    log = two_creates(schema)
    held = [*schema.held(), HeldEntry(verify_signed(log.entries[0]), b"rubbish"), *log.held()[1:]]
    [view] = fold_views(held)
    assert fields(view) == [{"a": "two"}]
    assert (codes(view), view.absent) == (["applied"], 1)


def test_forked_schema_keeps_the_versions_before_the_fork() -> None:
    schema = notes()
    branch = schema.branch_at(3)
    schema.write(migration(b=make("text")))
    branch.write(migration(c=make("text")))
    log = two_creates(schema)
    log.write(create(schema.at(3), {"b": "x"}))
    log.write(delete(2, schema=schema.at(3)))
    view = view_of(schema, branch, log)
    assert view.version == 2
    assert view.stopped == "The schema's log is forked or invalid from entry 3 on."
    assert fields(view) == [{"a": "one"}]
    assert codes(view) == ["applied", "applied", "schema.version-invalid", "applied"]


def test_schema_that_is_forked_at_entry_1_is_no_schema() -> None:
    schema = notes()
    branch = schema.branch_at(1)
    branch.write(migration(a=make("text")))
    log = two_creates(schema)
    with_schema, without = fold_views([*schema.held(), *branch.held(), *log.held()])
    assert (with_schema.schema, with_schema.version) == (schema.schema, None)
    assert codes(with_schema) == ["schema.version-invalid", "schema.version-invalid"]
    assert without.schema is None
    assert codes(without) == ["log.forked", "log.forked", "log.forked"]


def test_order_and_repetition_of_entries_change_nothing() -> None:
    schema = notes()
    log = two_creates(schema)
    branch = log.branch_at(3)
    log.write(update(schema.at(2), 1, {"a": "changed"}))
    branch.write(delete(bytes(log.hash(2))))
    held = [*schema.held(), *log.held(), *branch.held()]
    bare = [HeldEntry(item.signed) for item in held]
    rubbish = [HeldEntry(item.signed, b"rubbish") for item in held]
    expected = fold_views(held)
    assert fold_views(reversed(held)) == expected
    assert fold_views([*bare, *held, *rubbish, *held[::-1], *bare]) == expected
