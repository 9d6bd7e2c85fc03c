"""Reading over HTTP, p99 in a bare client on one connection, next to the same SQL run directly on the database.

A view of INKGROVE_BENCH_ENTRIES rows (100,000 by default, 1,000,000 for the record), kept in .cache/bench.
"""

import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event

from bench.harness import Row
from bench.pipeline import ENTRIES
from bench.stores import AUTHORS, SCHEMA, Writer, add_schema, kept
from examples.demo.ports import free_port
from inkgrove.core import Hash
from inkgrove.federation.replication import catch_up
from inkgrove.messages import Access, Create, SchemaVersion, Timestamp, encode_message
from inkgrove.messages.cbor import Value
from inkgrove.node.reading import ViewQuery, query_view, show_instance
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import LogStore, newest_offset
from inkgrove.store.views import STREAM, write_progress

ROUNDS, WARM = 2_200, 200
TURN = 50
"""How many of a kind follow each other: a server that is asked now and then wakes up again for each request."""
FIRST = 1_590_000_000_000_000
MINUTE = 60_000_000
_SERVE = """
import sys, uvicorn
from pathlib import Path
from inkgrove.api.app import make_app
from inkgrove.api.http import make_config, open_app
from inkgrove.node.settings import NodeSettings
home, port = Path(sys.argv[1]), int(sys.argv[2])
settings = NodeSettings(port=port, log_level="warning")
uvicorn.Server(make_config(open_app(home, settings, home, make_app), settings)).run()
"""
_SERVE_NOTHING = """
import sys, uvicorn
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=int(sys.argv[2]), lifespan="off", log_level="warning", access_log=False)
"""


def make_home() -> Path:
    """A store with public letters of a thousand authors, each a minute after the one before, and their view."""

    def make(store: LogStore) -> None:
        add_schema(store)
        version, number = SchemaVersion(*SCHEMA, 4), 0
        for start in range(0, AUTHORS, 50):
            batch = []
            for writer in [Writer(number + 1) for number in range(start, start + 50)]:
                for _ in range(ENTRIES // AUTHORS):
                    number += 1
                    fields: dict[str, Value] = {
                        "subject": f"Letter {number}",
                        "body": "words " * 20,
                        "created": Timestamp(FIRST + number * MINUTE),
                    }
                    batch.append(writer.sign(encode_message(Create(version, fields, Access("public")))))
            store.ingest(batch)

    home = kept(f"reading-{ENTRIES}", make)
    if not (home / "viewed").exists():
        spark = start_session(home / "spark-logs", {"spark.master": f"local[{os.cpu_count()}]"})
        materialiser = Materialiser(spark, str(home))
        materialiser.build_changed()
        # The view was just built from everything: a batch of all positions would fold it a second time.
        newest = materialiser.store.read(newest_offset)
        materialiser.views.database.write(lambda connection: write_progress(connection, STREAM, 0, newest))
        materialiser.close()
        spark.stop()
        # A node that has run for a while has looked at all that came; a new one would do so beside the first requests.
        node = Node(home.resolve(), NodeSettings(), home=home)
        while catch_up(node):
            continue
        node.close()
        (home / "viewed").touch()
    return home


def rows() -> Iterator[Row]:
    home = make_home()
    # Read from memory: what a cold disk takes says nothing about node or SQL, and is most of any p99.
    for name in ("node.db", "views.db"):
        with (home / name).open("rb") as file:
            while file.read(1 << 24):
                continue
    node = Node(home.resolve(), NodeSettings(), home=home)
    rng = random.Random(1)
    with sqlite3.connect(home / "views.db") as view:
        (table,) = view.execute("SELECT 'view_' || id || '_rows_' || generation FROM views").fetchone()
        places = [rng.randrange(ENTRIES) + 1 for _ in range(ROUNDS)]
        asked = f"SELECT _instance FROM {table} WHERE rowid = ?"
        found = [Hash(view.execute(asked, (place,)).fetchone()[0]) for place in places]
    moments = [str(Timestamp(FIRST + rng.randrange(ENTRIES) * MINUTE)) for _ in range(ROUNDS)]
    questions = [ViewQuery(where=[f"created:gte:{moment}"], sort=["created"]) for moment in moments]
    with _running(home.resolve(), _SERVE) as ask_node, _running(home, _SERVE_NOTHING) as ask_nobody:
        yield _compare(
            "GET /instances/{id}, p99",
            [partial(ask_node, f"/instances/{instance}") for instance in found],
            _statements(node, [partial(show_instance, node, None, instance) for instance in found]),
            partial(ask_nobody, "/"),
            home,
        )
        yield _compare(
            "filtered page of 50, p99",
            [partial(ask_node, f"/views/{SCHEMA}?where=created:gte:{moment}&sort=created") for moment in moments],
            _statements(node, [partial(query_view, node, None, str(SCHEMA), question) for question in questions]),
            partial(ask_nobody, "/"),
            home,
        )
    node.close()


@contextmanager
def _running(home: Path, program: str) -> Iterator[Callable[[str], bytes]]:
    """A server in a process of its own; what asks it over one connection and gives the body."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", program, str(home), str(port)])
    try:
        connection = _connect(port)

        def get(path: str) -> bytes:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            data = connection.recv(1 << 20)
            while (end := data.find(b"\r\n\r\n")) < 0:
                data += connection.recv(1 << 20)
            head = data[:end].lower()
            assert head.startswith(b"http/1.1 200"), data
            size = end + 4 + int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(data) < size:
                data += connection.recv(1 << 20)
            return data[end + 4 :]

        yield get
        connection.close()
    finally:
        server.terminate()
        server.wait(20)


def _connect(port: int) -> socket.socket:
    for _ in range(400):
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise RuntimeError("the node does not answer")


Statements = list[tuple[str, Any]]


def _statements(node: Node, reads: Sequence[Callable[[], object]]) -> list[Statements]:
    """The SQL that each read sends to the views, as the driver gets it, with its values."""
    sent: Statements = []

    class Noting(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            sent.append((sql, parameters))
            return super().execute(sql, parameters)

    def connect(*arguments: Any, **options: Any) -> Any:
        return usual(*arguments, **{**options, "factory": Noting})

    database = node.views.database
    dialect: Any = database.engine.dialect
    usual = dialect.connect
    dialect.connect = connect
    database.close()  # from now on connections are made anew
    result = []
    for read in reads:
        sent.clear()
        read()
        result.append([item for item in sent if item[0].startswith("SELECT")])
    dialect.connect = usual
    database.close()
    assert all(result), "a read sent no SQL: there is nothing to compare with"
    return result


def _compare(
    name: str,
    requests: Sequence[Callable[[], bytes]],
    statements: list[Statements],
    ask_nobody: Callable[[], bytes],
    home: Path,
) -> Row:
    """Requests and the same SQL in turns, so that noise falls on both alike.

    The SQL is run by a program that does what any reader of the database must do: takes a connection out of a pool,
    begins, runs the statements, fetches the rows and writes them as JSON. Bare: the statements and nothing else, on
    a connection that is kept. Nothing: a request to a server that reads nothing and answers with nothing.
    """
    pool = create_engine(URL.create("sqlite+pysqlite", database=str(home / "views.db")))

    @event.listens_for(pool, "connect")
    def attach(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("ATTACH DATABASE ? AS node", (str(home / "node.db"),))

    bare = pool.raw_connection()
    times: dict[str, list[float]] = {"request": [], "sql": [], "bare": [], "nothing": []}
    work: dict[str, list[Callable[[], bytes | None]]] = {
        "request": list(requests),
        "sql": [partial(_read_plainly, pool, sql) for sql in statements],
        "bare": [partial(_read_bare, bare.driver_connection, sql) for sql in statements],
        "nothing": [ask_nobody] * len(requests),
    }
    for number, first in enumerate(range(0, ROUNDS, TURN)):
        # Whoever comes first brings what the others find at hand: both that are compared do so equally often.
        order = ("request", "sql", "bare", "nothing") if number % 2 else ("sql", "request", "bare", "nothing")
        for what in order:
            for read in work[what][first : first + TURN]:
                start = perf_counter()
                given = read()
                times[what].append(perf_counter() - start)
                if what == "request":
                    answer = given
    bare.close()
    pool.dispose()
    p99 = {what: quantiles(found[WARM:], n=100)[98] * 1e3 for what, found in times.items()}
    middle = {what: median(found[WARM:]) * 1e3 for what, found in times.items()}
    ratio = p99["request"] / p99["sql"]
    note = ", ".join(f"{what} {p99[what]:.2f} ms (median {middle[what]:.2f})" for what in times)
    note = f"{note}; {len(answer or b''):,} bytes of JSON; {ENTRIES:,} rows on SQLite"
    return Row(name, 1e3 / p99["request"], "the same SQL", 1e3 / p99["sql"], ratio, "<= 3.00", ratio <= 3, note)


def _read_plainly(pool: Engine, sql: Statements) -> bytes:
    connection = pool.raw_connection()
    try:
        driver: Any = connection.driver_connection
        driver.execute("BEGIN")
        found = []
        for statement, parameters in sql:
            cursor = driver.execute(statement, parameters)
            names = [column[0] for column in cursor.description]
            found.append([dict(zip(names, row, strict=True)) for row in cursor])
        driver.execute("ROLLBACK")
    finally:
        connection.close()
    return json.dumps(found, default=bytes.hex).encode()


def _read_bare(driver: Any, sql: Statements) -> None:
    for statement, parameters in sql:
        driver.execute(statement, parameters).fetchall()


if __name__ == "__main__":
    for row in rows():
        print(f"{row.name}: {row.ratio:.2f} ({row.target}); {row.note}")
