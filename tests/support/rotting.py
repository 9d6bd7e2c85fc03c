"""A store with copies of other people's notes, for tests of rot: owners elsewhere, readers here, a clock by hand."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import insert, select

from inkgrove.core import Hash, hash_yamf, identity_of, union_of_pools
from inkgrove.messages import (
    Create,
    Delete,
    FieldChange,
    Message,
    Proof,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    encode_message,
    verify_proof,
)
from inkgrove.pipeline.rot.policy import Policy
from inkgrove.pipeline.rot.run import Rot
from inkgrove.pipeline.views import Materialiser
from inkgrove.reference import fold_views
from inkgrove.store.db import copies, shares, summaries
from inkgrove.store.logs import (
    AuthoredMessage,
    InstanceKey,
    find_log,
    messages_of,
    put_references,
    read_entries,
    read_registered,
    register_schema,
)
from inkgrove.store.node import HostedIdentity, add_identity
from inkgrove.store.rot import add_reads, find_copy
from inkgrove.store.views import put_blob, read_all_rows
from tests.support.logs import LogBuilder, key
from tests.support.views import held_by

NOW = 1_600_000_000_000_000
DAY = 86_400_000_000
NOTES = SchemaId(key(90).public, 3)
VERSION = SchemaVersion(*NOTES, 2)
FIELDS = {
    "title": "text",
    "stars": "integer",
    "weight": "float",
    "picture": "blob",
    "about": "relation",
    "part_of": "relation",
}
CASCADING = ("part_of",)


@dataclass
class Grove:
    """Owners are numbers from 1 on, each with a log of notes; 50 is an identity of this node."""

    spark: SparkSession
    place: str
    home: Path
    now: int = NOW
    logs: dict[int, LogBuilder] = field(default_factory=dict)
    notes: list[Hash] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rot = Rot(self.spark, self.place, self.home, lambda: self.now)
        self.store = self.rot.store
        self.me = identity_of(key(50).public)
        mine = HostedIdentity(self.me, "jane.haiku.ink", key(50).public, None, self.now)
        self.store.database.write(lambda connection: add_identity(connection, mine, None))
        self.materialiser = Materialiser(self.spark, self.place)
        schema = LogBuilder(key(90), log_id=NOTES.log_id)
        changes = tuple(
            FieldChange(
                name,
                "create",
                kind,
                schema=NOTES if kind == "relation" else None,
                cascade=True if name in CASCADING else None,
            )
            for name, kind in FIELDS.items()
        )
        for message in (SchemaMeta("notes"), SchemaMigration(changes)):
            schema.append(encode_message(message))
        self.take_in(schema)
        self.store.write(register_schema, NOTES)

    def close(self) -> None:
        self.materialiser.close()
        self.rot.close()

    def take_in(self, log: LogBuilder, first: int = 1) -> None:
        pairs = zip(log.entries[first - 1 :], log.payloads[first - 1 :], strict=True)
        for receipt in self.store.ingest([(entry.encoded, payload) for entry, payload in pairs]):
            assert receipt.error is None, receipt

    # What happens

    def say(self, owner: int, message: Message) -> Hash:
        log = self.logs.setdefault(owner, LogBuilder(key(owner), log_id=4))
        log.append(encode_message(message))
        self.take_in(log, len(log.entries))
        return log.hash(len(log.entries))

    def note(self, owner: int = 1, *, sent: bool = True, facts: dict[str, Any] | None = None, **fields: Any) -> Hash:
        """A new note, sent to the identity of this node."""
        instance = self.say(owner, Create(VERSION, fields, **(facts or {})))
        self.notes.append(instance)
        if sent:
            row = {"instance": instance, "identity": self.me, "shared": self.now}
            self.store.database.write(lambda connection: connection.execute(insert(shares), row))
        return instance

    def change(self, owner: int, instance: Hash, **fields: Any) -> None:
        self.say(owner, Update(VERSION, instance, fields))

    def delete(self, owner: int, instance: Hash) -> None:
        self.say(owner, Delete(instance))

    def picture(self, owner: int, size: int, name: str, **fields: Any) -> Hash:
        """A note with a blob of so many bytes."""
        content = (name.encode() * size)[:size]
        blob: dict[str, Any] = {"hash": hash_yamf(content), "size": size, "type": "image/png"}
        instance = self.note(owner, picture=blob, **fields)
        author, message = key(owner).public, Create(VERSION, {"picture": blob})
        path = self.rot.files.path_of(hash_yamf(content))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

        def work(connection: Any) -> None:
            put_blob(connection, hash_yamf(content), size, self.now)
            put_references(connection, AuthoredMessage(instance, author, message), [hash_yamf(content)])

        self.store.database.write(work)
        return instance

    def read(self, instance: Hash, times: int = 1) -> None:
        self.store.database.write(lambda connection: add_reads(connection, {instance: times}))

    def run(self, **policy: Any) -> Any:
        return self.rot.run(Policy(**policy))

    # How it stands

    def steps(self) -> dict[Hash, str]:
        query = select(copies.c.instance, copies.c.step)
        found = self.store.database.read(lambda connection: connection.execute(query).all())
        return {Hash(row.instance): row.step for row in found}

    def step(self, instance: Hash) -> str | None:
        copy = self.store.database.read(lambda connection: find_copy(connection, instance))
        return None if copy is None else copy.step

    def held_bytes(self) -> int:
        """The payloads of notes, as the store holds them."""
        total = 0
        for log in self.logs.values():
            for stored in self.store.read(read_entries, log.secret.public, log.log_id):
                total += len(stored.payload or b"")
        return total

    def blob_sizes(self) -> set[int]:
        """Of the files that are there."""
        return {path.stat().st_size for path in self.home.glob("blobs/*/*")}

    def shown(self) -> set[Hash]:
        """What a view of the store shows, by the oracle."""
        views = {view.schema: view for view in fold_views(held_by(self.store), self.store.read(read_registered))}
        return {row.instance for row in views[NOTES].rows}

    def materialised(self) -> set[Hash]:
        """What the view of the pipeline shows, once it has caught up."""
        self.materialiser.catch_up()
        view = self.materialiser.views.views()[NOTES]
        with self.materialiser.views.database.reading() as connection:
            return {row.instance for row in read_all_rows(connection, view)}

    def prove(self, owner: int, instance: Hash) -> None:
        """Check the proof of a note from what is held."""
        log = self.logs[owner]
        state = self.store.read(find_log, log.secret.public, log.log_id)
        assert state is not None
        seq_num = next(n for n in range(1, len(log.entries) + 1) if log.hash(n) == instance)
        own = {item.seq_num for item in self.store.read(messages_of, [InstanceKey(state.id, seq_num)]).popitem()[1]}
        held = self.store.read(read_entries, log.secret.public, log.log_id)
        pool = set(union_of_pools(sorted(own), state.height))
        entries = [
            (stored.entry.encoded, stored.payload if stored.entry.seq_num in own else None)
            for stored in held
            if stored.entry.seq_num in pool
        ]
        verify_proof(Proof(instance, entries))

    def summaries(self) -> list[Any]:
        return self.store.database.read(lambda connection: list(connection.execute(select(summaries)).all()))
