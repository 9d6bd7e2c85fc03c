"""What was deleted is nowhere any more after `inkgrove erase`: no file of a home has it, no backup brings it back.

docs/protocol.md section 9.5. Canaries are texts that occur nowhere else: in fields, updates, blobs, outcomes, changes,
requests and shared copies.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from inkgrove.messages import Create, Delete, SchemaVersion, encode_message
from inkgrove.node.runtime import ERASED
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import register_schema
from tests.spark.conftest import Ended
from tests.store.postgres import PostgresServer
from tests.support.federated import Federation, federation, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person
from tests.support.publishing import make_schema, schema_id
from tests.support.tiers import amount
from tests.support.views import expected, materialised
from tests.unit.schema.test_oracle import exact

CANARY, KEEPER = "canary-bird-", "keeper-bee-"
INSTANCES = amount(12, 250)
"""Each has four canaries or more."""
FIELDS = [
    {"subject": {"action": "create", "type": "text"}},
    {"tags": {"action": "create", "type": "varchar[]"}},
    {"picture": {"action": "create", "type": "blob"}},
]
_numbers = count(1)

pytestmark = pytest.mark.both_databases


def canary(kind: str = CANARY) -> str:
    return f"{kind}{next(_numbers):06d}-" + "x" * 20


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    server: PostgresServer = request.getfixturevalue("postgres")
    return {letter: server.create_store(f"erasing_{letter}{next(_numbers)}") for letter in "ab"}


@pytest.fixture
def them(tmp_path: Path, places: dict[str, str]) -> Iterator[Federation]:
    with federation(tmp_path, "ab", places, erase_seconds=0) as nodes:
        yield nodes


class Pipelines:
    """The views of both nodes."""

    def __init__(self, spark: SparkSession, them: Federation, schema: str, stack: ExitStack) -> None:
        self.of = {}
        for letter, running in them.nodes.items():
            running.node.store.write(register_schema, schema_id(schema))
            self.of[letter] = Materialiser(spark, str(running.place))
            stack.callback(self.of[letter].close)

    def catch_up(self) -> None:
        for materialiser in self.of.values():
            materialiser.catch_up()

    def check(self) -> None:
        for materialiser in self.of.values():
            assert exact(materialised(materialiser)) == exact(expected(materialiser))


def publish(jane: Person, schema: str, john: Person, kind: str, number: int) -> str:
    """An instance whose every part is a canary: fields, tags, a blob, an update, and an answer that is kept."""
    blob = jane.post("/blobs", content=canary(kind).encode(), headers={"Content-Type": "text/plain"})
    assert blob.status_code in (200, 201), blob.text
    picture = {"hash": blob.json()["hash"], "size": blob.json()["size"], "type": "text/plain"}
    access = {"access": {"mode": "public"}} if number % 3 == 0 else {}
    body = {
        "schema": schema,
        "fields": {"subject": canary(kind), "tags": [canary(kind), "plain"], "picture": picture},
        "recipients": [john.fqdn],
        **access,
    }
    made = jane.post("/instances", json=body, headers={"Idempotency-Key": f"key{next(_numbers)}"})
    assert made.status_code == 201, made.text
    instance: str = made.json()["instance"]
    return instance


def change(jane: Person, instance: str, kind: str) -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    answer = jane.patch(f"/instances/{instance}", json={"fields": {"subject": canary(kind)}}, headers=patch)
    assert answer.status_code == 200, answer.text


class Quarantined:
    """Instances of somebody elsewhere that no view takes: the reasons for that quote names of fields."""

    def __init__(self, them: Federation, schema: str) -> None:
        self.log = LogBuilder(key(40), log_id=1)
        self.version = SchemaVersion(*schema_id(schema), 2)
        self.store = them.nodes["b"].node.store
        for _ in range(3):
            self.log.append(encode_message(Create(self.version, {canary(): 1}, salt=b"1" * 16)))
        self.ingest()

    def delete(self) -> None:
        for number in range(1, 4):
            self.log.append(encode_message(Delete(self.log.hash(number), self.version)))
        self.ingest()

    def ingest(self) -> None:
        offered = [(entry.encoded, payload) for entry, payload in zip(self.log.entries, self.log.payloads, strict=True)]
        assert not [receipt.error for receipt in self.store.ingest(offered) if receipt.error is not None]

    def bring_again(self) -> None:
        """Everything once more: entries are known, and content that was erased is not taken."""
        offered = [(entry.encoded, payload) for entry, payload in zip(self.log.entries, self.log.payloads, strict=True)]
        codes = [receipt.error.code if receipt.error else None for receipt in self.store.ingest(offered)]
        assert codes == ["payload.erased"] * 3 + [None] * 3


def files_with(folder: Path, text: str) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and text.encode() in path.read_bytes()]


def table_files_with(server: PostgresServer, place: str, text: str) -> list[str]:
    """The files of a database that have a text, once everything is written."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        assert row is not None
        where = connection.execute("SHOW data_directory").fetchone()
        assert where is not None
    return files_with(Path(where[0]) / "base" / str(row[0]), text)


def end_connections(place: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def found(them: dict[str, tuple[Path, Path | str]], request: pytest.FixtureRequest, text: str) -> list[str]:
    """Every file of both homes and of the tables that has a text."""
    files = []
    for home, place in them.values():
        files += files_with(home, text)
        if isinstance(place, str):
            files += table_files_with(request.getfixturevalue("postgres"), place, text)
    return files


def test_erased_content_is_in_no_file_and_does_not_come_back(
    spark: SparkSession,
    tmp_path: Path,
    them: Federation,
    run_here: Callable[..., Ended],
    request: pytest.FixtureRequest,
) -> None:
    jane, john = them.person("jane", "a"), them.person("john", "b")
    them.acquaint(jane, john)
    schema = make_schema(jane, fields=FIELDS)
    where = {letter: (running.home, running.place) for letter, running in them.nodes.items()}

    def command(letter: str, name: str, *arguments: str) -> dict[str, Any]:
        home, place = where[letter]
        store = ["--store", place] if isinstance(place, str) else []
        code, told, complaints = run_here(name, *arguments, "--home", str(home), *store, "--json")
        assert code == 0, complaints
        return dict(json.loads(told))

    with ExitStack() as stack:
        pipelines = Pipelines(spark, them, schema, stack)
        erased = [publish(jane, schema, john, CANARY, number) for number in range(INSTANCES)]
        kept = [publish(jane, schema, john, KEEPER, number) for number in range(3)]
        odd = Quarantined(them, schema)
        for instance in (*erased, *kept):
            wait_for(jane, instance, john_b="delivered")
        pipelines.catch_up()
        for instance in erased[::2]:
            change(jane, instance, CANARY)
            wait_for(jane, instance, john_b="delivered")
        pipelines.catch_up()
        assert found(where, request, CANARY)  # the search finds them while they are there
        backup = tmp_path / "backup"
        command("a", "backup", str(backup), "--with-vault-key")
        odd.delete()
        for instance in erased:
            assert jane.delete(f"/instances/{instance}").status_code == 200
        for instance in erased:
            wait_for(jane, instance, john_b="delivered")
        pipelines.catch_up()
        assert jane.get(f"/instances/{erased[0]}").status_code == 404
        # Before the grace is over nothing goes.
        assert command("a", "erase")["instances"] == 0
        for letter in "ab":
            due = command(letter, "erase", "--dry-run", "--grace", "0")["due"]
            assert due == len(erased) + (3 if letter == "b" else 0)
            report = command(letter, "erase", "--grace", "0")
            assert report["instances"] == due
        odd.bring_again()
        pipelines.catch_up()
        pipelines.check()
        for letter in "ab":
            assert command(letter, "erase", "--grace", "0")["instances"] == 0
    them.stack.close()
    assert found(where, request, CANARY) == []
    assert len(found(where, request, KEEPER)) >= 2
    journal = (where["a"][0] / ERASED).read_text().split()
    assert set(journal) >= set(erased)

    if isinstance(place := where["a"][1], str):
        end_connections(place)  # Spark's workers keep theirs
    command("a", "restore", str(backup), "--replace")
    assert files_with(backup, CANARY)
    assert found({"a": where["a"]}, request, CANARY) == []
    assert len(found({"a": where["a"]}, request, KEEPER)) >= 1
