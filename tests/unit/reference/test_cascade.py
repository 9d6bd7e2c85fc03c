"""Cascade: deletions that take other rows and elements with them (docs/protocol.md section 6 rule 4)."""

from inkgrove.reference import fold_views
from tests.unit.reference.builder import (
    REMOVE,
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


def people() -> Writer:
    return schema_log(migration(name=make("text")), log_id=1)


def letters(target: Writer, field_type: str = "relation", *, cascade: bool = True) -> Writer:
    to = make(field_type, schema=target.at(0)[:2], cascade=cascade)
    return schema_log(migration(to=to), log_id=2)


def test_chain_of_replies_falls_to_a_fixed_point() -> None:
    author = people()
    posts = Writer(1, 3)
    posts.write({"kind": "schema-meta", "name": "posts", "spec": 1})
    posts.write(
        migration(
            by=make("relation", schema=author.at(0)[:2], cascade=True),
            reply_to=make("relation", schema=posts.at(0)[:2], cascade=True),
        )
    )
    persons, log = Writer(2, 1), Writer(3, 1)
    jane = persons.write(create(author.at(2), {"name": "Jane"}))
    persons.write(delete(1))
    # Written in the order in which a single pass over the log would miss what falls later.
    first = log.write(create(posts.at(2), {"by": None}))
    reply = log.write(create(posts.at(2), {"reply_to": bytes(first)}))
    log.write(create(posts.at(2), {"reply_to": bytes(reply)}))
    log.write(create(posts.at(2), {"reply_to": b"\x00\x40" + b"?" * 64}))
    log.write(update(posts.at(2), 1, {"by": bytes(jane)}))
    view = view_of(posts, author, persons, log)
    assert [row.seq_num for row in view.rows] == [4]
    assert codes(view) == ["applied"] * 5


def test_relation_array_loses_only_the_element() -> None:
    targets = people()
    schema = letters(targets, "relation[]")
    persons, log = Writer(2, 1), Writer(3, 1)
    jane = persons.write(create(targets.at(2), {"name": "Jane"}))
    john = persons.write(create(targets.at(2), {"name": "John"}))
    persons.write(delete(1))
    log.write(create(schema.at(2), {"to": [bytes(jane), bytes(john), bytes(jane), b"\x01"]}))
    view = view_of(schema, targets, persons, log)
    assert fields(view) == [{"to": [john, b"\x01"]}]
    assert view.rows[0].last_seq_num == 1


def test_relation_without_cascade_or_without_schema_keeps_the_row() -> None:
    targets = people()
    persons = Writer(2, 1)
    jane = persons.write(create(targets.at(2)))
    persons.write(delete(1))
    loose = schema_log(migration(to=make("relation", cascade=True)), log_id=2)
    for schema in (letters(targets, cascade=False), loose):
        log = Writer(3, 1)
        log.write(create(schema.at(2), {"to": bytes(jane)}))
        assert fields(view_of(schema, targets, persons, log)) == [{"to": jane}]


def test_deleted_instance_of_another_schema_than_the_relations_does_not_cascade() -> None:
    targets, others = people(), schema_log(migration(name=make("text")), log_id=5)
    schema = letters(targets)
    persons, log = Writer(2, 1), Writer(3, 1)
    stranger = persons.write(create(others.at(2)))
    persons.write(delete(1))
    log.write(create(schema.at(2), {"to": bytes(stranger)}))
    assert len(view_of(schema, targets, others, persons, log).rows) == 1


def test_row_ended_by_a_migration_or_a_fork_does_not_cascade() -> None:
    targets = people()
    schema = letters(targets)
    persons, log = Writer(2, 1), Writer(3, 1)
    jane = persons.write(create(targets.at(2)))
    persons.write(delete(1))
    log.write(create(schema.at(2), {"to": bytes(jane)}))
    assert view_of(schema, targets, persons, log).rows == []
    targets.write(migration(name=REMOVE))
    assert len(view_of(schema, targets, persons, log).rows) == 1

    targets = people()
    branch = persons.branch_at(1)
    branch.write(create(targets.at(2), {"name": "Jane"}))
    assert len(view_of(schema, targets, persons, branch, log).rows) == 1


def test_delete_in_the_invalid_part_cascades() -> None:
    targets = people()
    schema = letters(targets)
    persons, log = Writer(2, 1), Writer(3, 1)
    jane = persons.write(create(targets.at(2)))
    persons.write(delete(1), lies_about_size=True)
    log.write(create(schema.at(2), {"to": bytes(jane)}))
    assert view_of(schema, targets, persons, log).rows == []


def test_view_waits_below_a_version_whose_relation_schema_is_not_registered() -> None:
    targets = people()
    schema = schema_log(
        migration(a=make("text")),
        migration(to=make("relation", schema=targets.at(0)[:2])),
        log_id=2,
    )
    log = Writer(3, 1)
    log.write(create(schema.at(2), {"a": "x"}))
    log.write(create(schema.at(3), {"a": "y"}))
    held = [*targets.held(), *schema.held(), *log.held()]
    [view] = fold_views(held, [schema.schema])
    assert (view.version, view.waits_for, view.stopped) == (2, [targets.schema], None)
    assert fields(view) == [{"a": "x"}]
    assert codes(view) == ["applied", "schema.version-unknown"]

    schema.write(migration(to=REMOVE))
    [view] = fold_views([*held, *schema.held()], [schema.schema])
    assert (view.version, view.waits_for) == (4, [])
    assert fields(view) == [{"a": "x"}, {"a": "y"}]
