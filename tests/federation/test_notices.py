"""Moves in relations reach a node that was away; what waited for a word is delivered once it is given."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inkgrove.store.federation import find_queued_moves
from inkgrove.store.node import find_relation_state
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema


@dataclass
class World:
    """jane on node a, carol on b."""

    them: Federation
    jane: Person
    carol: Person

    def state(self, letter: str, follower: Person, followee: Person) -> str | None:
        node = self.them.nodes[letter].node
        return node.database.write(lambda connection: find_relation_state(connection, follower.id, followee.id))

    def waiting(self) -> list[str]:
        """What jane's node has not told carol yet."""
        node = self.them.nodes["a"].node
        return [
            notice.move for notice in node.database.read(lambda c: find_queued_moves(c, self.jane.id, self.carol.id))
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        yield World(them, them.person("jane", "a"), them.person("carol", "b"))


def _stop(running: RunningNode) -> None:
    running.server.should_exit = True
    running.thread.join(timeout=10)


def test_answer_reaches_a_node_that_was_away(world: World) -> None:
    b = world.them.nodes["b"]
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}
    _stop(b)
    answer = world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"})
    assert answer.json() == {"state": "accepted"}
    assert world.waiting() == ["accept"]
    port = int(b.url.rpartition(":")[2])
    with RunningNode(b.place, b.home, b.settings, port):
        until(lambda: world.state("b", world.carol, world.jane) == "accepted")
        until(lambda: world.waiting() == [])


def test_only_the_last_move_of_a_side_is_told(world: World) -> None:
    world.carol.put("/me/following/jane.a.ink", json={})
    _stop(world.them.nodes["b"])
    for state in ("accepted", "refused", "accepted"):
        assert world.jane.put("/me/followers/carol.b.ink", json={"state": state}).status_code == 200
    assert world.waiting() == ["accept"]


def test_what_a_stranger_sent_is_delivered_once_they_are_accepted_as_followers(world: World) -> None:
    mail = create(world.jane, make_schema(world.jane), recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, mail, carol_b="held")
    world.jane.put("/me/following/carol.b.ink", json={})
    assert world.carol.put("/me/followers/jane.a.ink", json={"state": "accepted"}).status_code == 200
    assert world.them.payloads("b", mail) == 1
    assert world.carol.get("/me/requests").json() == {"requests": []}
    wait_for(world.jane, mail, carol_b="delivered")


def test_accepted_request_is_not_told_to_the_sender(world: World) -> None:
    mail = create(world.jane, make_schema(world.jane), recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, mail, carol_b="held")
    answer = world.carol.post(f"/me/requests/{world.jane.id.hex()}", json={"decision": "accept"})
    assert answer.json() == {"instances": [mail]}
    # She did not ask to follow, and is not made to, on neither node.
    assert world.state("a", world.jane, world.carol) is None
    assert world.state("b", world.jane, world.carol) is None
    assert world.waiting() == []
    wait_for(world.jane, mail, carol_b="held")


def test_what_waits_is_delivered_when_the_recipient_follows_the_sender(world: World) -> None:
    mail = create(world.jane, make_schema(world.jane), recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, mail, carol_b="held")
    world.carol.put("/me/following/jane.a.ink", json={})
    assert world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"}).status_code == 200
    wait_for(world.jane, mail, carol_b="delivered")
    assert world.them.payloads("b", mail) == 1
