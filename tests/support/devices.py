"""Generated worlds of one person with several keys, which end and continue each other's instances (section 5.7).

Schemas are in order, so that what is wrong is between the logs: keys that are listed late, revoked or not at all, ends
of strangers and of other schemas, lines that branch, relations along them, forks, lies and missing payloads.
"""

import random
from typing import Any

from inkgrove.core import Hash, PublicKey, SecretKey, hash_yamf, identity_of
from inkgrove.messages import RevokedLog, SchemaId
from tests.support.generated import Generator, World
from tests.support.identity_worlds import IdentityWorld
from tests.support.logs import LogBuilder

NOTES, ANSWERS = 0, 1
"""Answers point to notes, and to answers."""


class DeviceGenerator(Generator):
    """Makes worlds of three keys of one identity and one stranger."""

    def world(self) -> World:
        rng = self.rng
        schemas = [self._notes(), self._answers()]
        secrets = [SecretKey.from_seed(bytes([100 + author]) * 32) for author in range(4)]
        self.of: dict[int, list[Hash]] = {NOTES: [hash_yamf(b"nowhere")], ANSWERS: []}
        logs = {(author, schema): LogBuilder(secrets[author], 1 + schema) for author in range(4) for schema in (0, 1)}
        self.logs = {(log.secret.public, log.log_id): log for log in logs.values()}
        for _ in range(rng.randint(5, 40)):
            author, schema = rng.choice([0, 0, 1, 1, 2, 2, 3]), rng.choice([NOTES, NOTES, ANSWERS])
            log = logs[author, schema]
            log.append(self._message(log, self.schema_ids[schema]))
            self.of[schema].append(log.hash(len(log.entries)))
        world = World(schemas=self.schema_ids, registered=list(self.schema_ids))
        for log in [*schemas, *self._logs_0(secrets)]:
            world.held += log.held()
        for log in logs.values():
            if log.entries:
                world.held += self._as_held(log)
        rng.shuffle(world.held)
        return world

    def _notes(self) -> LogBuilder:
        return self._schema([{"a": {"action": "create", "type": "text", "validation": "[a-z]*"}}])

    def _answers(self) -> LogBuilder:
        notes, own = self.schema_ids[NOTES], [bytes(SecretKey.from_seed(b"\x32" * 32).public), 11]
        relation = {"action": "create", "cascade": True}
        changes: list[dict[str, Any]] = [
            {"to": {**relation, "type": "relation", "schema": [bytes(notes.author), notes.log_id]}},
            {"all": {**relation, "type": "relation[]", "schema": [bytes(notes.author), notes.log_id]}},
            {"after": {**relation, "type": "relation", "schema": own}},
        ]
        return self._schema(changes)

    def _schema(self, changes: list[dict[str, Any]]) -> LogBuilder:
        log = LogBuilder(SecretKey.from_seed(b"\x32" * 32), log_id=10 + len(self.schema_ids))
        log.append(self.payload({"kind": "schema-meta", "name": f"schema{log.log_id}", "spec": 1}))
        log.append(self.payload({"kind": "schema-migration", "fields": changes}))
        self.schema_ids.append(SchemaId(log.secret.public, log.log_id))
        return log

    def _message(self, log: LogBuilder, home: SchemaId) -> bytes:
        return self.payload(self._said(log, self.schema_ids.index(home)))

    def _said(self, log: LogBuilder, schema: int) -> dict[str, Any]:
        rng = self.rng
        chance = rng.random()
        named = [bytes(self.schema_ids[schema].author), self.schema_ids[schema].log_id, 2]
        if chance < 0.6 or not log.entries:
            create: dict[str, Any] = {"kind": "create", "schema": named, "fields": self._values(schema)}
            if rng.random() < 0.4:
                create["continues"] = bytes(self._any(schema))
            return create
        own: Any = rng.randint(1, len(log.entries))
        if chance < 0.75:
            return {"kind": "update", "schema": named, "instance": own, "fields": self._values(schema)}
        if chance < 0.82:
            return {"kind": "delete", "instance": own}
        delete = {"kind": "delete", "instance": bytes(self._any(schema)), "schema": named}
        if rng.random() < 0.1:
            delete.pop("schema")
        return delete

    def _values(self, schema: int) -> list[dict[str, Any]]:
        rng = self.rng
        if schema == NOTES:
            return [{"a": rng.choice(["x", "y", "z", "z", "NOT"])}]
        values: list[dict[str, Any]] = []
        if rng.random() < 0.6:
            values.append({"to": bytes(self._any(NOTES))})
        if rng.random() < 0.4:
            values.append({"all": [bytes(self._any(NOTES)) for _ in range(rng.randint(0, 3))]})
        if rng.random() < 0.3:
            values.append({"after": bytes(self._any(ANSWERS))})
        return values

    def _any(self, schema: int) -> Hash:
        """Mostly an entry of a log of the schema; the newer the likelier."""
        rng = self.rng
        known = self.of[schema] or self.of[NOTES]
        if rng.random() < 0.05:
            return rng.choice(self.of[NOTES])
        return known[max(rng.randrange(len(known)), rng.randrange(len(known)))]

    def _logs_0(self, secrets: list[SecretKey]) -> list[LogBuilder]:
        rng = self.rng
        first, *further, _stranger = secrets
        identity = identity_of(first.public)
        logs = []
        for secret in further:
            log = LogBuilder(secret, log_id=0)
            log.append(self.payload({"kind": "key-of", "identity": identity if rng.random() < 0.95 else b"\1" * 32}))
            logs.append(log)
        documents = LogBuilder(first, log_id=0)
        for _ in range(rng.choice([1, 1, 2, 3])):
            keys = []
            for secret in further:
                item: dict[str, Any] = {"key": bytes(secret.public)}
                if rng.random() < 0.2:
                    item["revoked"] = [[log_id, rng.randint(0, 9)] for log_id in (1, 2) if rng.random() < 0.9]
                if rng.random() < 0.9:
                    keys.append(item)
            said = {"kind": "identity", "fqdn": "jane.haiku.ink", "endpoint": "https://haiku.ink", "keys": keys}
            documents.append(self.payload(said))
        return [*logs, documents]


class ControlGenerator(DeviceGenerator):
    """Makes worlds in which two identities have controllers, overrule them, and fork log 0 of every key.

    Keys are contested and revoked, with ends that pin a branch and with ends that do not; the second identity wants the
    keys of the first.
    """

    def world(self) -> World:
        self.forks: dict[tuple[PublicKey, int], list[LogBuilder]] = {}
        world = super().world()
        for branches in self.forks.values():
            for branch in branches:
                for item in branch.held():
                    if self.rng.random() < 0.95:
                        world.held.insert(self.rng.randint(0, len(world.held)), item)
        return world

    def _logs_0(self, secrets: list[SecretKey]) -> list[LogBuilder]:
        first, *further, other = secrets
        world = IdentityWorld(random.Random(self.rng.random()), [first, first, other], further, self._end_of)
        if self.rng.random() < 0.4:
            world.grow(self.rng.randint(1, 30))
        if self.rng.random() < 0.8:
            world.hand_over(first, self.rng.sample(further, self.rng.randint(1, len(further))))
        world.grow(self.rng.randint(0, 6))
        return [log for branches in world.branches.values() for log in branches]

    def _end_of(self, author: PublicKey, log_id: int) -> RevokedLog:
        rng, log = self.rng, self.logs.get((author, log_id))
        if log is None or not log.entries or rng.random() < 0.2:
            return RevokedLog(log_id, rng.randint(0, 9))
        branches = self.forks.setdefault((author, log_id), [])
        if not branches and rng.random() < 0.6:
            branch = log.fork_at(rng.randint(1, len(log.entries)))
            for _ in range(rng.randint(0, 2)):
                branch.append(self._message(branch, self.schema_ids[log_id - 1]))
            branches.append(branch)
        line = rng.choice([log, *branches])
        last = rng.randint(1, len(line.entries))
        return RevokedLog(log_id, last, line.hash(last) if rng.random() < 0.9 else None)
