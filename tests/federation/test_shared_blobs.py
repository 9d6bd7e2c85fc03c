"""Blobs of shared instances: fetched from the owner's node for those who may see them, and believed by their hash."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core.hashing import parse_hash
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.nodes import Person
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal, schema_id

PICTURE = b"a sloth, hanging " * 1000


@dataclass
class World:
    """jane on node a, carol and dora on b; carol knows jane."""

    them: Federation
    jane: Person
    carol: Person
    dora: Person
    schema: str

    def upload(self, content: bytes = PICTURE) -> dict[str, Any]:
        answer = self.jane.post("/blobs", content=content, headers={"Content-Type": "image/png"})
        assert answer.status_code == 201, answer.text
        blob: dict[str, Any] = answer.json()
        return blob

    def send(self, blob: dict[str, Any], **facts: object) -> str:
        """A mail with a picture, which is in the views of both nodes."""
        mail: str = create(self.jane, self.schema, fields={"picture": blob}, recipients=["carol.b.ink"], **facts)[
            "instance"
        ]
        wait_for(self.jane, mail, carol_b="delivered")
        b = self.them.nodes["b"].node
        until(lambda: len(b.store.payloads_of_schema(schema_id(self.schema)).payloads) == 2)
        for letter in "ab":
            build_views(self.them.nodes[letter].node)
        return mail


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        jane, carol, dora = them.person("jane", "a"), them.person("carol", "b"), them.person("dora", "b")
        schema = make_schema(jane)
        for letter in "ab":
            them.nodes[letter].node.store.register(schema_id(schema))
        them.follow(jane, carol)
        yield World(them, jane, carol, dora, schema)


def test_recipient_reads_the_bytes_and_nobody_else(world: World) -> None:
    blob = world.upload()
    world.send(blob)
    assert refusal(world.dora.get(f"/blobs/{blob['hash']}")) == (404, "blob.unknown")
    answer = world.carol.get(f"/blobs/{blob['hash']}")
    assert (answer.status_code, answer.content) == (200, PICTURE)
    assert answer.headers["content-type"] == "image/png"
    # Now it is here, and still not for everybody.
    world.jane.close()
    assert world.carol.get(f"/blobs/{blob['hash']}").content == PICTURE
    assert refusal(world.dora.get(f"/blobs/{blob['hash']}")) == (404, "blob.unknown")


def test_naming_the_hash_of_somebody_elses_blob_opens_nothing(world: World) -> None:
    world.send(world.upload(b"another"))  # so that the schema is there
    blob = world.upload()  # jane's, in no instance that anybody was sent
    own = world.carol.post("/instances", json={"schema": world.schema, "fields": {"picture": blob}})
    assert own.status_code == 201, own.text
    build_views(world.them.nodes["b"].node)
    assert refusal(world.carol.get(f"/blobs/{blob['hash']}")) == (404, "blob.unknown")


def test_bytes_with_another_hash_are_thrown_away(world: World) -> None:
    blob = world.upload()
    world.send(blob)
    a, b = world.them.nodes["a"].node, world.them.nodes["b"].node
    a.blobs.path_of(parse_hash(blob["hash"])).write_bytes(PICTURE.replace(b"sloth", b"mouse"))
    assert refusal(world.carol.get(f"/blobs/{blob['hash']}")) == (404, "blob.unknown")
    assert not [path for path in b.blobs.directory.rglob("*") if path.is_file() and path.stat().st_size]
