"""Blobs of shared instances: fetched from the owner's node for those who may see them, and believed by their hash."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import parse_hash
from inkgrove.federation.peers import Discovery, HttpTransport, PeerRequest, PeerResponse
from inkgrove.federation.sharing import PART_BYTES, BlobFetcher
from inkgrove.node.identity import Caller
from inkgrove.store.logs import payloads_of_schema, register_schema, unregister_schema
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.nodes import Person
from tests.support.peers import run
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal, schema_id
from tests.support.replication import sync

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
        until(lambda: len(b.store.read(payloads_of_schema, schema_id(self.schema)).payloads) == 2)
        for letter in "ab":
            build_views(self.them.nodes[letter].node)
        return mail


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        jane, carol, dora = them.person("jane", "a"), them.person("carol", "b"), them.person("dora", "b")
        schema = make_schema(jane)
        for letter in "ab":
            them.nodes[letter].node.store.write(register_schema, schema_id(schema))
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


def test_shared_and_replicated_blobs_are_read_though_neither_node_has_a_view(world: World) -> None:
    for letter in "ab":
        world.them.nodes[letter].node.store.write(unregister_schema, schema_id(world.schema))
    shared, public = world.upload(), world.upload(b"for everybody")
    mail = create(world.jane, world.schema, fields={"picture": shared}, recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, mail, carol_b="delivered")
    assert world.carol.get(f"/blobs/{shared['hash']}").content == PICTURE
    assert refusal(world.dora.get(f"/blobs/{shared['hash']}")) == (404, "blob.unknown")
    # Nobody there follows her: b has it by replication alone, and fetches the bytes for whoever asks.
    dave = world.them.person("dave", "a")
    post = create(world.jane, world.schema, fields={"picture": public}, access={"mode": "public"})["instance"]
    sync(world.them.nodes["b"], "dave.a.ink")
    assert not list(world.them.nodes["b"].node.blobs.directory.rglob(public["hash"]))
    assert world.them.nodes["b"].anybody.get(f"/blobs/{public['hash']}").content == b"for everybody"
    dave.close()
    assert world.jane.delete(f"/instances/{post}").status_code == 200
    sync(world.them.nodes["b"], "dave.a.ink")
    assert refusal(world.them.nodes["b"].anybody.get(f"/blobs/{public['hash']}")) == (404, "blob.unknown")


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


# Owners who play tricks


class Owner:
    """Answers for the owner's node: each time the next of some sizes and parts, the last one for good."""

    def __init__(self, *answers: tuple[int, bytes], seconds: float = 0.0) -> None:
        self.answers = list(answers)
        self.seconds = seconds
        self.asked: list[str] = []
        self.under_way = self.most = 0

    async def send(self, request: PeerRequest) -> PeerResponse:
        self.asked.append(request.url.rpartition("=")[2])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.under_way -= 1
        size, part = self.answers[min(len(self.asked), len(self.answers)) - 1]
        return PeerResponse(200, (("X-Blob-Size", str(size)),), part)


def fetch_from(world: World, owner: Owner, blobs: Sequence[dict[str, Any]], **options: Any) -> list[bool]:
    """Whether carol's node has the blobs after it asked for all of them at once."""
    node = world.them.nodes["b"].node

    async def work() -> list[bool]:
        async with HttpTransport(node.settings) as transport:
            fetcher = BlobFetcher(node, owner, Discovery(node, transport), **options)
            return await asyncio.gather(*(fetcher.fetch(Caller(world.carol.id), blob["hash"]) for blob in blobs))

    found = run(work())
    assert not list(node.blobs.directory.rglob("draft-*")), "drafts are thrown away"
    return found


def test_blob_that_comes_byte_by_byte_is_not_waited_for(world: World) -> None:
    blob = world.upload()
    world.send(blob)
    owner = Owner((len(PICTURE), b"a"))
    assert fetch_from(world, owner, [blob]) == [False]
    assert owner.asked == ["0"]


def test_blob_whose_size_changes_on_the_way_is_refused(world: World) -> None:
    blob = world.upload()
    world.send(blob)
    part = bytes(PART_BYTES)
    owner = Owner((2 * PART_BYTES, part), (3 * PART_BYTES, part), (4 * PART_BYTES, part))
    assert fetch_from(world, owner, [blob]) == [False]
    assert owner.asked == ["0", str(PART_BYTES)]


def test_blob_of_several_parts_and_one_of_none_are_fetched_whole(world: World) -> None:
    large, empty = world.upload(bytes(PART_BYTES) + b"the end"), world.upload(b"")
    world.send(large)
    world.send(empty)
    owner = Owner((PART_BYTES + 7, bytes(PART_BYTES)), (PART_BYTES + 7, b"the end"), (0, b""))
    assert fetch_from(world, owner, [large]) == [True]
    assert fetch_from(world, owner, [empty]) == [True]
    assert owner.asked == ["0", str(PART_BYTES), "0"]


def test_blobs_of_a_slow_owner_are_fetched_a_few_at_a_time_and_not_for_ever(world: World) -> None:
    blobs = [world.upload(bytes([number])) for number in range(9)]
    for blob in blobs:
        world.send(blob)
    owner = Owner((1, b"?"), seconds=60)
    assert fetch_from(world, owner, blobs, seconds=2.0) == [False] * 9
    assert owner.most == 4
