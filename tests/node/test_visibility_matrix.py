"""Every level of visibility x every route that reads x everyone who could ask, as a table.

Streams of changes are compared with a plain filter in test_reading_property.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tests.support.nodes import RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema

EVERYONE: Final = {"jane", "recipient", "follower", "stranger", "nobody"}
MODES: Final = {
    "self": {"jane"},
    "closed": {"jane", "recipient"},
    "listed": {"jane", "recipient"},
    "relations": {"jane", "recipient", "follower"},
    "public": EVERYONE,
}


@dataclass
class World:
    """A mail of jane's for each level, sent to the recipient if that can be, with a picture; and a note about each."""

    clients: dict[str, httpx.Client]
    schema: str
    mails: dict[str, str]
    pictures: dict[str, str]
    notes: str
    """A schema of public notes, each pointing at a mail."""


@pytest.fixture(scope="module")
def world(shared: RunningNode) -> World:
    names = ("jane", "recipient", "follower", "stranger", "admin")
    people = {name: shared.create(f"{name}.haiku.ink") for name in names}
    clients = {"nobody": shared.anybody, **{name: shared.sign_in(f"{name}.haiku.ink") for name in people}}
    jane, admin = clients["jane"], clients.pop("admin")
    clients["follower"].put("/me/following/jane.haiku.ink", json={})
    jane.put("/me/followers/follower.haiku.ink", json={"state": "accepted"})
    schema = make_schema(jane)
    about = {"about": {"action": "create", "type": "relation", "schema": schema}}
    notes = make_schema(jane, "notes", [{"title": {"action": "create", "type": "varchar"}}, about])
    mails, pictures = {}, {}
    for mode in MODES:
        access: dict[str, Any] = {"mode": mode}
        if mode == "closed":
            access["to"] = [people["recipient"]["id"]]
        picture = jane.post("/blobs", content=mode.encode(), headers={"Content-Type": "text/plain"}).json()
        sent = {} if mode == "self" else {"recipients": ["recipient.haiku.ink"]}
        fields = {"subject": mode, "stars": 1, "picture": picture}
        mails[mode] = create(jane, schema, fields=fields, access=access, **sent)["instance"]
        pictures[mode] = picture["hash"]
        create(jane, notes, fields={"title": mode, "about": mails[mode]}, access={"mode": "public"})
    for each in (schema, notes):
        assert admin.put(f"/views/{each}").status_code in (200, 201, 204)
    build_views(shared.node)
    return World(clients, schema, mails, pictures, notes)


def _rows(schema: str, client: httpx.Client, query: str) -> dict[str, Any]:
    answer = client.get(f"/views/{schema}?{query}")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def _answers(client: httpx.Client, path: str) -> bool:
    answer = client.get(path)
    assert answer.status_code in (200, 404), answer.text
    return answer.status_code == 200


def in_list(world: World, client: httpx.Client, mode: str) -> bool:
    return world.mails[mode] in {row["instance"] for row in _rows(world.schema, client, "limit=100")["rows"]}


def in_count(world: World, client: httpx.Client, mode: str) -> bool:
    return bool(_rows(world.schema, client, f"where=subject:eq:{mode}&count=true")["count"] == 1)


def in_relation(world: World, client: httpx.Client, mode: str) -> bool:
    (row,) = _rows(world.notes, client, f"where=title:eq:{mode}&expand=about")["rows"]
    shown = row["expanded"]["about"]
    assert shown is None or shown["instance"] == world.mails[mode]
    return shown is not None


def in_outcomes(world: World, client: httpx.Client, mode: str) -> bool:
    answer = client.get(f"/views/{world.schema}/outcomes?limit=100").json()
    shown = {item["hash"] for item in answer["outcomes"]}
    assert sum(answer["counts"].values()) == len(shown)
    return world.mails[mode] in shown


def in_summary(world: World, client: httpx.Client, mode: str) -> bool:
    """Each mail has stars: their number says how many are seen."""
    fields = client.get(f"/views/{world.schema}/summary").json()["exact"]["fields"]
    seen = sum(in_list(world, client, other) for other in MODES)
    assert fields["stars"]["count"] == seen
    return in_list(world, client, mode)


ROUTES: Final[dict[str, Callable[[World, httpx.Client, str], bool]]] = {
    "list": in_list,
    "count": in_count,
    "relation": in_relation,
    "outcomes": in_outcomes,
    "summary": in_summary,
    "instance": lambda world, client, mode: _answers(client, f"/instances/{world.mails[mode]}"),
    "as_of": lambda world, client, mode: _answers(client, f"/instances/{world.mails[mode]}?as_of=1000"),
    "history": lambda world, client, mode: _answers(client, f"/instances/{world.mails[mode]}/history"),
    "proof": lambda world, client, mode: _answers(client, f"/instances/{world.mails[mode]}/proof"),
    "blob": lambda world, client, mode: _answers(client, f"/blobs/{world.pictures[mode]}"),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("mode", MODES)
def test_route_shows_an_instance_to_whom_its_level_says(world: World, mode: str, route: str) -> None:
    seen = {name for name, client in world.clients.items() if ROUTES[route](world, client, mode)}
    assert seen == MODES[mode]
