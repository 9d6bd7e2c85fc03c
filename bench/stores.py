"""Stores to measure the pipeline on, made once and kept in .cache/bench: signing a million entries takes a while."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.verification import slothmails
from inkgrove.core import Hash, IdentityId, SecretKey, has_lipmaa_link, hash_entry, identity_of, lipmaa, sign_entry
from inkgrove.messages import Create, IdentityDocument, SchemaId, SchemaVersion, encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.node.blobs import Upload
from inkgrove.node.identity import Caller, apply_identity_log
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import LogStore, open_store, read_entries, register_schema
from inkgrove.store.node import HostedIdentity, add_identity

AUTHORS = 1_000
SCHEMAS = 200
DEV = SecretKey.from_seed(b"\1" * 32)
SCHEMA = SchemaId(DEV.public, 12)
# The payloads of bench.verification name version 4.
VERSIONS = """kind: schema-meta
name: slothmail
spec: 1
---
kind: schema-migration
fields:
  - subject: {action: create, type: text}
  - body: {action: create, type: text}
---
kind: schema-migration
fields:
  - recipient: {action: create, type: relation}
---
kind: schema-migration
fields:
  - created: {action: create, type: timestamp}
"""


class Writer:
    """An author's log."""

    def __init__(self, number: int, log_id: int = 1) -> None:
        self.key = SecretKey.from_seed(number.to_bytes(4, "big") * 8)
        self.log_id = log_id
        self.hashes: list[Hash] = []

    def sign(self, payload: bytes) -> tuple[bytes, bytes]:
        seq_num = len(self.hashes) + 1
        entry = sign_entry(
            self.key,
            payload,
            log_id=self.log_id,
            seq_num=seq_num,
            lipmaa_link=self.hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=self.hashes[-1] if self.hashes else None,
        )
        self.hashes.append(hash_entry(entry))
        return entry.encoded, payload


def kept(name: str, make: Callable[[LogStore], None]) -> Path:
    """The store of this name; made if it is not there."""
    place = Path(".cache") / "bench" / name
    if not (place / "made").exists():
        shutil.rmtree(place, ignore_errors=True)
        with open_store(place) as store:
            make(store)
        (place / "made").touch()
    return place


def add_schema(store: LogStore, log_id: int = 12) -> None:
    """Register a schema of four versions."""
    dev = Writer(0, log_id)
    dev.key = DEV
    store.ingest([dev.sign(encode_message(message)) for message in parse_messages(VERSIONS)])
    store.write(register_schema, SchemaId(DEV.public, log_id))


def many_authors(count: int) -> Path:
    """So many creates of one schema by a thousand authors."""

    def make(store: LogStore) -> None:
        add_schema(store)
        payloads = list(slothmails(count // AUTHORS))
        for start in range(0, AUTHORS, 50):
            writers = [Writer(number + 1) for number in range(start, start + 50)]
            store.ingest([writer.sign(payload) for writer in writers for payload in payloads])

    return kept(str(count), make)


def long_log(count: int) -> Path:
    """One log of so many creates."""

    def make(store: LogStore) -> None:
        add_schema(store)
        writer = Writer(1)
        payloads = list(slothmails(count))
        for start in range(0, count, 5_000):
            store.ingest([writer.sign(payload) for payload in payloads[start : start + 5_000]])

    return kept(f"long-{count}", make)


def next_of_long_log(store: LogStore, count: int) -> Iterator[tuple[bytes, bytes]]:
    """More entries for the log of `long_log`."""
    writer = Writer(1)
    writer.hashes = [item.hash for item in store.read(read_entries, writer.key.public, 1)]
    for payload in slothmails(count):
        yield writer.sign(payload)


def many_schemas(schemas: int) -> Path:
    """A store with the schemas of logs 100, 101, ... and no messages yet."""

    def make(store: LogStore) -> None:
        for number in range(schemas):
            add_schema(store, 100 + number)

    return kept(f"schemas-{schemas}", make)


def messages_of_schemas(schemas: int, authors: int, each: int) -> list[tuple[bytes, bytes]]:
    """Creates by so many authors, one schema for each author in turn."""
    items = []
    for number in range(authors):
        writer = Writer(2_000_000 + number)
        version = SchemaVersion(DEV.public, 100 + number % schemas, 4)
        for count in range(each):
            fields = {"subject": f"Greetings {count}", "body": "We hang on."}
            items.append(writer.sign(encode_message(Create(version, fields))))
    return items


PERSON_LOGS = 10
PERSON_SETTINGS = NodeSettings(disk_reserve_bytes=0, identity_blob_bytes=1 << 40)
_BLOB = 8 << 20


def make_person(home: Path, entries: int, blob_bytes: int = 0) -> IdentityId:
    """Make a node in a directory with one identity that has so many entries and bytes of blobs."""
    first = Writer(7, 0)
    identity = identity_of(first.key.public)
    with open_store(home) as store:
        add_schema(store)
        document = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink")
        store.ingest([first.sign(encode_message(document))])
        hosted = HostedIdentity(identity, "jane.haiku.ink", first.key.public, None, 1, document.endpoint)
        store.write(add_identity, hosted, None)
        store.database.write(lambda connection: apply_identity_log(connection, first.key.public))
        for log_id in range(1, PERSON_LOGS + 1):
            writer = Writer(7, log_id)
            store.ingest([writer.sign(payload) for payload in slothmails(entries // PERSON_LOGS)])
    if blob_bytes:
        node = Node(home, PERSON_SETTINGS, home=home)
        for number in range(blob_bytes // _BLOB):
            with Upload(node, Caller(identity)) as upload:
                upload.write(number.to_bytes(8, "big") * (_BLOB // 8))
                upload.finish("image/png")
        node.close()
    return identity
