"""The node that `bench/costs.py` attacks: a store filled with what strangers and users may put there, at its worst."""

import json
import os
import random
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from bench.stores import Writer
from inkgrove.core import Hash, IdentityId, SecretKey
from inkgrove.federation.peers import PeerRequest, render_well_known, sign_request, well_known_of
from inkgrove.federation.replication import catch_up
from inkgrove.messages import (
    Access,
    Create,
    FieldChange,
    IdentityDocument,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    Update,
    encode_message,
)
from inkgrove.messages.cbor import Value
from inkgrove.node.identity import SESSION, append_document, create_identity, hash_token
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import newest_offset, read_registered, register_schema
from inkgrove.store.node import add_session
from inkgrove.store.views import STREAM, write_progress

HOST, PASSWORD = "jane.haiku.ink", "correct horse battery"
STRANGER = "mallory.evil.ink"
LETTERS, LONG_LETTERS, REVISIONS, PLAIN_SCHEMAS, UPDATES = 20_000, 60, 100, 600, 700
NASTY = "(?s).*a.{700}b|(?:[a-z]{1,40}[0-9]?){1,9}x"
"""A pattern whose program and automaton are about as large as they may be."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What the worst inputs name."""

    home: Path
    token: str
    """A sign-in of an identity that has just been registered."""
    letters: str
    wide: str
    lists: str
    """Schemas, as AUTHOR/LOG."""
    letter: Hash
    long_past: Hash
    author: str
    """Of the letter."""


class Stranger:
    """A node elsewhere with one identity: it answers discovery, and signs requests."""

    def __init__(self, home: Path) -> None:
        self.node = Node(home, NodeSettings(**known(domains=("evil.ink",))), home=home)
        self.id: IdentityId = create_identity(self.node, STRANGER, None).id
        self.key: SecretKey = self.node.secret_key(create_identity(self.node, "author.evil.ink", None).key)
        self._own = load_node_key(self.node)
        self._document: bytes = b""
        self._nonce = 0

    def sign(self, method: str, target: str, body: bytes = b"", media_type: str | None = None) -> dict[str, str]:
        """The headers of a request in the name of the identity."""
        headers = (("content-type", media_type),) if media_type is not None else ()
        request = PeerRequest(method, f"https://{HOST}{target}", headers, body)
        self._nonce += 1
        nonce = f"costs{os.getpid():012d}{self._nonce:012d}"
        return dict(sign_request(request, self._own, sender=STRANGER, now=self.node.clock(), nonce=nonce).headers)

    @contextmanager
    def answering(self) -> Iterator[int]:
        """Answers everybody who wants to know who it is; the port."""
        document = json.dumps(render_well_known(well_known_of(self.node, STRANGER))).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def known(**settings: Any) -> dict[str, Any]:
    """Those of the settings that there are."""
    names = {field.name for field in fields(NodeSettings)}
    return {name: value for name, value in settings.items() if name in names}


def fill(home: Path) -> Filled:
    """Fill a new store; about a minute."""
    node = Node(home, NodeSettings(**known(domains=("haiku.ink",))), home=home)
    jane = create_identity(node, HOST, None)
    secret = node.secret_key(jane.key)
    new = create_identity(node, "new.haiku.ink", PASSWORD)
    token = SESSION + "costs" * 12
    expires = node.clock() + 86_400_000_000
    node.database.write(lambda connection: add_session(connection, hash_token(token), new.id, expires))

    schemas = _Schemas(node)
    types = {"subject": "varchar", "body": "text", "stars": "integer", "sent": "timestamp", "answers": "relation"}
    letters = schemas.add("letters", types)
    wide = schemas.add("wide", {f"field{number:03d}": "varchar" for number in range(256)}, NASTY)
    lists = schemas.add("lists", {"to": "relation[]"}, target=letters)
    rng = random.Random(1)
    names = _write_letters(node, letters, rng)
    writer = Writer(5_000, log_id=2)
    version = SchemaVersion(*lists, 2)
    some: list[Value] = [bytes(name) for name in names[:1024]]
    node.store.ingest([writer.sign(encode_message(Create(version, {"to": some}, Access("public")))) for _ in range(50)])
    writer, version = Writer(5_000, log_id=3), SchemaVersion(*wide, 2)
    shown: dict[str, Value] = {f"field{number:03d}": "abcdefgh" * 5 + "x40" for number in range(0, 256, 4)}
    node.store.ingest([writer.sign(encode_message(Create(version, shown, Access("public")))) for _ in range(20)])
    past = Writer(6_000, log_id=2)
    first = Create(SchemaVersion(*letters, 2), {"body": "x"}, Access("public"))
    signed = [past.sign(encode_message(first))]
    for number in range(UPDATES):
        update = Update(SchemaVersion(*letters, 2), past.hashes[0], {"body": f"{number} " + "y" * 20_000})
        signed.append(past.sign(encode_message(update)))
    node.store.ingest(signed)

    _build_views(home)
    while catch_up(node):
        continue
    # Schemas with long descriptions whose views are not built, and an identity that says something new all the time.
    plain = _Schemas(node, first=10_000)
    plain.add_many(PLAIN_SCHEMAS)
    for number in range(REVISIONS):
        profile = {f"{number} {part}": "z" * 9_990 for part in range(50)}
        document = IdentityDocument(HOST, f"https://{HOST}", None, profile)
        node.database.write(lambda connection: append_document(connection, secret, document))  # noqa: B023
    node.views.sync(node.store.read(read_registered))
    node.close()
    author = Writer(1).key.public.hex()
    return Filled(home, token, str(letters), str(wide), str(lists), names[0], past.hashes[0], author)


class _Schemas:
    """Publishes schemas by keys of its own, and has them materialised."""

    def __init__(self, node: Node, first: int = 1) -> None:
        self._node = node
        self._next = first

    def add(
        self, name: str, types: dict[str, str], pattern: str | None = None, target: SchemaId | None = None
    ) -> SchemaId:
        writer = Writer(9_000, log_id=self._next)
        self._next += 1
        changes = tuple(
            FieldChange(field, "create", type_name, validation=pattern)
            if pattern is not None
            else FieldChange(field, "create", type_name, schema=target)
            if target is not None and type_name == "relation[]"
            else FieldChange(field, "create", type_name)
            for field, type_name in types.items()
        )
        made: list[Message] = [SchemaMeta(name), SchemaMigration(changes)]
        self._node.store.ingest([writer.sign(encode_message(message)) for message in made])
        schema = SchemaId(writer.key.public, writer.log_id)
        self._node.store.write(register_schema, schema)
        return schema

    def add_many(self, count: int) -> None:
        for _ in range(count):
            writer = Writer(9_000, log_id=self._next)
            self._next += 1
            meta = SchemaMeta(f"plain{self._next}", description="d" * 200_000)
            change = SchemaMigration((FieldChange("text", "create", "text"),))
            self._node.store.ingest([writer.sign(encode_message(message)) for message in (meta, change)])
            self._node.store.write(register_schema, SchemaId(writer.key.public, writer.log_id))


def _write_letters(node: Node, letters: SchemaId, rng: random.Random) -> list[Hash]:
    version = SchemaVersion(*letters, 2)
    names: list[Hash] = []
    for author in range(1, 41):
        writer = Writer(author, log_id=2)
        batch = []
        for number in range(LETTERS // 40):
            is_long = len(names) < LONG_LETTERS
            words = "words " * (80_000 if is_long else 150)
            facts: dict[str, Value] = {
                "subject": f"Letter {author} {number}",
                "body": f"{rng.random()} {words}",
                "stars": rng.randrange(1_000_000),
                "sent": Timestamp(rng.randrange(10**15)),
            }
            batch.append(writer.sign(encode_message(Create(version, facts, Access("public")))))
            names.append(writer.hashes[-1])
        node.store.ingest(batch)
    return names


def _build_views(home: Path) -> None:
    spark = start_session(home / "spark-logs", {"spark.master": f"local[{os.cpu_count()}]"})
    materialiser = Materialiser(spark, str(home))
    materialiser.build_changed()
    newest = materialiser.store.read(newest_offset)
    materialiser.views.database.write(lambda connection: write_progress(connection, STREAM, 0, newest))
    materialiser.close()
    spark.stop()


def in_base64(data: bytes) -> str:
    """Bytes as JSON has them."""
    return b64encode(data).decode()
