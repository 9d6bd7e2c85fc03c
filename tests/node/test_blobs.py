"""Blobs over HTTP: who may read them, ranges, limits, and the collection of what nothing refers to."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import Access, Timestamp
from inkgrove.node.blobs import Upload, collect_blobs, find_blob, require_uploader, update_blob_references
from inkgrove.node.errors import OutOfScope, UnknownBlob
from inkgrove.node.identity import Caller, SchemaScope
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import register_schema
from tests.support.albums import Album
from tests.support.nodes import RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id
from tests.support.services import Service

DAY = 86_400
PICTURE = b"\x89PNG a picture of a sloth"
CONTENT = {"Content-Type": "image/png"}
MERGE = {"Content-Type": "application/merge-patch+json"}


def upload(client: httpx.Client, data: bytes = PICTURE, media_type: str = "image/png") -> dict[str, Any]:
    answer = client.post("/blobs", content=data, headers={"Content-Type": media_type})
    assert answer.status_code == 201, answer.text
    blob: dict[str, Any] = answer.json()
    return blob


def files(node: Node) -> list[Path]:
    return [path for path in node.blobs.directory.rglob("*") if path.is_file() and path.name != ".collecting"]


def can_read(client: httpx.Client, blob: dict[str, Any]) -> bool:
    answer = client.get(f"/blobs/{blob['hash']}")
    assert answer.status_code in (200, 404), answer.text
    return answer.status_code == 200


@pytest.fixture
def people(running: RunningNode) -> dict[str, dict[str, Any]]:
    return {name: running.create(f"{name}.haiku.ink") for name in ("jane", "john", "judy")}


@pytest.fixture
def clients(running: RunningNode, people: dict[str, Any]) -> dict[str, httpx.Client]:
    return {"nobody": running.anybody, **{name: running.sign_in(f"{name}.haiku.ink") for name in people}}


@pytest.fixture
def album(running: RunningNode) -> Album:
    return Album(running.node)


def readers(clients: dict[str, httpx.Client], blob: dict[str, Any]) -> set[str]:
    return {name for name, client in clients.items() if can_read(client, blob)}


# Upload and download


def test_answer_to_an_upload_is_what_a_blob_field_takes(clients: dict[str, httpx.Client]) -> None:
    blob = upload(clients["jane"])
    assert blob == {"hash": "0040" + blake2b(PICTURE).hexdigest(), "size": len(PICTURE), "type": "image/png"}
    answer = clients["jane"].get(f"/blobs/{blob['hash']}")
    assert answer.content == PICTURE
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["etag"] == f'"{blob["hash"]}"'


def test_empty_blob_is_a_blob(clients: dict[str, httpx.Client]) -> None:
    blob = upload(clients["jane"], b"", "text/plain")
    assert blob["size"] == 0
    assert clients["jane"].get(f"/blobs/{blob['hash']}").content == b""


def test_large_blob_comes_back_as_it_went(clients: dict[str, httpx.Client]) -> None:
    data = os.urandom(5_000_001)
    blob = upload(clients["jane"], data, "video/mp4")
    assert clients["jane"].get(f"/blobs/{blob['hash']}").content == data


@pytest.mark.parametrize(
    ("asked", "status", "part", "content_range"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=", 200, b"0123456789", None),
    ],
)
def test_single_range(
    clients: dict[str, httpx.Client], asked: str, status: int, part: bytes | None, content_range: str | None
) -> None:
    blob = upload(clients["jane"], b"0123456789", "text/plain")
    answer = clients["jane"].get(f"/blobs/{blob['hash']}", headers={"Range": asked})
    assert answer.status_code == status
    assert answer.headers.get("content-range") == content_range
    if part is None:
        assert answer.json()["code"] == "blob.bad-range"
    else:
        assert answer.content == part


def test_etag_saves_the_bytes(clients: dict[str, httpx.Client]) -> None:
    blob = upload(clients["jane"])
    path, etag = f"/blobs/{blob['hash']}", f'"{blob["hash"]}"'
    same = clients["jane"].get(path, headers={"If-None-Match": f'"other", W/{etag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert clients["jane"].get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    half = {"Range": "bytes=0-3"}
    assert clients["jane"].get(path, headers={**half, "If-Range": etag}).status_code == 206
    assert clients["jane"].get(path, headers={**half, "If-Range": '"other"'}).status_code == 200


def test_head_tells_all_but_the_bytes(clients: dict[str, httpx.Client]) -> None:
    blob = upload(clients["jane"])
    got, head = (clients["jane"].request(method, f"/blobs/{blob['hash']}") for method in ("GET", "HEAD"))
    unlike = {"date", "x-request-id"}
    assert head.content == b""
    assert {n: v for n, v in head.headers.items() if n not in unlike} == {
        n: v for n, v in got.headers.items() if n not in unlike
    }


@pytest.mark.parametrize(
    "media_type",
    [
        *("text/html", "text/javascript", "application/javascript", "text/css", "image/svg+xml"),
        *("application/xhtml+xml", "application/pdf", "application/wasm", "audio/unheard-of"),
    ],
)
def test_uploaded_scripts_and_pages_are_served_as_mere_bytes(clients: dict[str, httpx.Client], media_type: str) -> None:
    blob = upload(clients["jane"], b"alert(1)//<script>alert(1)</script>", media_type)
    for extra in ({}, {"Range": "bytes=0-3"}):
        headers = clients["jane"].get(f"/blobs/{blob['hash']}", headers=extra).headers
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"].startswith("attachment")
        assert headers.get_list("x-content-type-options") == ["nosniff"]
        assert headers.get_list("content-security-policy") == ["sandbox; default-src 'none'"]


@pytest.mark.parametrize("media_type", ["image/avif", "audio/mpeg", "video/webm", "text/plain"])
def test_what_cannot_act_is_shown_in_place_and_still_sandboxed(
    clients: dict[str, httpx.Client], media_type: str
) -> None:
    blob = upload(clients["jane"], b"alert(1)", media_type)
    headers = clients["jane"].get(f"/blobs/{blob['hash']}").headers
    assert headers["content-type"] == media_type
    assert headers["content-disposition"].startswith("inline")
    assert headers.get_list("x-content-type-options") == ["nosniff"]
    assert headers.get_list("content-security-policy") == ["sandbox; default-src 'none'"]


def test_upload_needs_somebody(running: RunningNode) -> None:
    answer = running.anybody.post("/blobs", content=PICTURE, headers=CONTENT)
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.required")
    assert files(running.node) == []


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "png"])
def test_forms_and_nonsense_are_no_blobs(clients: dict[str, httpx.Client], media_type: str) -> None:
    answer = clients["jane"].post("/blobs", content=PICTURE, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (415, "request.unsupported-media-type")


def test_service_uploads_with_a_scope_that_writes(people: dict[str, Any], album: Album) -> None:
    jane = IdentityId.fromhex(people["jane"]["id"])
    for action in ("create", "update"):
        scope = SchemaScope(album.schema_id, action)  # type: ignore[arg-type]
        assert require_uploader(Caller(jane, grant=1, scopes=frozenset({scope}))) == jane
    no_scopes: list[frozenset[Any]] = [frozenset({SchemaScope(album.schema_id, "read"), "relations:read"}), frozenset()]
    for scopes in no_scopes:
        with pytest.raises(OutOfScope):
            require_uploader(Caller(jane, grant=1, scopes=scopes))


# Limits


@pytest.fixture
def small(place: Path | str, tmp_path: Path) -> Iterator[RunningNode]:
    settings = NodeSettings(registration="open", domains=("haiku.ink",), max_blob_bytes=100_000, body_seconds=1)
    with RunningNode(place, tmp_path, settings) as node:
        node.create("jane.haiku.ink")
        yield node


def test_too_large_blob_is_refused_by_its_length_and_while_it_streams(small: RunningNode) -> None:
    jane = small.sign_in("jane.haiku.ink")
    for content in (b"x" * 100_001, iter([b"x" * 1000] * 101)):
        answer = jane.post("/blobs", content=content, headers=CONTENT)
        assert (answer.status_code, answer.json()["code"]) == (413, "blob.too-large")
        assert files(small.node) == []
    assert upload(jane, b"x" * 100_000)["size"] == 100_000


def test_upload_that_stops_half_way_leaves_nothing(small: RunningNode) -> None:
    token = small.sign_in("jane.haiku.ink").headers["authorization"]
    host, port = small.url.removeprefix("http://").split(":")
    head = f"POST /blobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\nContent-Length: 90000\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"x" * 1000)
        # Nothing more comes: the node gives up.
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert b"request.too-slow" in answer
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"x" * 1000)
        time.sleep(0.2)
    wait_until(lambda: files(small.node) == [])


def wait_until(condition: Any, seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


# Who may read


def test_uploader_alone_reads_what_no_instance_lends(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    assert readers(clients, blob) == {"jane"}
    # Naming a hash grants nothing: not to who names it, nor to their readers.
    album.create(people["john"], {"picture": blob}, Access("public"))
    album.build()
    assert readers(clients, blob) == {"jane"}


@pytest.mark.parametrize("field", ["picture", "more"])
def test_blob_is_read_by_the_readers_of_an_instance_of_its_uploader(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album, field: str
) -> None:
    blob = upload(clients["jane"])
    instance = album.create(people["jane"], {field: blob if field == "picture" else [blob]})
    album.build()
    assert readers(clients, blob) == {"jane"}
    share(running.node, instance, people["john"])
    assert readers(clients, blob) == {"jane", "john"}
    album.update(people["jane"], instance, access=Access("public"))
    album.build()
    assert readers(clients, blob) == {"nobody", "jane", "john", "judy"}
    album.update(people["jane"], instance, access=Access("self"))
    album.build()
    assert readers(clients, blob) == {"jane"}


def test_followers_read_what_relations_may_see(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    album.create(people["jane"], {"picture": blob}, Access("relations"))
    album.build()
    assert readers(clients, blob) == {"jane"}
    execute(
        running.node,
        "INSERT INTO relations (follower, followee, state, changed) VALUES (:follower, :followee, 'accepted', 0)",
        follower=bytes.fromhex(people["judy"]["id"]),
        followee=bytes.fromhex(people["jane"]["id"]),
    )
    assert readers(clients, blob) == {"jane", "judy"}


def test_expired_instance_lends_nothing(clients: dict[str, httpx.Client], people: dict[str, Any], album: Album) -> None:
    blob = upload(clients["jane"])
    instance = album.create(people["jane"], {"picture": blob}, Access("public"))
    album.update(people["jane"], instance, expires=Timestamp(1))
    album.build()
    assert readers(clients, blob) == {"jane"}


def test_upload_after_the_reference_lends_too(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    album.create(people["john"], {"picture": blob}, Access("public"))
    album.build()
    assert readers(clients, blob) == {"jane"}
    upload(clients["john"])
    assert readers(clients, blob) == {"nobody", "jane", "john", "judy"}


def test_who_could_read_it_may_lend_it_on_and_keeps_doing_so(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    original = album.create(people["jane"], {"picture": blob})
    share(running.node, original, people["john"])
    album.build()
    copy = album.create(people["john"], {"picture": blob})
    share(running.node, copy, people["judy"])
    album.build()
    assert readers(clients, blob) == {"jane", "john", "judy"}
    album.delete(people["jane"], original)
    album.build()
    assert readers(clients, blob) == {"jane", "john", "judy"}


def test_stranger_adds_no_reference_to_an_instance_of_somebody_else(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    secret = upload(clients["jane"], b"jane's own", "text/plain")
    public = album.create(people["john"], {"caption": "a sloth"}, Access("public"))
    album.create(people["jane"], {"picture": secret})
    album.update(people["jane"], public, fields={"picture": secret})  # quarantined: the instance is John's
    album.build()
    assert readers(clients, secret) == {"jane"}


def test_stranger_ends_no_reference_of_somebody_else(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    instance = album.create(people["jane"], {"picture": blob}, Access("public"))
    album.delete(people["john"], instance)
    album.build()
    assert collect_blobs(running.node, 0).blobs == 0
    assert readers(clients, blob) == {"nobody", "jane", "john", "judy"}


def test_service_reads_blobs_of_the_schemas_it_may_read_only(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    in_album, private = upload(clients["jane"]), upload(clients["jane"], b"private", "text/plain")
    album.create(people["jane"], {"picture": in_album})
    album.build()
    jane = IdentityId.fromhex(people["jane"]["id"])
    reading = Caller(jane, grant=1, scopes=frozenset({SchemaScope(album.schema_id, "read")}))
    writing = Caller(jane, grant=1, scopes=frozenset({SchemaScope(album.schema_id, "create")}))
    assert find_blob(running.node, reading, in_album["hash"]).size == len(PICTURE)
    for caller, blob in ((reading, private), (writing, in_album)):
        with pytest.raises(UnknownBlob):
            find_blob(running.node, caller, blob["hash"])


@dataclass
class Drawers:
    """Two schemas; jane has lent john a picture in the first, and a service of john's may write and read the second."""

    running: RunningNode
    jane: httpx.Client
    john: httpx.Client
    first: str
    second: str
    lent: dict[str, Any]

    def service(self, *more: str) -> httpx.Client:
        scope = " ".join([f"schema:{self.second}:create", f"schema:{self.second}:read", *more])
        return self.running.client(Service(self.running).connect("john.haiku.ink", scope)["access_token"])

    def file(self, client: httpx.Client, schema: str, blob: dict[str, Any], **facts: Any) -> str:
        """Put a picture into an instance, and let everything that is due be done."""
        instance: str = create(client, schema, fields={"picture": blob}, **facts)["instance"]
        self.settle()
        return instance

    def settle(self) -> None:
        build_views(self.running.node)
        update_blob_references(self.running.node)


@pytest.fixture
def drawers(running: RunningNode, clients: dict[str, httpx.Client]) -> Drawers:
    running.acquaint()
    jane, john = clients["jane"], clients["john"]
    schemas = [make_schema(jane, name) for name in ("first", "second")]
    for schema in schemas:
        running.node.store.write(register_schema, schema_id(schema))
    lent = upload(jane)
    found = Drawers(running, jane, john, schemas[0], schemas[1], lent)
    found.file(jane, schemas[0], lent, recipients=["john.haiku.ink"])
    assert can_read(john, lent)
    return found


def test_service_lends_nothing_that_it_may_not_read(drawers: Drawers) -> None:
    own = upload(drawers.john, b"john's own", "text/plain")
    drawers.file(drawers.john, drawers.first, own)
    service = drawers.service()
    for blob in (drawers.lent, own):
        instance = drawers.file(service, drawers.second, blob, access={"mode": "public"})
        for client in (service, drawers.running.anybody):
            assert not can_read(client, blob)
        assert can_read(drawers.john, blob)
        # The identity may say the same, and then it counts.
        drawers.john.patch(f"/instances/{instance}", json={"fields": {"picture": None}}, headers=MERGE)
        drawers.john.patch(f"/instances/{instance}", json={"fields": {"picture": blob}}, headers=MERGE)
        drawers.settle()
        for client in (service, drawers.running.anybody):
            assert can_read(client, blob)


def test_service_lends_what_it_may_read_or_has_uploaded(drawers: Drawers) -> None:
    service = drawers.service(f"schema:{drawers.first}:read")
    drawers.file(service, drawers.second, drawers.lent, access={"mode": "public"})
    assert can_read(drawers.running.anybody, drawers.lent)
    # Uploaded by john before, and by the service too: it has the bytes.
    blob = upload(drawers.john, b"both", "text/plain")
    other = drawers.service()
    assert not can_read(other, blob)
    upload(other, b"both", "text/plain")
    assert can_read(other, blob)
    drawers.file(other, drawers.second, blob, access={"mode": "public"})
    assert can_read(drawers.running.anybody, blob)


def test_what_its_identity_only_named_a_service_does_not_lend(drawers: Drawers) -> None:
    blob = upload(drawers.jane, b"jane's own", "text/plain")
    for client in (drawers.john, drawers.service()):
        drawers.file(client, drawers.second, blob, access={"mode": "public"})
        for reader in (client, drawers.john, drawers.running.anybody):
            assert not can_read(reader, blob)


def test_service_copies_a_picture_before_the_view_shows_it(drawers: Drawers) -> None:
    blob = upload(drawers.john, b"new", "text/plain")
    source = create(drawers.john, drawers.second, fields={"picture": blob})["instance"]
    body = {"access": {"mode": "public"}}
    assert drawers.service().post(f"/instances/{source}/copy", json=body).status_code == 201
    drawers.settle()
    assert can_read(drawers.running.anybody, blob)


@pytest.mark.parametrize("name", ["", "x", "0040", "00" * 66, "0040" + "00" * 64, "0020" + "00" * 32, "../../etc"])
def test_unknown_and_malformed_hashes_look_alike(clients: dict[str, httpx.Client], name: str) -> None:
    answer = clients["jane"].get(f"/blobs/{name}")
    assert answer.status_code == 404
    assert answer.json()["code"] in ("blob.unknown", "request.no-such-route")


def test_type_that_is_no_header_is_served_as_bytes(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    album.create(people["jane"], {"picture": {**blob, "type": "bild/schön€"}}, Access("public"))
    album.build()
    assert clients["nobody"].get(f"/blobs/{blob['hash']}").headers["content-type"] == "application/octet-stream"


# Collection


class Later:
    """A clock that can be put forward."""

    def __init__(self, node: Node) -> None:
        self._real, self.days = node.clock, 0.0
        node.clock = self

    def __call__(self) -> int:
        return self._real() + int(self.days * DAY * 1_000_000)


def test_unused_blob_goes_after_the_grace_period(running: RunningNode, clients: dict[str, httpx.Client]) -> None:
    clock = Later(running.node)
    blob = upload(clients["jane"])
    clock.days = 0.9
    assert collect_blobs(running.node).blobs == 0
    assert can_read(clients["jane"], blob)
    clock.days = 1.1
    collected = collect_blobs(running.node)
    assert (collected.blobs, collected.bytes) == (1, len(PICTURE))
    assert files(running.node) == []
    assert execute(running.node, "SELECT count(*) FROM blob_rights") == 0


def test_upload_again_begins_the_grace_period_again(running: RunningNode, clients: dict[str, httpx.Client]) -> None:
    clock = Later(running.node)
    upload(clients["jane"])
    clock.days = 0.9
    upload(clients["john"])
    clock.days = 1.5
    assert collect_blobs(running.node).blobs == 0
    clock.days = 2
    assert collect_blobs(running.node).blobs == 1


def test_blob_stays_while_any_instance_refers_to_it_and_a_grace_period_longer(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    clock = Later(running.node)
    blob = upload(clients["jane"])
    first, second = (album.create(people[name], {"picture": blob}) for name in ("jane", "john"))
    clock.days = 100
    assert collect_blobs(running.node).blobs == 0
    album.delete(people["jane"], first)
    clock.days = 200
    assert collect_blobs(running.node).blobs == 0
    album.delete(people["john"], second)
    assert collect_blobs(running.node).blobs == 0, "its grace period begins when the collection first sees it unused"
    clock.days = 201.1
    assert collect_blobs(running.node).blobs == 1
    assert files(running.node) == []


def test_reference_in_an_entry_that_came_past_the_node_counts(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any]
) -> None:
    clock = Later(running.node)
    album = Album(running.node, note=False)
    blob, other = upload(clients["jane"]), upload(clients["jane"], b"other", "text/plain")
    instance = album.create(people["jane"], {"picture": blob, "more": [other]}, Access("public"))
    album.build()
    clock.days = 10
    assert collect_blobs(running.node).blobs == 0
    clock.days = 0  # or everybody would have to sign in again
    assert readers(clients, other) == set(clients), "and lends"
    clock.days = 10
    album.delete(people["jane"], instance)
    collect_blobs(running.node)
    clock.days = 12
    assert collect_blobs(running.node).blobs == 2


def test_left_overs_of_dead_writers_go(running: RunningNode, clients: dict[str, httpx.Client]) -> None:
    node = running.node
    blob = upload(clients["jane"])
    draft = Upload(node, Caller(IdentityId(bytes(32))))
    draft.write(b"half")
    draft._draft._file.flush()
    # Died between the rename and the commit: a file without a row.
    orphan = node.blobs.path_of(Hash(b"\x00\x40" + blake2b(b"whole").digest()))
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"whole")
    assert collect_blobs(node).orphans == 0, "they are young: their writers may live"
    old = time.time() - 2 * DAY
    for path in files(node):
        os.utime(path, (old, old))
    collected = collect_blobs(node)
    assert (collected.blobs, collected.orphans, collected.bytes) == (0, 2, 9)
    assert [path.name for path in files(node)] == [blob["hash"]]
    draft._draft.discard()


def test_collection_that_died_after_the_file_is_ended_by_the_next(
    running: RunningNode, clients: dict[str, httpx.Client]
) -> None:
    blob = upload(clients["jane"])
    running.node.blobs.remove(Hash.fromhex(blob["hash"]))  # and the transaction was never committed
    assert not can_read(clients["jane"], blob)
    assert collect_blobs(running.node, 0).blobs == 1
    assert upload(clients["jane"]) == blob
    assert can_read(clients["jane"], blob)


def test_uploads_and_collections_at_once_lose_nothing(
    running: RunningNode, clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def collect() -> None:
        try:
            while not stop.is_set():
                collect_blobs(running.node, 0)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    collectors = [threading.Thread(target=collect) for _ in range(2)]
    for thread in collectors:
        thread.start()
    kept = []
    try:
        for number in range(25):
            data = f"picture {number % 5}".encode()
            blob = upload(clients["jane"], data)
            album.create(people["jane"], {"picture": blob})
            kept.append((blob, data))
    finally:
        stop.set()
        for thread in collectors:
            thread.join()
    assert errors == []
    collect_blobs(running.node, 0)
    known = execute(running.node, "SELECT count(*) FROM blobs")
    assert known == len(files(running.node))
    for blob, data in kept:
        path = running.node.blobs.path_of(Hash.fromhex(blob["hash"]))
        assert not path.exists() or path.read_bytes() == data
        # Taken between upload and reference, with no grace at all; once noted, never.
        upload(clients["jane"], data)
    collect_blobs(running.node, 0)
    for blob, data in kept:
        assert clients["jane"].get(f"/blobs/{blob['hash']}").content == data


def test_command_collects_beside_a_running_node(running: RunningNode, clients: dict[str, httpx.Client]) -> None:
    upload(clients["jane"])
    place = running.place
    where = ["--store", place] if isinstance(place, str) else []
    command = [sys.executable, "-m", "inkgrove", "blobs", "gc", "--grace", "0", "--json", *where]
    home = running.home if isinstance(place, str) else place
    if not isinstance(place, str):
        # On SQLite the database lies in the home; this fixture keeps the other files beside it.
        for name in ("blobs", "vault.key"):
            (place / name).symlink_to(running.home / name)
    done = subprocess.run([*command, "--home", str(home)], capture_output=True, text=True, check=True)
    assert done.stdout == f'{{"blobs": 1, "orphans": 0, "bytes": {len(PICTURE)}}}\n'
    assert files(running.node) == []


def share(node: Node, instance: Hash, reader: dict[str, Any]) -> None:
    execute(
        node,
        "INSERT INTO shares VALUES (:instance, :reader, 0)",
        instance=bytes(instance),
        reader=bytes.fromhex(reader["id"]),
    )


def execute(node: Node, statement: str, **values: object) -> Any:
    with node.database.writing() as connection:
        result = connection.execute(text(statement), values)
        return result.scalar() if result.returns_rows else None


def test_node_collects_by_itself(place: Path | str, tmp_path: Path) -> None:
    settings = NodeSettings(registration="open", domains=("haiku.ink",))
    settings = replace(settings, blob_grace_seconds=0, blob_collection_seconds=1)
    with RunningNode(place, tmp_path, settings) as node:
        node.create("jane.haiku.ink")
        upload(node.sign_in("jane.haiku.ink"))
        wait_until(lambda: files(node.node) == [])
