"""What a task gives out of the copies that are to be cooked; run in place, as a worker of Spark would."""

from pathlib import Path

import pyarrow as pa
from sqlalchemy import insert

from inkgrove.core import identity_of
from inkgrove.messages import (
    Access,
    Create,
    FieldChange,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    encode_message,
)
from inkgrove.pipeline.rot.cooking import TO_COOK, readers_of, value_task
from inkgrove.pipeline.views import Snapshot
from inkgrove.store.db import EVERYTHING, PUBLIC, shares
from inkgrove.store.logs import find_log, open_store, payloads_of_schema
from inkgrove.store.node import HostedIdentity, add_identity
from tests.support.logs import LogBuilder, key

NOTES = SchemaId(key(90).public, 3)
VERSION = SchemaVersion(*NOTES, 2)


def test_values_are_those_of_the_fold_for_everyone_who_could_see_them(tmp_path: Path) -> None:
    me = identity_of(key(50).public)
    schema, log = LogBuilder(key(90), log_id=3), LogBuilder(key(1), log_id=4)
    fields = tuple(FieldChange(name, "create", kind) for name, kind in {"title": "text", "stars": "integer"}.items())
    for message in (SchemaMeta("notes"), SchemaMigration(fields)):
        schema.append(encode_message(message))
    log.append(encode_message(Create(VERSION, {"title": "first", "stars": 1})))
    log.append(encode_message(Update(VERSION, log.hash(1), {"stars": 7})))
    log.append(encode_message(Create(VERSION, {"title": "for all"}, access=Access("public"))))
    log.append(encode_message(Create(VERSION, {"stars": "many"}, access=Access("public"))))
    log.append(encode_message(Create(VERSION, {"title": "over"}, access=Access("public"))))
    log.append(encode_message(Create(SchemaVersion(key(91).public, 3, 2), {"title": "?"}, access=Access("public"))))
    log.append(encode_message(Create(VERSION, {"title": "before"}, access=Access("public"))))
    log.append(encode_message(Create(VERSION, {"title": "after"}, access=Access("public"), continues=log.hash(7))))
    with open_store(tmp_path) as store:
        for built in (schema, log):
            pairs = zip(built.entries, built.payloads, strict=True)
            store.ingest([(entry.encoded, payload) for entry, payload in pairs])
        hosted = HostedIdentity(me, "jane.haiku.ink", key(50).public, None, 0)
        row = {"instance": log.hash(1), "identity": me, "shared": 0}
        store.database.write(lambda c: (add_identity(c, hosted, None), c.execute(insert(shares), row)))
        state = store.read(find_log, key(1).public, 4)
        assert state is not None
        snapshot = Snapshot({NOTES: 1}, {NOTES: store.read(payloads_of_schema, NOTES)})
    owner, noted = bytes(key(1).public), 1_600_000_000_000_000
    copies = [
        (bytes(log.hash(1)), state.id, 1, owner, 5, 10, noted, 300, False),
        (bytes(log.hash(3)), state.id, 3, owner, 5, 11, noted, 200, False),
        (bytes(log.hash(4)), state.id, 4, owner, 5, 12, noted, 100, False),  # quarantined
        (bytes(log.hash(5)), state.id, 5, owner, 5, 13, noted, 100, True),
        (bytes(log.hash(6)), state.id, 6, owner, 6, 14, noted, 100, False),  # of a schema that is not registered
        (bytes(log.hash(7)), state.id, 7, owner, 5, 15, noted, 100, False),  # another one has come in its place
    ]
    batch = pa.RecordBatch.from_pylist([dict(zip(TO_COOK, copy, strict=True)) for copy in copies])
    (found,) = value_task(str(tmp_path), snapshot)(iter([batch]))
    told = {(row["reader"], row["field"], row["arrival"]): row for row in found.to_pylist()}
    assert told.keys() == {
        (reader, field, 10) for reader in (bytes(me), EVERYTHING) for field in ("", "title", "stars")
    } | {(reader, field, 11) for reader in (PUBLIC, EVERYTHING) for field in ("", "title")} | {
        (EVERYTHING, "", 13),
        (EVERYTHING, "title", 13),
        (PUBLIC, "", 14),
        (EVERYTHING, "", 14),
    }
    assert (told[bytes(me), "stars", 10]["number"], told[bytes(me), "title", 10]["text"]) == (7.0, "first")
    assert (told[PUBLIC, "", 11]["bytes"], told[PUBLIC, "", 11]["month"]) == (200, "2020-09")


def test_readers_are_those_whom_the_newest_word_lets_see_it() -> None:
    jane, john, mary = (bytes([number]) * 32 for number in (1, 2, 3))
    closed = Access("closed", (identity_of(key(2).public),))
    assert readers_of(None, {jane}, {mary}) == {EVERYTHING, jane}
    assert readers_of(Access("relations"), {jane}, {mary}) == {EVERYTHING, jane, mary}
    assert readers_of(Access("self"), {jane}, {mary}) == {EVERYTHING}
    assert readers_of(closed, {jane, bytes(identity_of(key(2).public))}, {john}) == {
        EVERYTHING,
        bytes(identity_of(key(2).public)),
    }
    assert readers_of(Access("public"), {jane}, set()) == {PUBLIC, EVERYTHING}
