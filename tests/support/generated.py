"""Generated worlds: schemas with histories and logs of messages, some of them wrong in every way we know.

Everything comes from one random generator, so a seed is a world.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from inkgrove.core import (
    Entry,
    Flavour,
    Hash,
    HeldEntry,
    SecretKey,
    decode_entry,
    hash_yamf,
    identity_of,
    verify_signed,
)
from inkgrove.messages import SchemaId, Timestamp, cbor
from tests.support.logs import LogBuilder, resign

NAMES = ["a", "b", "c", "D", "e"]
TYPES = ["varchar", "text", "integer", "float", "boolean", "timestamp", "relation", "blob"]
PATTERNS = ["[a-z]*", "^[^#\\r\\n].*$", "(a+)+", "\\d+|true|x+", "(", "a{2000}"]
TEXTS = ["", "a", "abc", "12", "-7", "-0", "007", "true", "false", "x" * 255, "x" * 256, "Hello!\n...friend", "#tag"]
TEXTS += ["2020-05-22T11:58:50+0000", "2020-05-22T11:58:50", "9223372036854775808", "0040" + "ab" * 64, "ab"]
INTEGERS = [0, 1, -7, 12, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
CLEAN: dict[str, Any] = {
    "varchar": "abc",
    "text": "12",
    "integer": 7,
    "float": 3.0,
    "boolean": True,
    "timestamp": Timestamp(0),
    "relation": b"\1" * 32,
    "blob": {"hash": bytes(hash_yamf(b"")), "size": 0, "type": "image/png"},
}
FLOATS = [0.0, -0.0, 1.5, 3.0, -2.0, 1e300, 2.0**63, -(2.0**63)]


@dataclass
class World:
    """Entries as they are held, and what is registered."""

    held: list[HeldEntry] = field(default_factory=list)
    schemas: list[SchemaId] = field(default_factory=list)
    registered: list[SchemaId] = field(default_factory=list)


@dataclass
class _Fields:
    """What the generator believes of a schema's version; a belief, for some migrations are invalid."""

    types: dict[str, str] = field(default_factory=dict)


class Generator:
    """Makes worlds. Sizes are small: the faults are many and the oracle is slow."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pins = random.Random(f"pinned {seed}")
        self.instances: list[Hash] = [hash_yamf(b"nowhere")]
        self.schema_ids: list[SchemaId] = []
        self.versions: dict[SchemaId, list[_Fields]] = {}

    def world(self) -> World:
        rng = self.rng
        logs = [self._schema_log(number) for number in range(rng.randint(1, 3))]
        instance_logs: list[LogBuilder] = []
        for author in range(rng.randint(1, 3)):
            secret = SecretKey.from_seed(bytes([100 + author]) * 32)
            instance_logs += [self._instance_log(secret, log_id) for log_id in range(1, rng.randint(2, 3))]
        logs += instance_logs
        if rng.random() < 0.1:
            logs.append(self._instance_log(SecretKey.from_seed(bytes([100]) * 32), 0))
        world = World(schemas=self.schema_ids)
        for log in logs:
            world.held += self._as_held(log)
        rng.shuffle(world.held)
        world.registered = list(self.schema_ids)
        if rng.random() < 0.2:
            world.registered = [schema for schema in self.schema_ids if rng.random() < 0.6]
        if self.pins.random() < 0.85:
            self._revoke(world, instance_logs)
        return world

    def _revoke(self, world: World, logs: list[LogBuilder]) -> None:
        """Let an identity revoke one of the authors, in several documents, with ends and pins of all kinds."""
        rng = self.rng = self.pins  # what the world was without it, it stays
        author = rng.choice(logs).secret
        lines = {log.log_id: [log] for log in logs if log.secret.public == author.public and log.entries}
        extra: list[HeldEntry] = []
        for log_id, (log, *_) in lines.items():
            for _ in range(rng.choice([0, 1, 1, 2])):
                at = rng.randint(1, len(log.entries))
                branch = log.fork_at(at)
                for _ in range(rng.randint(0, 3)):
                    branch.append(self._message(branch, rng.choice(self.schema_ids)))
                extra += [item for item in branch.held()[at - 1 :] if rng.random() < 0.95]
                lines[log_id].append(branch)
        first = SecretKey.from_seed(bytes([150]) * 32)
        claim, documents = LogBuilder(author, 0), LogBuilder(first, 0)
        claim.append(self.payload({"kind": "key-of", "identity": bytes(identity_of(first.public))}))
        for _ in range(rng.randint(1, 3)):
            listed: dict[str, Any] = {"key": bytes(author.public)}
            if rng.random() < 0.9:
                listed["revoked"] = [self._end(log_id, some) for log_id, some in lines.items() if rng.random() < 0.95]
            name = {"fqdn": "jane.haiku.ink", "endpoint": "https://jane.haiku.ink"}
            documents.append(self.payload({"kind": "identity", **name, "keys": [listed]}))
        for item in (*extra, *claim.held(), *documents.held()):
            world.held.insert(rng.randint(0, len(world.held)), item)

    def _end(self, log_id: int, lines: list[LogBuilder]) -> list[Any]:
        rng = self.rng
        line = rng.choice(lines)
        last = rng.randint(max(1, len(line.entries) - 2), len(line.entries))
        if rng.random() < 0.15:
            return [log_id, last]
        pinned = line.hash(last) if rng.random() < 0.95 else hash_yamf(b"nowhere")
        return [log_id, last, bytes(pinned)]

    # schemas

    def _schema_log(self, number: int) -> LogBuilder:
        rng = self.rng
        log = LogBuilder(SecretKey.from_seed(bytes([50 + number % 2]) * 32), log_id=10 + number)
        schema_id = SchemaId(log.secret.public, log.log_id)
        self.schema_ids.append(schema_id)
        versions = self.versions[schema_id] = [_Fields()]
        log.append(self.payload({"kind": "schema-meta", "name": f"schema{number}", "spec": 1}))
        for step in range(rng.choice([0, 1, 3, 5, 7, 9])):
            chance = rng.random() if step else 0.3 + rng.random()
            if chance < 0.015:
                log.append(rng.choice([b"rubbish", self.payload({"kind": "delete", "instance": 1})]))
                versions.append(versions[-1])
            elif chance < 0.1:
                log.append(self.payload({"kind": "schema-meta", "name": "renamed", "spec": 1}))
                versions.append(versions[-1])
            elif chance < 0.25:
                target = rng.randint(1, len(versions)) if rng.random() < 0.95 else len(versions) + 1
                log.append(self.payload({"kind": "schema-revert", "target": target}))
                versions.append(versions[min(target, len(versions)) - 1])
            else:
                changes, after = self._changes(versions[-1])
                log.append(self.payload({"kind": "schema-migration", "fields": changes}))
                versions.append(after)
        return log

    def _changes(self, before: _Fields) -> tuple[list[dict[str, Any]], _Fields]:
        rng = self.rng
        types = dict(before.types)
        changes: list[dict[str, Any]] = []
        for name in rng.sample(NAMES, rng.randint(1, 3)):
            if rng.random() < 0.005:
                changes.append({name: {"action": rng.choice(["create", "remove"])} | {"type": "text"}})
            elif name not in types:
                type_name = self._type()
                change: dict[str, Any] = {"action": "create", "type": type_name, **self._extras(type_name)}
                if rng.random() < 0.5:
                    change["default"] = self._default(change)
                changes.append({name: change})
                types[name] = type_name
            elif rng.random() < 0.3:
                changes.append({name: {"action": "remove"}})
                del types[name]
            else:
                change = {"action": "update"}
                if rng.random() < 0.6:
                    types[name] = change["type"] = self._type(near=types[name])
                change |= self._extras(types[name])
                if rng.random() < 0.1:
                    change["validation"] = None
                change["default"] = self._default({"type": types[name], **change})
                changes.append({name: change})
        return changes, _Fields(types)

    def _default(self, change: dict[str, Any]) -> Any:
        """Mostly one that fits: a default that does not ends the schema."""
        if self.rng.random() < 0.02:
            return self.value(change["type"])
        if self.rng.random() < 0.3 or "validation" in change:
            return None
        element = CLEAN[change["type"].removesuffix("[]")]
        return [element] if change["type"].endswith("[]") else element

    def _type(self, near: str | None = None) -> str:
        rng = self.rng
        if near is not None and rng.random() < 0.7:
            return rng.choice(
                [near, near + "[]" if not near.endswith("[]") else near[:-2], "text", "integer", "text[]"]
            )
        return rng.choice(TYPES) + ("[]" if rng.random() < 0.25 else "")

    def _extras(self, type_name: str) -> dict[str, Any]:
        rng = self.rng
        extras: dict[str, Any] = {}
        if type_name.startswith(("varchar", "text")) and rng.random() < 0.3:
            extras["validation"] = rng.choice(PATTERNS[:4] if rng.random() < 0.97 else PATTERNS)
        if type_name.startswith("relation"):
            if rng.random() < 0.7:
                author, log_id = rng.choice(self.schema_ids)
                extras["schema"] = [bytes(author), log_id]
            if rng.random() < 0.6:
                extras["cascade"] = rng.random() < 0.8
        return extras

    def value(self, type_name: str, sloppy: float = 0.05) -> Any:
        rng = self.rng
        if rng.random() < 0.08:
            return None
        if rng.random() < sloppy:
            type_name = self._type()
        if type_name.endswith("[]"):
            elements = [self.value(type_name[:-2], sloppy=0) for _ in range(rng.choice([0, 1, 1, 2]))]
            return [element for element in elements if element is not None or rng.random() < 0.1]
        if type_name in ("varchar", "text"):
            return rng.choice(TEXTS)
        if type_name == "integer":
            return rng.choice(INTEGERS)
        if type_name == "float":
            return rng.choice([*FLOATS, *INTEGERS[:6]])
        if type_name == "boolean":
            return rng.random() < 0.5
        if type_name == "timestamp":
            return rng.choice([Timestamp(0), Timestamp(1_590_148_730_500_000), "2020-05-22T11:58:50+0000"])
        if type_name == "relation":
            return bytes(rng.choice(self.instances)) if rng.random() < 0.9 else rng.choice(["ab", b"\1" * 32, 3])
        return {"hash": bytes(hash_yamf(b"picture")), "size": rng.choice([0, 7]), "type": "image/png"}

    # instances

    def _instance_log(self, secret: SecretKey, log_id: int) -> LogBuilder:
        rng = self.rng
        log = LogBuilder(secret, log_id, Flavour.YASMF if rng.random() < 0.1 else Flavour.YAMF)
        home = rng.choice(self.schema_ids)
        for _ in range(rng.randint(0, 9)):
            log.append(self._message(log, home))
            if log.payloads[-1][:1] != b"r":
                self.instances.append(log.hash(len(log.entries)))
        return log

    def _message(self, log: LogBuilder, home: SchemaId) -> bytes:
        rng = self.rng
        chance = rng.random()
        if chance < 0.04:
            return rng.choice([b"rubbish", b"\xa0", self.payload({"kind": "schema-revert", "target": 1})])
        if chance < 0.06:
            return self.payload({"kind": "key-of", "identity": b"\1" * 32})
        schema = home if rng.random() < 0.95 else rng.choice(self.schema_ids)
        known = self.versions[schema]
        version = rng.randint(1, len(known)) if rng.random() < 0.95 else len(known) + 1
        named = [bytes(schema.author), schema.log_id, version]
        message: dict[str, Any]
        if chance < 0.5 or not log.entries:
            message = {"kind": "create", "schema": named, "fields": self._fields(schema, version, 0.8)}
            if rng.random() < 0.1:
                message["copied_from"] = bytes(rng.choice(self.instances))
        elif chance < 0.82:
            message = {"kind": "update", "schema": named, "instance": self._reference(log)}
            message["fields"] = self._fields(schema, version, 0.5)
        else:
            message = {"kind": "delete", "instance": self._reference(log)}
            if rng.random() < 0.3:
                message["schema"] = named
        if message["kind"] != "delete":
            if rng.random() < 0.1:
                message["access"] = {"mode": "public"}
            if rng.random() < 0.1:
                message["expires"] = rng.choice([None, Timestamp(5)])
        return self.payload(message)

    def _fields(self, schema: SchemaId, version: int, density: float) -> list[dict[str, Any]]:
        rng = self.rng
        known = self.versions[schema]
        types = known[min(version, len(known)) - 1].types
        if not types:
            later = [fields.types for fields in known if fields.types]
            types = later[0] if later else {}
        fields = [{name: self.value(type_name)} for name, type_name in types.items() if rng.random() < density]
        if rng.random() < 0.02:
            fields.append({"zz": 1})
        return fields

    def _reference(self, log: LogBuilder) -> Any:
        rng = self.rng
        chance = rng.random()
        if chance < 0.05:
            return rng.choice([bytes(rng.choice(self.instances)), b"\1" * 32, len(log.entries) + rng.randint(1, 3)])
        seq_num = rng.randint(1, len(log.entries))
        return seq_num if chance < 0.5 else bytes(log.hash(seq_num))

    @staticmethod
    def payload(value: dict[str, Any]) -> bytes:
        try:
            return cbor.encode(value)
        except Exception:  # noqa: BLE001
            return b"rubbish"

    # what is held

    def _as_held(self, log: LogBuilder) -> list[HeldEntry]:
        rng = self.rng
        entries: list[tuple[Entry, bytes]] = list(zip(log.entries, log.payloads, strict=True))
        height = len(entries)
        if height and rng.random() < 0.06:
            at = rng.randint(1, height)
            branch = log.fork_at(at)
            for _ in range(rng.randint(0, 2)):
                branch.append(self._message(branch, rng.choice(self.schema_ids)))
            branch.entries, branch.payloads = branch.entries[at - 1 :], branch.payloads[at - 1 :]
            entries += zip(branch.entries, branch.payloads, strict=True)
        if height and rng.random() < 0.05:
            last, payload = entries[height - 1]
            entries[height - 1] = self._with_wrong_size(log, last), payload
        held = []
        loses_entries = rng.random() < 0.12
        for entry, payload in entries:
            if loses_entries and rng.random() < 0.2:
                continue
            shown: bytes | None = payload
            if rng.random() < 0.04:
                shown = rng.choice([None, b"not this"])
            held.append(HeldEntry(verify_signed(entry), shown))
            if rng.random() < 0.05:
                held.append(HeldEntry(verify_signed(entry), rng.choice([None, payload])))
        return held

    @staticmethod
    def _with_wrong_size(log: LogBuilder, entry: Entry) -> Entry:
        size_at = len(entry.encoded) - 64 - len(entry.payload_hash) - 1
        if entry.payload_size >= 246:
            return entry
        wrong = bytearray(entry.encoded)
        wrong[size_at] += 1
        return decode_entry(resign(log.secret, bytes(wrong)))
