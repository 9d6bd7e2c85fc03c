"""Who follows whom, over HTTP, and the moves on their own."""

from typing import Any

import pytest

from inkgrove.node.identity import RelationMove, decide_relation
from inkgrove.store.node import RelationState
from tests.support.errors import raises
from tests.support.nodes import RunningNode


@pytest.mark.parametrize(
    ("before", "move", "after"),
    [
        (None, "request", "requested"),
        ("accepted", "request", "accepted"),
        ("refused", "request", "requested"),
        ("blocked", "request", "blocked"),
        ("requested", "accept", "accepted"),
        ("refused", "accept", "accepted"),
        ("accepted", "refuse", "refused"),
        (None, "block", "blocked"),
        ("accepted", "block", "blocked"),
        ("accepted", "end", None),
        ("blocked", "end", "blocked"),  # else one could come back by leaving first
        ("blocked", "remove", None),
        ("accepted", "remove", None),
    ],
)
def test_moves(before: RelationState | None, move: RelationMove, after: RelationState | None) -> None:
    assert decide_relation(before, move) == after


@pytest.mark.parametrize(("before", "move"), [(None, "accept"), ("blocked", "accept"), (None, "refuse")])
def test_only_who_asked_is_accepted_or_refused(before: RelationState | None, move: RelationMove) -> None:
    with raises("relation.not-requested"):
        decide_relation(before, move)


@pytest.mark.parametrize("move", ["end", "remove"])
def test_nothing_ends_that_is_not_there(move: RelationMove) -> None:
    with raises("relation.unknown"):
        decide_relation(None, move)


def seen(client: object) -> list[tuple[str, str, str, str | None]]:
    answer = client.get("/me/relations").json()  # type: ignore[attr-defined]
    assert answer["next"] is None
    return [(item["side"], item["fqdn"], item["state"], item["group"]) for item in answer["relations"]]


def test_follow_accept_group_and_end(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    johns_id = running.create("john.haiku.ink")["id"]
    jane, john = running.sign_in("jane.haiku.ink"), running.sign_in("john.haiku.ink")
    assert jane.put("/me/following/john.haiku.ink", json={"group": "poets"}).json() == {"state": "requested"}
    assert seen(jane) == [("following", "john.haiku.ink", "requested", "poets")]
    assert seen(john) == [("followers", "jane.haiku.ink", "requested", None)]
    body = {"state": "accepted", "group": "friends"}
    assert john.put("/me/followers/jane.haiku.ink", json=body).json() == {"state": "accepted"}
    assert seen(jane) == [("following", "john.haiku.ink", "accepted", "poets")]
    assert seen(john) == [("followers", "jane.haiku.ink", "accepted", "friends")]
    assert jane.put(f"/me/following/{johns_id}").json() == {"state": "accepted"}  # by id; the group stays
    assert seen(jane) == [("following", "john.haiku.ink", "accepted", "poets")]
    assert jane.put("/me/following/john.haiku.ink", json={"group": None}).status_code == 200
    assert seen(jane) == [("following", "john.haiku.ink", "accepted", None)]
    assert jane.delete("/me/following/john.haiku.ink").status_code == 204
    assert seen(jane) == seen(john) == []
    assert jane.delete("/me/following/john.haiku.ink").json()["code"] == "relation.unknown"


def test_block_looks_like_a_refusal_and_lasts(running: RunningNode) -> None:
    for name in ("jane.haiku.ink", "john.haiku.ink"):
        running.create(name)
    jane, john = running.sign_in("jane.haiku.ink"), running.sign_in("john.haiku.ink")
    jane.put("/me/following/john.haiku.ink")
    assert john.put("/me/followers/jane.haiku.ink", json={"state": "blocked"}).json() == {"state": "blocked"}
    assert seen(jane) == [("following", "john.haiku.ink", "refused", None)]
    assert jane.delete("/me/following/john.haiku.ink").status_code == 204
    assert jane.put("/me/following/john.haiku.ink").json() == {"state": "refused"}
    assert seen(john) == [("followers", "jane.haiku.ink", "blocked", None)]
    assert john.put("/me/followers/jane.haiku.ink", json={"state": "accepted"}).status_code == 409
    assert john.delete("/me/followers/jane.haiku.ink").status_code == 204
    assert jane.put("/me/following/john.haiku.ink").json() == {"state": "requested"}


def test_what_makes_no_sense_is_refused(running: RunningNode) -> None:
    for name in ("jane.haiku.ink", "john.haiku.ink"):
        running.create(name)
    jane = running.sign_in("jane.haiku.ink")
    assert jane.put("/me/following/jane.haiku.ink").json()["code"] == "relation.own"
    assert jane.put("/me/following/nobody.haiku.ink").json()["code"] == "identity.unknown"
    accept = jane.put("/me/followers/john.haiku.ink", json={"state": "accepted"})
    assert (accept.status_code, accept.json()["code"]) == (409, "relation.not-requested")
    for body in ({"state": "friend"}, {"state": "accepted", "group": ""}, {"state": "accepted", "x": 1}):
        assert jane.put("/me/followers/john.haiku.ink", json=body).status_code == 400


def test_list_comes_in_pages_and_misses_nothing(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    expected = []
    for number in range(4):
        other = running.create(f"other{number}.haiku.ink")["id"]
        jane.put(f"/me/followers/{other}", json={"state": "blocked"})
        jane.put(f"/me/following/{other}")  # to block them would have ended it
        expected += [("followers", other), ("following", other)]
    found: list[Any] = []
    after: dict[str, str] = {}
    for _ in range(20):
        page = jane.get("/me/relations", params={"limit": 3, **after}).json()
        found += [(item["side"], item["identity"]) for item in page["relations"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == sorted(expected)
