"""Between real node processes on loopback: replication of many entries, and delivery to many nodes.

Replication against bare signature checks on one core. `python -m bench.federation serve HOME PORT NAME=PORT...` is a
node's side. INKGROVE_BENCH_REPLICATED sets how many entries are replicated.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx
import uvicorn
from nacl.bindings import crypto_sign_open

from bench.harness import Row
from bench.verification import signed_log, slothmails
from examples.demo.ports import free_port
from inkgrove.api.app import make_app
from inkgrove.api.http.serving import tune_garbage_collection
from inkgrove.api.http.telemetry import configure_logs
from inkgrove.core import Hash, SecretKey, has_lipmaa_link, hash_entry, lipmaa, sign_entry
from inkgrove.federation.peers import Discovery, Transport, run_with_transport
from inkgrove.federation.replication import Replicator, SyncResult, catch_up
from inkgrove.messages import (
    Access,
    Create,
    FieldChange,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    encode_message,
)
from inkgrove.messages.cbor import Value
from inkgrove.node.identity import SESSION, create_identity, hash_token
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import add_peer
from inkgrove.store.node import add_session, put_relation_state

ENTRIES = int(os.environ.get("INKGROVE_BENCH_REPLICATED", "100000"))
LOG = 1_000
"""Entries of an author."""
ROUNDS = 3
RAW = 5_000
NODES, RECIPIENTS, MAILS = 10, 100, 5
TOKEN = SESSION + "bench" * 12


def settings_of(ports: Mapping[str, int]) -> NodeSettings:
    """Names below `x.ink` lead to the port of node x."""
    resolve = tuple(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    return NodeSettings(resolve=resolve, replication_seconds=0)


def serve(home: Path, port: int, ports: Mapping[str, int]) -> None:
    """Serve until killed."""
    configure_logs(NodeSettings(log_level="warning"))
    node = Node(home, settings_of(ports), home=home)
    tune_garbage_collection()
    uvicorn.run(make_app(node), host="127.0.0.1", port=port, log_level="warning", access_log=False)


@contextmanager
def running(home: Path, letter: str, ports: Mapping[str, int]) -> Iterator[None]:
    """A node's process."""
    names = [f"{name}={port}" for name, port in ports.items()]
    command = [sys.executable, "-m", "bench.federation", "serve", str(home), str(ports[letter]), *names]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{ports[letter]}/healthz", timeout=2)
                break
            except httpx.TransportError:
                assert process.poll() is None, "the node ended"
                assert time.monotonic() < deadline, "the node does not answer"
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def raw_rate(checks: int = RAW) -> float:
    """Bare signature checks per second on one core."""
    encoded = signed_log(list(slothmails(1_000)))
    author, signed = encoded[0][1:33], [data[-64:] + data[:-64] for data in encoded]
    start = time.perf_counter()
    for _ in range(checks // len(signed)):
        for data in signed:
            crypto_sign_open(data, author)
    return checks / (time.perf_counter() - start)


# Replication


def _sign(key: SecretKey, log_id: int, payloads: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    hashes: list[Hash] = []
    items = []
    for seq_num, payload in enumerate(payloads, start=1):
        entry = sign_entry(
            key,
            payload,
            log_id=log_id,
            seq_num=seq_num,
            lipmaa_link=hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=hashes[-1] if hashes else None,
        )
        hashes.append(hash_entry(entry))
        items.append((entry.encoded, payload))
    return items


def fill(node: Node) -> None:
    """A schema, and public instances of it by many authors."""
    author = SecretKey.from_seed(b"\1" * 32)
    types = {"subject": "text", "body": "text", "recipient": "relation", "created": "timestamp"}
    changes = tuple(FieldChange(name, "create", type_name) for name, type_name in types.items())
    node.store.ingest(
        _sign(author, 12, [encode_message(SchemaMeta("slothmail")), encode_message(SchemaMigration(changes))])
    )
    for number in range(ENTRIES // LOG):
        payloads = []
        for mail in range(LOG):
            fields: dict[str, Value] = {
                "subject": f"Greetings number {mail}",
                "body": "The weather up here in the canopy is fine, and we hang on. " * 4,
                "recipient": b"\0\x40" + hashlib.blake2b(f"{number} {mail}".encode()).digest(),
                "created": Timestamp(1_590_148_730_000_000 + mail),
            }
            payloads.append(encode_message(Create(SchemaVersion(author.public, 12, 2), fields, Access("public"))))
        key = SecretKey.from_seed(hashlib.sha256(str(number).encode()).digest())
        node.store.ingest(_sign(key, 1, payloads))


def replicate(folder: Path) -> Row:
    """Whole syncs with an empty node, each beside a measurement of this machine as it is just then."""
    tune_garbage_collection()  # as the command does
    ratios, rates, raws = [], [], []
    source = folder / "a"
    ports = {"a": free_port()}
    node = Node(source, settings_of(ports), home=source)
    create_identity(node, "bench.a.ink", None)
    fill(node)
    while catch_up(node):  # as in a node that has been running
        pass
    node.close()
    for number in range(ROUNDS):
        letter = f"b{number}"
        ports = {"a": free_port(), letter: free_port()}
        home = folder / letter
        taker = Node(home, settings_of(ports), home=home)
        create_identity(taker, f"bench.{letter}.ink", None)
        taker.database.write(lambda connection: add_peer(connection, "bench.a.ink", 0))
        with running(source, "a", ports), running(home, letter, ports):
            before = raw_rate()
            start = time.perf_counter()
            synced = run_with_transport(taker.settings, lambda transport: _sync(taker, transport))  # noqa: B023
            rate = synced.stored / (time.perf_counter() - start)
            raw = (before + raw_rate()) / 2
        assert synced.stored >= ENTRIES, synced
        assert not synced.refused, synced
        taker.close()
        ratios.append(rate / raw)
        rates.append(rate)
        raws.append(raw)
    ratio = median(ratios)
    return Row(
        f"replication of {ENTRIES:,} entries, node to node",
        median(rates),
        "libsodium verifies, one core",
        median(raws),
        ratio,
        ">= 0.60",
        ratio >= 0.60,
        f"{ENTRIES // LOG} authors; both nodes and the sync are processes of one machine",
    )


async def _sync(node: Node, transport: Transport) -> SyncResult:
    replicator = Replicator(node, transport, Discovery(node, transport), bulk=2 * ENTRIES)
    return await replicator.sync("bench.a.ink")


# Delivery


def set_up_delivery(folder: Path, ports: Mapping[str, int]) -> None:
    """One sender on node a whom ten identities on each of ten other nodes follow; a schema with one field."""
    sender = Node(folder / "a", settings_of(ports), home=folder / "a")
    jane = create_identity(sender, "jane.a.ink", None)
    expires = sender.clock() + 3_600_000_000
    sender.database.write(lambda connection: add_session(connection, hash_token(TOKEN), jane.id, expires))
    for letter in ports:
        if letter == "a":
            continue
        node = Node(folder / letter, settings_of(ports), home=folder / letter)
        for number in range(RECIPIENTS // NODES):
            other = create_identity(node, f"r{number}.{letter}.ink", None)
            for some in (node, sender):
                some.database.write(lambda c, of=other.id: put_relation_state(c, of, jane.id, "accepted", 0))  # type: ignore[misc]
        node.close()
    sender.close()


def deliver(folder: Path) -> Row:
    """From the request that publishes to the last receipt, mail after mail."""
    letters = ["a", *(f"n{number}" for number in range(NODES))]
    ports = {letter: free_port() for letter in letters}
    set_up_delivery(folder, ports)
    names = [f"r{number}.{letter}.ink" for letter in letters[1:] for number in range(RECIPIENTS // NODES)]
    with ExitStack() as stack:
        for letter in letters:
            stack.enter_context(running(folder / letter, letter, ports))
        url = f"http://127.0.0.1:{ports['a']}"
        jane = stack.enter_context(httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60))
        schema = jane.post("/schemas", json={"name": "mail"}).json()["schema"]
        fields = [{"subject": {"action": "create", "type": "text"}}]
        assert jane.post(f"/schemas/{schema}/versions", json={"fields": fields}).status_code == 201
        body = {"schema": schema, "fields": {"subject": "Hello"}, "recipients": names}
        _wait(jane, jane.post("/instances", json=body).json()["instance"])  # everybody has been looked up then
        seconds = []
        for _ in range(MAILS):
            start = time.perf_counter()
            _wait(jane, jane.post("/instances", json=body).json()["instance"])
            seconds.append(time.perf_counter() - start)
    raw, rate = raw_rate(), RECIPIENTS / median(seconds)
    return Row(
        f"delivery to {RECIPIENTS} recipients on {NODES} nodes",
        rate,
        "libsodium verifies, one core",
        raw,
        rate / raw,
        "-",
        True,
        f"{median(seconds):.2f} s from the request to the last of {RECIPIENTS} receipts, {NODES + 1} processes",
    )


def _wait(client: httpx.Client, instance: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        states = [item["state"] for item in client.get(f"/instances/{instance}/deliveries").json()["deliveries"]]
        if states.count("delivered") == RECIPIENTS:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.02)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        yield replicate(Path(name))
    with tempfile.TemporaryDirectory() as name:
        yield deliver(Path(name))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        pairs = (item.partition("=") for item in sys.argv[4:])
        serve(Path(sys.argv[2]), int(sys.argv[3]), {letter: int(port) for letter, _, port in pairs})
    else:
        for row in rows():
            sys.stdout.write(f"{row}\n")
