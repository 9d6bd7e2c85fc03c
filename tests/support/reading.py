"""A node with views for tests of reading: people who publish, share and follow, and a plain filter to compare with."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import delete, insert, update

from inkgrove.core import Hash, IdentityId, PublicKey, parse_public_key
from inkgrove.messages import (
    UNSET,
    Access,
    AccessMode,
    Create,
    Delete,
    FieldChange,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    Update,
    encode_message,
)
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.views import Materialiser
from inkgrove.reference import ReferenceRow, ReferenceView, fold_views
from inkgrove.store.db import relations, shares
from inkgrove.store.logs import Offset, newest_offset, read_registered, register_schema
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.views import held_by

NAMES = ("jane", "john", "mary", "admin")
SETTINGS = NodeSettings(
    registration="open",
    domains=("haiku.ink",),
    administrators=("admin.haiku.ink",),
    heartbeat_seconds=0.15,
    poll_seconds=0.02,
    at_least_seconds=0.5,
)
NOW = 1_600_000_000_000_000
MINUTE = 60_000_000
PEOPLE = SchemaId(key(70).public, 1)
MAILS = SchemaId(key(70).public, 2)
FIELDS = {
    "subject": "text",
    "size": "integer",
    "weight": "float",
    "is_read": "boolean",
    "sent": "timestamp",
    "sender": "relation",
    "about": "relation",
    "to": "relation[]",
}


def running_node(place: Path | str, home: Path) -> RunningNode:
    return RunningNode(place, home, SETTINGS)


@dataclass
class Person:
    """An identity with its own client, and a log for each schema."""

    name: str
    id: IdentityId
    author: PublicKey
    client: httpx.Client
    logs: dict[SchemaId, LogBuilder]


@dataclass
class World:
    """People on a node; what they do is told in messages and in the tables of the node."""

    node: RunningNode
    materialiser: Materialiser
    people: dict[str, Person] = field(default_factory=dict)
    instances: dict[Hash, tuple[Person, SchemaId]] = field(default_factory=dict)
    follows: set[tuple[IdentityId, IdentityId]] = field(default_factory=set)
    sent: set[tuple[Hash, IdentityId]] = field(default_factory=set)
    now: int = NOW
    _folded: tuple[tuple[list[SchemaId], Offset], dict[SchemaId | None, ReferenceView]] | None = None

    def __post_init__(self) -> None:
        self.node.node.clock = lambda: self.now
        for name in NAMES:
            created = self.node.create(f"{name}.haiku.ink")
            author = parse_public_key(created["key"])
            secret = self.node.node.secret_key(author)
            logs = {PEOPLE: LogBuilder(secret, log_id=1), MAILS: LogBuilder(secret, log_id=2)}
            client = self.node.sign_in(f"{name}.haiku.ink")
            self.people[name] = Person(name, IdentityId.fromhex(created["id"]), author, client, logs)
        self._define(PEOPLE, "person", [FieldChange("name", "create", "varchar")])
        changes = [
            FieldChange(
                name,
                "create",
                kind,
                schema=PEOPLE if kind.startswith("relation") else None,
                cascade=True if name in ("about", "to") else None,
            )
            for name, kind in FIELDS.items()
        ]
        self._define(MAILS, "mail", changes)

    def _define(self, schema_id: SchemaId, name: str, changes: list[FieldChange]) -> None:
        log = LogBuilder(key(70), log_id=schema_id.log_id)
        for message in (SchemaMeta(name), SchemaMigration(tuple(changes))):
            self.append(log, message)
        self.materialiser.store.write(register_schema, schema_id)

    # What happens

    def append(self, log: LogBuilder, message: Message) -> Hash:
        entry = log.append(encode_message(message))
        (receipt,) = self.materialiser.store.ingest([(entry.encoded, log.payloads[-1])])
        assert receipt.error is None
        assert receipt.hash is not None
        return receipt.hash

    def create(self, person: str, schema_id: SchemaId, fields: dict[str, Any], **rest: Any) -> Hash:
        owner = self.people[person]
        instance = self.append(owner.logs[schema_id], Create(SchemaVersion(*schema_id, 2), fields, **rest))
        self.instances[instance] = owner, schema_id
        return instance

    def update(self, instance: Hash, fields: dict[str, Any] | None = None, **rest: Any) -> None:
        owner, schema_id = self.instances[instance]
        said = UNSET if fields is None else fields
        self.append(owner.logs[schema_id], Update(SchemaVersion(*schema_id, 2), instance, said, **rest))

    def delete(self, instance: Hash) -> None:
        owner, schema_id = self.instances[instance]
        self.append(owner.logs[schema_id], Delete(instance))

    def share(self, instance: Hash, person: str) -> None:
        reader = self.people[person].id
        if (instance, reader) not in self.sent:
            self.sent.add((instance, reader))
            row = {"instance": instance, "identity": reader, "shared": self.now}
            self.node.node.database.write(lambda connection: connection.execute(insert(shares), row))

    def relate(self, follower: str, followee: str, state: str | None) -> None:
        pair = self.people[follower].id, self.people[followee].id
        is_it = (relations.c.follower == pair[0], relations.c.followee == pair[1])
        row = {"follower": pair[0], "followee": pair[1], "state": state, "changed": self.now}

        def work(connection: Any) -> None:
            if state is None:
                connection.execute(delete(relations).where(*is_it))
            elif connection.execute(update(relations).where(*is_it).values(row)).rowcount == 0:
                connection.execute(insert(relations), row)

        self.node.node.database.write(work)
        self.follows.discard(pair)
        if state == "accepted":
            self.follows.add(pair)

    def catch_up(self) -> None:
        self.materialiser.catch_up()

    # What should be seen

    def views(self) -> dict[SchemaId | None, ReferenceView]:
        """What the reference says, folded anew whenever the store has taken in something."""
        store = self.materialiser.store
        registered, newest = store.read(read_registered), store.read(newest_offset)
        if self._folded is None or self._folded[0] != (registered, newest):
            found = {view.schema: view for view in fold_views(held_by(store), registered)}
            self._folded = (registered, newest), found
        return self._folded[1]

    def may_see(self, row: ReferenceRow, reader: Person | None) -> bool:
        """The rule of docs/protocol.md section 8, word by word."""
        if row.expires is not None and row.expires.microseconds <= self.now:
            return False
        mode = "listed" if row.access is None else row.access.mode
        if mode == "public":
            return True
        if reader is None:
            return False
        if row.author == reader.author:
            return True
        was_sent = (row.instance, reader.id) in self.sent
        if mode == "closed":
            return was_sent and row.access is not None and reader.id in row.access.to
        if mode == "relations":
            owner = next(person.id for person in self.people.values() if person.author == row.author)
            return (reader.id, owner) in self.follows
        return was_sent and mode == "listed"

    def client(self, reader: Person | None) -> httpx.Client:
        return self.node.anybody if reader is None else reader.client


class Chance:
    """Lets people do something, by a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)

    def access(self) -> Access | None:
        modes: list[AccessMode | None] = [None, "self", "closed", "listed", "relations", "relations", "public"]
        mode = self.rng.choice(modes)
        if mode is None:
            return None
        people = list(self.world.people.values())
        to = tuple(p.id for p in self.rng.sample(people, self.rng.randint(0, 3))) if mode == "closed" else ()
        return Access(mode, to)

    def expires(self) -> Timestamp | None:
        if self.rng.random() < 0.7:
            return None
        return Timestamp(self.world.now + self.rng.choice([-1, 0, 1, 2, 5]) * MINUTE)

    def value(self, name: str, kind: str) -> Any:
        rng = self.rng
        people = [instance for instance, (_, schema) in self.world.instances.items() if schema == PEOPLE]
        if rng.random() < 0.25:
            return None
        if kind == "text":
            return rng.choice(["", "a", "A", "ab", "Äb", "z%", "a_b", "zz", "\U0001f9a5", "\uffee"])
        if kind == "integer":
            return rng.choice([-(2**63), -1, 0, 1, 2, 2**63 - 1])
        if kind == "float":
            return rng.choice([-1.5, 0.0, -0.0, 0.1, 1e300, 2.0])
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "timestamp":
            return Timestamp(NOW + rng.randint(0, 3) * MINUTE)
        if kind == "relation[]":
            return [bytes(p) for p in rng.sample(people, rng.randint(0, min(3, len(people))))]
        # A cascade takes a row away for good: seldom enough to leave some.
        return bytes(rng.choice(people)) if people and (name != "about" or rng.random() < 0.3) else None

    def fields(self, schema_id: SchemaId, chosen: float = 1.0) -> dict[str, Any]:
        kinds = {"name": "text"} if schema_id == PEOPLE else FIELDS
        return {name: self.value(name, kind) for name, kind in kinds.items() if self.rng.random() < chosen}

    def act(self) -> None:
        rng, world = self.rng, self.world
        living = [row.instance for schema, view in world.views().items() if schema is not None for row in view.rows]
        what = rng.random()
        if what < 0.3 or len(living) < 5:
            schema_id = rng.choice([PEOPLE, MAILS, MAILS])
            fields = self.fields(schema_id)
            world.create(rng.choice(NAMES), schema_id, fields, access=self.access(), expires=self.expires())
        elif what < 0.5:
            instance = rng.choice(living)
            world.update(instance, self.fields(world.instances[instance][1], 0.4))
        elif what < 0.65:
            instance = rng.choice(living)
            access = self.access()
            world.update(instance, {} if access is None else None, access=access, expires=self.expires())
        elif what < 0.7:
            world.delete(rng.choice(living))
        elif what < 0.88:
            world.share(rng.choice(living), rng.choice(NAMES))
        else:
            follower, followee = rng.sample(NAMES, 2)
            world.relate(follower, followee, rng.choice(["accepted", "accepted", "requested", "blocked", None]))
