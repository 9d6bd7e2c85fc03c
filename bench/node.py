"""One node process over HTTP on loopback, the client in another process; against bare Ed25519 on one core."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import cbor2
from nacl.bindings import crypto_sign_open

from bench.harness import Row, compare
from examples.demo.ports import free_port
from inkgrove.core import Entry, Hash, SecretKey, has_lipmaa_link, lipmaa, sign_entry, verify_signed
from inkgrove.messages import (
    Create,
    FieldChange,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    encode_message,
    encode_salted,
)
from inkgrove.messages.cbor import Value
from inkgrove.node.identity import SESSION, create_identity, hash_token
from inkgrove.node.publishing import AddVersion, CreateSchema, PublishJob, Writer
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.node import add_session

TOKEN = SESSION + "bench" * 12
ROUNDS = 7
START_SECONDS = 2.0
BATCH, LOGS = 1000, 4
"""Entries in a batch, and logs that grow at the same time, each by one batch a round."""
REQUESTS, CONNECTIONS = 3000, 48


def set_up(home: Path) -> tuple[SecretKey, list[SchemaId]]:
    """A store with one identity, its sign-in and some schemas; the key, which client and node both hold."""
    node = Node(home, NodeSettings(), home=home)
    identity = create_identity(node, "bench.haiku.ink", None)
    expires = node.clock() + 3_600_000_000
    node.database.write(lambda connection: add_session(connection, hash_token(TOKEN), identity.id, expires))
    writer = Writer(node)
    types = {"subject": "text", "body": "text", "recipient": "relation", "created": "timestamp"}
    changes = tuple(FieldChange(name, "create", type_name) for name, type_name in types.items())
    schemas = [SchemaId(identity.key, log_id) for log_id in range(1, LOGS + 1)]
    for schema in schemas:
        writer.submit_and_wait(PublishJob(TOKEN, CreateSchema(SchemaMeta("slothmail"))))
        writer.submit_and_wait(PublishJob(TOKEN, AddVersion(schema, SchemaMigration(changes))))
    writer.close()
    secret = node.secret_key(identity.key)
    node.close()
    return secret, schemas


@contextmanager
def running(home: Path) -> Iterator[int]:
    """The node's process; its port."""
    port = free_port()
    environment = {**os.environ, "INKGROVE_NODE_LOG_LEVEL": "warning"}
    process = subprocess.Popen(
        [sys.executable, "-m", "inkgrove", "serve", "--home", str(home), "--port", str(port)], env=environment
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def request(path: str, body: bytes, form: str = "json") -> bytes:
    """A request as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {TOKEN}\r\n"
    return f"{head}Content-Type: application/{form}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def send_all(port: int, requests: list[bytes], connections: int) -> list[bytes]:
    """Send requests over some connections, each waiting for its answer; the bodies, all of 2xx."""
    waiting = iter(requests)
    bodies: list[bytes] = []

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        for item in waiting:
            writer.write(item)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            assert head.startswith(b"HTTP/1.1 20"), head + body
            bodies.append(body)
        writer.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return bodies


def sign_log(secret: SecretKey, schema: SchemaId, log_id: int, count: int) -> list[tuple[Entry, bytes]]:
    """A log of slothmails, signed by the client."""
    hashes: list[Hash] = []
    items = []
    for seq_num in range(1, count + 1):
        facts: dict[str, Value] = {"subject": f"Number {seq_num}", "body": "All is well up here."}
        message = Create(SchemaVersion(*schema, 2), {**facts, "created": Timestamp(seq_num), "recipient": bytes(66)})
        payload = encode_salted(message, bytes)
        entry = sign_entry(
            secret,
            payload,
            log_id=log_id,
            seq_num=seq_num,
            lipmaa_link=hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=hashes[-1] if hashes else None,
        )
        hashes.append(verify_signed(entry).hash)
        items.append((entry, payload))
    assert encode_message(message)
    return items


def batches(items: list[tuple[Entry, bytes]]) -> list[bytes]:
    """Requests of up to 1,000 entries."""
    found = []
    for start in range(0, len(items), BATCH):
        entries = [{"entry": entry.encoded, "payload": payload} for entry, payload in items[start : start + BATCH]]
        found.append(request("/entries", cbor2.dumps({"entries": entries}), "cbor"))
    return found


def contents(schema: SchemaId, count: int) -> list[bytes]:
    """Requests for new instances."""
    fields = {"body": "All is well up here.", "recipient": "00" * 66, "created": "2020-05-22T12:38:50Z"}
    bodies = ({"schema": str(schema), "fields": {"subject": f"Number {n}", **fields}} for n in range(count))
    return [request("/instances", json.dumps(body).encode()) for body in bodies]


def start_row() -> Row:
    """From the command to a node with a new store that listens."""
    seconds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with running(Path(folder)):
                seconds.append(time.perf_counter() - began)
    middle = median(seconds)
    ratio = START_SECONDS / middle
    about = f"a new store each time; median of {ROUNDS}, worst {max(seconds):.2f} s"
    return Row("node: starts", 1 / middle, "one in 2 s", 1 / START_SECONDS, ratio, ">= 1.00", ratio >= 1, about)


def rows() -> Iterator[Row]:
    yield start_row()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        secret, schemas = set_up(home)
        per_round = BATCH * LOGS
        logs = [
            sign_log(secret, schema, LOGS + number, BATCH * (ROUNDS + 1)) for number, schema in enumerate(schemas, 1)
        ]
        signed = [(entry.signature + entry.signed_bytes, bytes(entry.author)) for entry, _ in logs[0][:per_round]]
        # One round is the next batch of every log.
        rounds = zip(*(batches(log) for log in logs), strict=True)

        def verify() -> None:
            for data, author in signed:
                crypto_sign_open(data, author)

        with running(home) as port:

            def publish_batches() -> None:
                for body in asyncio.run(send_all(port, list(next(rounds)), LOGS)):
                    assert body.count(b'"stored"') == BATCH, body[:500]

            about = f"batches of {BATCH:,} in CBOR; {LOGS} logs at a time; one node process, SQLite, durable"
            rate, raw, ratio = compare(publish_batches, verify, per_round, ROUNDS)
            name = "node: publish by entry over HTTP, in batches"
            yield Row(name, rate, "libsodium verifies", raw, ratio, ">= 0.50", ratio >= 0.50, about)

            wanted = contents(schemas[0], REQUESTS)

            def publish_contents() -> None:
                assert len(asyncio.run(send_all(port, wanted, CONNECTIONS))) == REQUESTS

            about = f"one instance a request; {CONNECTIONS} connections; one node process, SQLite, durable"
            few = signed[:REQUESTS]

            def verify_few() -> None:
                for data, author in few:
                    crypto_sign_open(data, author)

            rate, raw, ratio = compare(publish_contents, verify_few, REQUESTS, ROUNDS)
            name = "node: publish by content over HTTP"
            yield Row(name, rate, "libsodium verifies", raw, ratio, ">= 0.15", ratio >= 0.15, about)


if __name__ == "__main__":
    for row in rows():
        print(f"{row.name}: {row.rate:,.2f}/s of {row.baseline_rate:,.2f}/s, {row.ratio:.3f} ({row.target})")
