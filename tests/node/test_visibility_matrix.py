"""Every level of visibility x every route that reads x everyone who could ask, as a table.

Streams of changes are compared with a plain filter in test_reading_property.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from inkgrove.store.federation import waiting_recipients
from tests.support.nodes import RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema

pytestmark = pytest.mark.both_databases

EVERYONE: Final = {"jane", "recipient", "follower", "unasked", "blocker", "stranger", "nobody"}
"""Jane sends to the recipient, who accepts her, to `unasked`, who does not know her, and to one who has blocked her."""
MODES: Final = {
    "self": {"jane"},
    "closed": {"jane", "recipient"},
    "listed": {"jane", "recipient"},
    "relations": {"jane", "follower"},
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
    names = ("jane", "recipient", "follower", "unasked", "blocker", "stranger", "admin")
    people = {name: shared.create(f"{name}.haiku.ink") for name in names}
    clients = {"nobody": shared.anybody, **{name: shared.sign_in(f"{name}.haiku.ink") for name in people}}
    jane, admin = clients["jane"], clients.pop("admin")
    clients["follower"].put("/me/following/jane.haiku.ink", json={})
    jane.put("/me/followers/follower.haiku.ink", json={"state": "accepted"})
    clients["recipient"].put("/me/senders/jane.haiku.ink")
    clients["blocker"].put("/me/followers/jane.haiku.ink", json={"state": "blocked"})
    sent_to = ("recipient", "unasked", "blocker")
    schema = make_schema(jane)
    about = {"about": {"action": "create", "type": "relation", "schema": schema}}
    notes = make_schema(jane, "notes", [{"title": {"action": "create", "type": "varchar"}}, about])
    mails, pictures = {}, {}
    for mode in MODES:
        access: dict[str, Any] = {"mode": mode}
        if mode == "closed":
            access["to"] = [people[name]["id"] for name in sent_to]
        picture = jane.post("/blobs", content=mode.encode(), headers={"Content-Type": "text/plain"}).json()
        sent = {"recipients": [f"{name}.haiku.ink" for name in sent_to]} if mode not in ("self", "relations") else {}
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


def test_blocks_and_the_box_of_requests_hold_between_identities_of_one_node(shared: RunningNode, world: World) -> None:
    """What is sent to a stranger of the same node waits, what is sent to one who blocked the sender is refused."""
    jane, unasked, blocker = (world.clients[name] for name in ("jane", "unasked", "blocker"))
    mail, closed = world.mails["listed"], world.mails["closed"]
    found = {item["fqdn"]: (item["state"], item["code"]) for item in _deliveries(jane, mail)}
    assert found == {
        "recipient.haiku.ink": ("delivered", None),
        "unasked.haiku.ink": ("held", None),
        "blocker.haiku.ink": ("refused", "federation.blocked"),
    }
    assert blocker.get("/me/requests").json() == {"requests": []}
    (request,) = unasked.get("/me/requests").json()["requests"]
    assert (request["fqdn"], request["asks_to_follow"]) == ("jane.haiku.ink", False)
    waiting = {item["instance"]: item for item in request["instances"]}
    assert waiting.keys() == {mail, closed, world.mails["public"]}
    assert waiting[mail]["schema_name"] == "slothmail"
    assert waiting[mail]["size"] > 0
    path = f"/me/requests/{request['via']}"
    (message,) = unasked.get(f"{path}/{mail}").json()["messages"]
    assert message["fields"]["subject"] == "listed"
    assert unasked.get(f"/instances/{mail}").status_code == 404  # to look accepts nothing
    # Accept one: that one is seen, wherever one looks, and the other is not.
    assert unasked.post(f"{path}/{mail}", json={"decision": "accept"}).json() == {"instances": [mail]}
    for name, sees in ROUTES.items():
        assert sees(world, unasked, "listed"), name
        assert not sees(world, unasked, "closed"), name
    # What is narrowed while it waits, or ends, is not shown there any more.
    access = {"access": {"mode": "closed", "to": ["recipient.haiku.ink"]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert jane.patch(f"/instances/{closed}", json=access, headers=headers).status_code == 200
    assert unasked.get(f"{path}/{closed}").json()["code"] == "federation.no-such-request"
    later = create(jane, world.schema, fields={"subject": "later"}, recipients=["unasked.haiku.ink"])["instance"]
    assert unasked.get(f"{path}/{later}").status_code == 200
    assert jane.delete(f"/instances/{later}").status_code == 200
    assert unasked.get(f"{path}/{later}").json()["code"] == "federation.no-such-request"
    # From now on nothing of hers waits, and she still does not follow.
    assert unasked.put("/me/senders/jane.haiku.ink").json() == {"instances": [world.mails["public"]]}
    told = {item["fqdn"]: item["state"] for item in _deliveries(jane, world.mails["public"])}
    assert told["unasked.haiku.ink"] == "held"  # of neither of these the sender is told
    second = create(jane, world.schema, fields={"subject": "second"}, recipients=["unasked.haiku.ink"])["instance"]
    assert [item["state"] for item in _deliveries(jane, second)] == ["delivered"]
    assert unasked.get("/me/relations").json()["relations"] == []
    # Who has written to somebody has asked for an answer; who passes something on is judged like who sends.
    letter = create(world.clients["stranger"], world.schema, recipients=["follower.haiku.ink"])["instance"]
    assert [item["state"] for item in _deliveries(world.clients["stranger"], letter)] == ["held"]
    answer = create(world.clients["follower"], world.schema, recipients=["stranger.haiku.ink"])["instance"]
    assert [item["state"] for item in _deliveries(world.clients["follower"], answer)] == ["delivered"]
    body = {"recipients": ["follower.haiku.ink", "blocker.haiku.ink"]}
    assert unasked.post(f"/instances/{second}/pass-on", json=body).status_code == 200
    states = {item["fqdn"]: item["state"] for item in _deliveries(unasked, second)}
    assert states == {"follower.haiku.ink": "delivered", "blocker.haiku.ink": "refused"}  # the follower knows its owner
    # Who is let follow knows whom they follow: what waits of them is taken in.
    stranger = world.clients["stranger"]
    waiting_mail = create(jane, world.schema, recipients=["stranger.haiku.ink"])["instance"]
    assert [item["state"] for item in _deliveries(jane, waiting_mail)] == ["held"]
    assert stranger.put("/me/following/jane.haiku.ink", json={}).json() == {"state": "requested"}
    assert len(stranger.get("/me/requests").json()["requests"]) == 1
    assert jane.put("/me/followers/stranger.haiku.ink", json={"state": "accepted"}).json() == {"state": "accepted"}
    assert stranger.get("/me/requests").json() == {"requests": []}
    # She sees that it arrived, and nothing of it goes over the network.
    assert [item["state"] for item in _deliveries(jane, waiting_mail)] == ["delivered"]
    assert shared.node.database.read(waiting_recipients) == []


def _deliveries(client: httpx.Client, instance: str) -> list[dict[str, Any]]:
    answer = client.get(f"/instances/{instance}/deliveries")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found
