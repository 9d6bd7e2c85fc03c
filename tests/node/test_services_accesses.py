"""The record of what services did: every kind of route that a service can use, and what was refused."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import func, select

from inkgrove.node.identity import record_sign_in
from inkgrove.store.db import accesses
from inkgrove.store.logs import register_schema
from tests.support.nodes import RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import Signer, as_json, create, mail, make_schema, schema_id, signer_of
from tests.support.services import Service

MERGE: Final = {"Content-Type": "application/merge-patch+json"}
NOTES: Final = [{"title": {"action": "create", "type": "varchar"}}]
Record = tuple[str, str | None, str | None, str | None]
"""Action, schema, instance, blob: those of the last three by their names in the world."""


@dataclass
class World:
    """A service that may do everything with jane's mails and notes, and read her relations."""

    running: RunningNode
    service: httpx.Client
    signer: Signer
    jane: httpx.Client
    names: dict[str, str]

    def __getattr__(self, name: str) -> str:
        return self.names[name]

    def new(self, **facts: Any) -> str:
        """A mail of jane's own."""
        made: str = create(self.jane, self.mails, fields={"subject": "new"}, **facts)["instance"]
        return made

    def entry(self, **changes: Any) -> dict[str, str]:
        place = self.signer.place(schema=self.mails)
        return as_json(*self.signer.sign(mail(self.mails, **changes), place))

    def records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.jane.get("/me/accesses", params={"limit": 1000}).json()["accesses"]
        return found


@pytest.fixture(scope="module")
def world(shared: RunningNode) -> World:
    for name in ("jane", "john", "admin"):
        shared.create(f"{name}.haiku.ink")
    shared.acquaint()
    jane, john = shared.sign_in("jane.haiku.ink"), shared.sign_in("john.haiku.ink")
    notes = make_schema(jane, "notes", NOTES)
    about = {"about": {"action": "create", "type": "relation", "schema": notes}}
    fields = [{"subject": {"action": "create", "type": "text", "validation": "^[^#].*$"}}, about]
    mails = make_schema(jane, "mails", [*fields, {"picture": {"action": "create", "type": "blob"}}])
    for schema in (notes, mails):
        shared.node.store.write(register_schema, schema_id(schema))
    picture = jane.post("/blobs", content=b"ink", headers={"Content-Type": "text/plain"}).json()
    note = create(jane, notes, fields={"title": "a"})["instance"]
    mine = create(jane, mails, fields={"subject": "a", "about": note, "picture": picture})["instance"]
    create(john, mails, fields={"subject": "nobody else's"})
    theirs = create(john, mails, fields={"subject": "b"}, recipients=["jane.haiku.ink"])["instance"]
    build_views(shared.node)
    scopes = [f"schema:{schema}:{do}" for schema in (notes, mails) for do in ("read", "create", "update", "delete")]
    token = Service(shared).connect("jane.haiku.ink", " ".join([*scopes, "relations:read"]))["access_token"]
    names = {"notes": notes, "mails": mails, "note": note, "mine": mine, "theirs": theirs, "picture": picture["hash"]}
    return World(shared, shared.client(token), signer_of(shared, "jane.haiku.ink"), jane, names)


def _stream(world: World) -> httpx.Response:
    with world.service.stream("GET", f"/views/{world.mails}/changes") as opened:
        next(opened.iter_raw(), None)
        return opened


def _upload(world: World) -> httpx.Response:
    return world.service.post("/blobs", content=b"new", headers={"Content-Type": "text/plain"})


USES: dict[str, tuple[Callable[[World], httpx.Response], list[Record]]] = {
    "a page": (lambda w: w.service.get(f"/views/{w.mails}"), [("read", "mails", None, None)]),
    "a page, with the framework": (lambda w: w.service.get("/views/mails?limit=007"), [("read", "mails", None, None)]),
    "a page with relations": (
        lambda w: w.service.get(f"/views/{w.mails}?expand=about"),
        [("read", "mails", None, None), ("read", "notes", None, None)],
    ),
    "the views, counted": (
        lambda w: w.service.get("/views?count=true"),
        [("read", "mails", None, None), ("read", "notes", None, None)],
    ),
    "the views": (lambda w: w.service.get("/views"), []),
    "outcomes": (lambda w: w.service.get(f"/views/{w.mails}/outcomes"), [("read", "mails", None, None)]),
    "a summary": (lambda w: w.service.get(f"/views/{w.mails}/summary"), [("read", "mails", None, None)]),
    "changes": (_stream, [("read", "mails", None, None)]),
    "an instance": (lambda w: w.service.get(f"/instances/{w.mine}"), [("read", "mails", "mine", None)]),
    "an instance as it was": (
        lambda w: w.service.get(f"/instances/{w.mine}?as_of=1000"),
        [("read", "mails", "mine", None)],
    ),
    "a history": (lambda w: w.service.get(f"/instances/{w.theirs}/history"), [("read", "mails", "theirs", None)]),
    "a proof": (lambda w: w.service.get(f"/instances/{w.mine}/proof"), [("read", "mails", "mine", None)]),
    "deliveries": (lambda w: w.service.get(f"/instances/{w.mine}/deliveries"), [("read", "mails", "mine", None)]),
    "relations": (lambda w: w.service.get("/me/relations"), [("relations:read", None, None, None)]),
    "the identity": (lambda w: w.service.get("/me"), []),
    "a create": (
        lambda w: w.service.post("/instances", json={"schema": w.mails, "fields": {"subject": "new"}}),
        [("create", "mails", "answer", None)],
    ),
    "a copy": (
        lambda w: w.service.post(f"/instances/{w.theirs}/copy", json={}),
        [("read", "mails", "theirs", None), ("create", "mails", "answer", None)],
    ),
    "a patch": (
        lambda w: w.service.patch(f"/instances/{w.new()}", json={"fields": {"subject": "b"}}, headers=MERGE),
        [("update", "mails", "answer", None)],
    ),
    "a patch that changes nothing": (
        lambda w: w.service.patch(f"/instances/{w.mine}", json={}, headers=MERGE),
        [("update", "mails", "mine", None)],
    ),
    "a replacement": (
        lambda w: w.service.put(f"/instances/{w.new()}", json={"fields": {"subject": "b"}}),
        [("update", "mails", "answer", None)],
    ),
    "a delete": (lambda w: w.service.delete(f"/instances/{w.new()}"), [("delete", "mails", "answer", None)]),
    "a share": (
        lambda w: w.service.post(f"/instances/{w.mine}/share", json={"recipients": ["john.haiku.ink"]}),
        [("share", "mails", "mine", None)],
    ),
    "a pass-on": (
        lambda w: w.service.post(f"/instances/{w.theirs}/pass-on", json={"recipients": ["07" * 32]}),
        [("pass-on", "mails", "theirs", None)],
    ),
    "an entry": (lambda w: w.service.post("/entries", json=w.entry()), [("create", "mails", "answer", None)]),
    "entries, of which one is refused": (
        lambda w: w.service.post("/entries", json={"entries": [w.entry(), w.entry(subject="#")]}),
        [("create", "mails", "answer", None)],
    ),
    "the place of the next entry": (lambda w: w.service.get(f"/publish/next?schema={w.mails}"), []),
    "an upload": (_upload, [("upload", None, None, "answer")]),
    "a download": (lambda w: w.service.get(f"/blobs/{w.picture}"), [("download", None, None, "picture")]),
}


@pytest.mark.parametrize("name", USES)
def test_identity_sees_what_a_service_did(world: World, name: str) -> None:
    use, expected = USES[name]
    before = len(world.records())
    answer = use(world)
    assert answer.status_code in (200, 201), answer.text
    found = world.records()
    new = found[: len(found) - before]
    names = {value: key for key, value in world.names.items()}
    if name not in ("changes", "a proof", "a download"):
        body = answer.json()
        made = body.get("instance") or body.get("hash") or body.get("receipts", [{}])[0].get("hash")
        names = {**({} if made is None else {made: "answer"}), **names}
    shown = {(item["action"], *(names.get(item[key]) for key in ("schema", "instance", "blob"))) for item in new}
    assert shown == set(expected)
    assert len(new) == len(expected), "each once"


REFUSED: dict[str, tuple[Callable[[World], httpx.Response], set[int]]] = {
    "a bad filter": (lambda w: w.service.get(f"/views/{w.mails}?where=nothing:eq:1"), {400, 422}),
    "a relation that is none": (lambda w: w.service.get(f"/views/{w.mails}?expand=about,subject"), {400, 422}),
    "a bad cursor": (lambda w: w.service.get(f"/views/{w.mails}/outcomes?cursor=x"), {400}),
    "before it was there": (lambda w: w.service.get(f"/instances/{w.theirs}?as_of=1"), {404}),
    "an unknown instance": (lambda w: w.service.get(f"/instances/0040{'ab' * 64}"), {404}),
    "fields that do not fit": (
        lambda w: w.service.post("/instances", json={"schema": w.mails, "fields": {"subject": "#"}}),
        {422},
    ),
    "a patch that fails": (
        lambda w: w.service.patch(
            f"/instances/{w.mine}",
            json=[{"op": "test", "path": "/fields/subject", "value": "x"}],
            headers={"Content-Type": "application/json-patch+json"},
        ),
        {409, 422},
    ),
    "an update of another's": (
        lambda w: w.service.patch(f"/instances/{w.theirs}", json={}, headers=MERGE),
        {403},
    ),
    "a copy that nobody may have": (
        lambda w: w.service.post(
            f"/instances/{w.theirs}/copy", json={"access": {"mode": "self"}, "recipients": ["07" * 32]}
        ),
        {422},
    ),
    "an entry that does not fit": (lambda w: w.service.post("/entries", json=w.entry(subject="#")), {422}),
    "a form for a blob": (lambda w: w.service.post("/blobs", data={"a": "b"}), {415}),
    "an unknown blob": (lambda w: w.service.get(f"/blobs/0040{'ab' * 64}"), {404}),
    "a range beyond the end": (
        lambda w: w.service.get(f"/blobs/{w.picture}", headers={"Range": "bytes=9-"}),
        {416},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_refused_was_not_done(world: World, name: str) -> None:
    use, statuses = REFUSED[name]
    before = world.records()
    answer = use(world)
    assert answer.status_code in statuses, answer.text
    assert world.records() == before


def test_repeated_request_was_done_once(world: World) -> None:
    before = len(world.records())
    for _ in range(2):
        body = {"schema": world.mails, "fields": {"subject": "once"}}
        assert world.service.post("/instances", json=body, headers={"Idempotency-Key": "once"}).status_code == 201
    assert len(world.records()) == before + 1


def test_stream_that_tells_nothing_is_recorded_once(world: World) -> None:
    node, settings = world.running.node, world.running.node.settings
    before = len(world.records())
    node.settings = replace(settings, heartbeat_seconds=0.05)
    try:
        with world.service.stream("GET", f"/views/{world.mails}/changes") as opened:
            beats = (line for line in opened.iter_lines() if line == ": still here")
            for _ in range(3):
                next(beats)
    finally:
        node.settings = settings
    assert len(world.records()) == before + 1


def test_record_is_kept_for_a_while(world: World) -> None:
    node = world.running.node
    world.service.get("/me/relations")
    assert world.records()
    clock, kept = node.clock, node.settings.access_record_seconds
    try:
        for seconds, is_left in ((kept - 3600, True), (kept + 1, False)):
            node.clock = lambda late=seconds: clock() + late * 1_000_000  # type: ignore[misc]
            node.tidied = 0
            record_sign_in(node, "jane.haiku.ink", "127.0.0.1", [])
            count = node.database.read(lambda c: c.scalar(select(func.count()).select_from(accesses)))
            assert bool(count) == is_left
    finally:
        node.clock = clock
