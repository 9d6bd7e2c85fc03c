"""Schemas that are asked for, while more of them is named and some of it comes."""

import pytest

from inkgrove.core import IdentityId
from inkgrove.messages import SchemaId
from inkgrove.store.federation import WantedSchema, list_due_schemas, postpone_schema, want_schemas
from inkgrove.store.logs import LogStore
from tests.store.test_ingest import items
from tests.support.logs import LogBuilder, key
from tests.support.races import begin_before_commit

SCHEMA = SchemaId(key(1).public, 1)
JANE, JOHN = IdentityId(b"\1" * 32), IdentityId(b"\2" * 32)


def want(store: LogStore, version: int, now: int, via: IdentityId | None = None) -> None:
    store.database.write(lambda connection: want_schemas(connection, {SCHEMA: version}, now, via))


def due(store: LogStore, now: int) -> list[WantedSchema]:
    return store.database.write(lambda connection: list_due_schemas(connection, now, 10))


@pytest.mark.parametrize(
    ("version", "via", "is_news"),
    [(2, None, False), (1, None, False), (2, JANE, False), (3, None, True), (3, JANE, True), (1, JOHN, True)],
)
def test_only_what_is_new_is_asked_for_at_once(
    store: LogStore, version: int, via: IdentityId | None, *, is_news: bool
) -> None:
    want(store, 2, 0, JANE)
    (item,) = due(store, 0)
    store.database.write(lambda connection: postpone_schema(connection, item, 100))
    want(store, version, 5, via)
    assert [(found.version, found.via) for found in due(store, 5)] == [(max(version, 2), via or JANE)] * is_news
    assert [found.failures for found in due(store, 100)] == [0 if version == 3 else 1]


def test_who_brings_it_while_others_are_asked_is_not_put_off(store: LogStore) -> None:
    want(store, 1, 0, JANE)
    (item,) = due(store, 0)
    want(store, 1, 5, JOHN)
    store.database.write(lambda connection: postpone_schema(connection, item, 100))
    assert [found.via for found in due(store, 5)] == [JOHN]


def test_version_named_while_an_older_one_is_forgotten_stays_wanted(store: LogStore) -> None:
    want(store, 2, 0)
    store.ingest(items(LogBuilder(key(1)).grow(2)))
    begin_before_commit(
        store.database, lambda connection: want_schemas(connection, {SCHEMA: 3}, 0), lambda: due(store, 0)
    )
    assert [found.version for found in due(store, 0)] == [3]
