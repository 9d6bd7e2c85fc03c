"""Reading over HTTP, p99 in the client, next to the same SQL run directly on the database.

A view of INKGROVE_BENCH_ENTRIES rows (100,000 by default, 1,000,000 for the record), kept in .cache/bench.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from sqlalchemy import Connection, event

from bench.harness import Row
from bench.pipeline import AUTHORS, ENTRIES, SCHEMA, VERSIONS, Writer
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import SecretKey
from inkgrove.messages.ids import SchemaVersion
from inkgrove.messages.instance import Access, Create
from inkgrove.messages.message import encode_message
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.node.caller import ANYBODY
from inkgrove.node.node import Node
from inkgrove.node.query import Question, ask, show_instance
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.materialiser import Materialiser
from inkgrove.pipeline.session import start_session
from inkgrove.store.opening import open_store

ROUNDS = 1_500
FIRST = 1_590_000_000_000_000
MINUTE = 60_000_000
_SERVE = """
import sys, uvicorn
from pathlib import Path
from inkgrove.api.app import make_app
from inkgrove.api.logs import configure_logs
from inkgrove.api.serving import make_config
from inkgrove.node.node import Node
from inkgrove.node.settings import NodeSettings
home, port = Path(sys.argv[1]), int(sys.argv[2])
settings = NodeSettings(port=port, log_level="error")
configure_logs(settings)
uvicorn.Server(make_config(make_app(Node(home, settings, home=home)), settings)).run()
"""


def make_home(home: Path) -> None:
    """A store with public letters, each a minute after the one before, and their view."""
    store = open_store(home)
    dev = Writer(0)
    dev.key = SecretKey.from_seed(b"\1" * 32)
    store.ingest([dev.sign(encode_message(message), 12) for message in parse_messages(VERSIONS)])
    store.register(SCHEMA)
    version, number = SchemaVersion(*SCHEMA, 4), 0
    for start in range(0, AUTHORS, 50):
        batch = []
        for writer in [Writer(number + 1) for number in range(start, start + 50)]:
            for _ in range(ENTRIES // AUTHORS):
                number += 1
                fields = {
                    "subject": f"Letter {number}",
                    "body": "words " * 20,
                    "created": Timestamp(FIRST + number * MINUTE),
                }
                batch.append(writer.sign(encode_message(Create(version, fields, Access("public")))))
        store.ingest(batch)
    store.close()
    spark = start_session(home / "spark-logs", {"spark.master": f"local[{os.cpu_count()}]"})
    materialiser = Materialiser(spark, str(home))
    materialiser.catch_up(max_entries=1_000_000)
    materialiser.close()
    spark.stop()


def rows() -> Iterator[Row]:
    home = Path(".cache") / "bench" / f"reading-{ENTRIES}"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        make_home(home)
        (home / "done").touch()
    node = Node(home.resolve(), NodeSettings(), home=home)
    rng = random.Random(1)
    with sqlite3.connect(home / "views.db") as view:
        (table,) = view.execute("SELECT 'view_' || id || '_rows_' || generation FROM views").fetchone()
        found = [
            Hash(row[0]) for row in view.execute(f"SELECT _instance FROM {table} ORDER BY random() LIMIT {ROUNDS}")
        ]
    moments = [str(Timestamp(FIRST + rng.randrange(ENTRIES) * MINUTE)) for _ in range(ROUNDS)]
    port = 8_791
    server = subprocess.Popen([sys.executable, "-c", _SERVE, str(home.resolve()), str(port)])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            _wait(client)
            yield _compare(
                "GET /instances/{id}, p99",
                [lambda instance=instance: client.get(f"/instances/{instance}") for instance in found],
                _statements(
                    node, [lambda instance=instance: show_instance(node, ANYBODY, instance) for instance in found]
                ),
                home,
            )
            questions = [Question(where=[f"created:gte:{moment}"], sort=["created"]) for moment in moments]
            addresses = [f"/views/{SCHEMA}?where=created:gte:{moment}&sort=created" for moment in moments]
            yield _compare(
                "filtered page of 50, p99",
                [partial(client.get, address) for address in addresses],
                _statements(node, [partial(ask, node, ANYBODY, str(SCHEMA), question) for question in questions]),
                home,
            )
    finally:
        server.terminate()
        server.wait(20)
        node.close()


def _wait(client: httpx.Client) -> None:
    for _ in range(200):
        try:
            if client.get("/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError("the node does not answer")


def _statements(node: Node, reads: Sequence[Callable[[], object]]) -> list[list[tuple[str, Any]]]:
    """The SQL that each read sends to the views, with its parameters."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: Connection, _cursor: object, statement: str, parameters: Any, *_rest: object) -> None:
        if statement.startswith("SELECT"):
            sent.append((statement, parameters))

    event.listen(node.views.database.engine, "before_cursor_execute", note)
    result = []
    for read in reads:
        sent.clear()
        read()
        result.append(list(sent))
    event.remove(node.views.database.engine, "before_cursor_execute", note)
    return result


def _compare(
    name: str, requests: Sequence[Callable[[], Any]], statements: list[list[tuple[str, Any]]], home: Path
) -> Row:
    direct = sqlite3.connect(home / "views.db", isolation_level=None)
    direct.execute("ATTACH DATABASE ? AS node", (str(home / "node.db"),))
    ours, plain = [], []
    for request, sql in zip(requests, statements, strict=True):
        start = perf_counter()
        answer = request()
        ours.append(perf_counter() - start)
        assert answer.status_code == 200, answer.text
        start = perf_counter()
        for statement, parameters in sql:
            direct.execute(statement, parameters).fetchall()
        plain.append(perf_counter() - start)
    direct.close()
    p99, base = (sorted(times[50:])[int(len(times[50:]) * 0.99)] for times in (ours, plain))
    ratio = p99 / base
    note = f"{p99 * 1e3:.2f} ms, SQL alone {base * 1e3:.2f} ms; {ENTRIES:,} rows on SQLite"
    return Row(name, 1 / p99, "the same SQL", 1 / base, ratio, "<= 3.00", ratio <= 3, note)
