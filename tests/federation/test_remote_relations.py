"""Following across nodes: both sides know how it stands, however often they are told."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import identity_of
from inkgrove.federation.errors import BadAnswer, BadMove
from inkgrove.federation.peers import Discovery, HttpTransport, PeerRequest, PeerResponse
from inkgrove.federation.sharing import (
    RELATION_FORMAT,
    RELATION_MEDIA_TYPE,
    RELATIONS_PATH,
    receive_move,
    relations,
    send_move,
    send_waiting_moves,
)
from inkgrove.messages import cbor
from inkgrove.node.identity import create_identity, move_relation
from inkgrove.node.runtime import Node
from inkgrove.store.federation import (
    RemoteIdentity,
    count_waiting_deliveries,
    find_queued_moves,
    first_backlog,
    queue_move,
)
from inkgrove.store.node import find_relation_state, put_relation_state, remove_relation
from tests.federation.conftest import Clock
from tests.store.postgres import PostgresServer
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.logs import key
from tests.support.nodes import Person
from tests.support.peers import run
from tests.support.publishing import create, make_schema, refusal
from tests.support.races import Meanwhile, begin_before_commit


@dataclass
class World:
    """jane on node a, carol on b."""

    them: Federation
    jane: Person
    carol: Person

    def states(self) -> list[str | None]:
        """How carol's following of jane stands on the nodes of both."""
        nodes = [self.them.nodes[letter].node for letter in "ab"]
        return [n.database.write(lambda c: find_relation_state(c, self.carol.id, self.jane.id)) for n in nodes]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        yield World(them, them.person("jane", "a"), them.person("carol", "b"))


def test_relation_is_asked_for_accepted_used_and_ended(world: World) -> None:
    for _ in range(2):
        assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}
        assert world.states() == ["requested", "requested"]
    for _ in range(2):
        assert world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"}).json() == {"state": "accepted"}
        assert world.states() == ["accepted", "accepted"]
    post = create(world.jane, make_schema(world.jane), access={"mode": "public"})["instance"]
    wait_for(world.jane, post, carol_b="delivered")
    assert world.them.payloads("b", post) == 1
    assert world.carol.delete("/me/following/jane.a.ink").status_code == 204
    assert world.states() == [None, None]


def test_relations_show_the_names_of_people_elsewhere(world: World) -> None:
    world.carol.put("/me/following/jane.a.ink", json={})
    world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"})
    for person, other in ((world.jane, "carol.b.ink"), (world.carol, "jane.a.ink")):
        assert [item["fqdn"] for item in person.get("/me/relations").json()["relations"]] == [other]


def test_block_looks_like_a_refusal_elsewhere(world: World) -> None:
    world.carol.put("/me/following/jane.a.ink", json={})
    assert world.jane.put("/me/followers/carol.b.ink", json={"state": "blocked"}).status_code == 200
    assert world.states() == ["blocked", "refused"]
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "refused"}
    assert world.states() == ["blocked", "refused"]


def test_nobody_is_made_to_follow_unasked(world: World) -> None:
    answer = world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"})
    assert refusal(answer) == (409, "relation.not-requested")
    node = world.them.nodes["a"].node

    async def claim() -> None:
        """A node that accepts what nobody asked for."""
        async with HttpTransport(node.settings) as transport:
            carol = await Discovery(node, transport).find("carol.b.ink")
            await send_move(node, transport, world.jane.id, carol, "accept")

    with pytest.raises(BadAnswer, match="409"):
        run(claim())
    assert world.states() == [None, None]


def test_moves_without_a_signature_are_refused(world: World) -> None:
    body = cbor.encode({"form": RELATION_FORMAT, "to": bytes(world.jane.id), "move": "request"})
    headers = {"Content-Type": RELATION_MEDIA_TYPE, "Host": "jane.a.ink"}
    answer = world.them.nodes["a"].anybody.post(RELATIONS_PATH, content=body, headers=headers)
    assert refusal(answer) == (401, "federation.signature-missing")
    assert world.states() == [None, None]


def test_follower_who_was_removed_unheard_learns_that_they_wait_again(world: World) -> None:
    world.carol.put("/me/following/jane.a.ink", json={})
    world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"})
    move_relation(world.them.nodes["a"].node, world.carol.id, world.jane.id, "remove")  # and nobody is told
    assert world.states() == [None, "accepted"]
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}
    assert world.states() == ["requested", "requested"]


def test_follower_learns_of_an_answer_that_did_not_reach_them(world: World) -> None:
    world.carol.put("/me/following/jane.a.ink", json={})
    node = world.them.nodes["a"].node
    move_relation(node, world.carol.id, world.jane.id, "accept")  # and nobody is told
    assert world.states() == ["accepted", "requested"]
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "accepted"}
    until(lambda: world.states() == ["accepted", "accepted"])


def test_nobody_is_buried_under_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "MAX_OPEN_REQUESTS", 1)
    dave = world.them.person("dave", "b")
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}
    assert world.carol.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}, "she asked before"
    assert dave.put("/me/following/jane.a.ink", json={}).json() == {"state": "requested"}
    at_a = world.them.nodes["a"].node
    assert at_a.database.write(lambda c: find_relation_state(c, dave.id, world.jane.id)) is None
    # It is told again when there is room.
    world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"})
    until(lambda: at_a.database.write(lambda c: find_relation_state(c, dave.id, world.jane.id)) == "requested")


CAROL = RemoteIdentity(
    identity_of(key(2).public), "carol.b.ink", "https://b.ink", key(2).public, 1, key(3).public, 0, 1
)


@pytest.mark.both_databases
def test_request_is_heard_on_either_database(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    answer = cbor.decode(
        receive_move(node, CAROL, cbor.encode({"form": RELATION_FORMAT, "to": bytes(jane), "move": "request"}))
    )
    assert answer == {"form": RELATION_FORMAT, "state": "requested"}
    assert node.database.read(lambda c: find_relation_state(c, CAROL.id, jane)) == "requested"


@pytest.mark.parametrize("move", [[], {}, None, 7, b"request", "block", ""])
def test_move_that_is_none_is_refused(node: Node, move: object) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    with pytest.raises(BadMove):
        receive_move(node, CAROL, cbor.encode({"form": RELATION_FORMAT, "to": bytes(jane), "move": move}))  # type: ignore[dict-item]


# At the same moment


@pytest.mark.both_databases
def test_block_outlasts_a_request_of_the_same_moment(node: Node, clock: Clock) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    block = Meanwhile(lambda: move_relation(node, CAROL.id, jane, "block"))

    def now() -> int:
        block()  # after the request has seen that there is no relation yet
        return clock()

    node.clock = now
    move_relation(node, CAROL.id, jane, "request")
    assert block.result() == "blocked"
    assert node.database.read(lambda c: find_relation_state(c, CAROL.id, jane)) == "blocked"


@pytest.mark.both_databases
def test_only_the_later_of_two_moves_of_the_same_moment_is_told(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    begin_before_commit(
        node.database,
        lambda c: queue_move(c, jane, CAROL.id, "request", as_follower=True, now=1),
        lambda: node.database.write(lambda c: queue_move(c, jane, CAROL.id, "end", as_follower=True, now=2)),
    )
    assert [notice.move for notice in node.database.read(lambda c: find_queued_moves(c, jane, CAROL.id))] == ["end"]


class Accepting:
    """A node that accepts everything."""

    async def send(self, request: PeerRequest) -> PeerResponse:
        return PeerResponse(200, (), cbor.encode({"form": RELATION_FORMAT, "state": "accepted"}))


@pytest.mark.both_databases
def test_answer_does_not_bring_back_what_is_ended_at_the_same_moment(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    move_relation(node, jane, CAROL.id, "request", tells=True)
    begin_before_commit(
        node.database,
        lambda connection: remove_relation(connection, jane, CAROL.id),
        lambda: run(send_waiting_moves(node, Accepting(), jane, CAROL)),
    )
    assert node.database.read(lambda c: find_relation_state(c, jane, CAROL.id)) is None


@pytest.mark.both_databases
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_new_follower_gets_the_newest_of_what_was_published_before(
    tmp_path: Path, postgres: PostgresServer, database: str
) -> None:
    places = {"a": postgres.create_database(f"earlier{database}")} if database == "postgresql" else {}
    with federation(tmp_path, "ab", places, new_follower_posts=3) as them:
        jane, carol = them.person("jane", "a"), them.person("carol", "b")
        schemas = [make_schema(jane, name) for name in ("notes", "mails")]
        public, followers = {"access": {"mode": "public"}}, {"access": {"mode": "relations"}}
        facts: list[dict[str, Any]] = [public, followers, public, followers, {}, followers]
        posts = [create(jane, schemas[number % 2], **fact)["instance"] for number, fact in enumerate(facts)]
        ended = create(jane, schemas[0], **public)["instance"]
        assert jane.delete(f"/instances/{ended}").status_code == 200
        create(jane, schemas[0], **public, expires="2020-01-01T00:00:00Z")
        narrowed = create(jane, schemas[0], **public)["instance"]
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = jane.patch(f"/instances/{narrowed}", json={"access": {"mode": "self"}}, headers=headers)
        assert answer.status_code == 200
        for _ in range(2):  # to ask and to accept once more changes nothing
            assert carol.put("/me/following/jane.a.ink", json={}).status_code == 200
            assert jane.put("/me/followers/carol.b.ink", json={"state": "accepted"}).status_code == 200
            for post in (posts[2], posts[3], posts[5]):
                wait_for(jane, post, carol_b="delivered")
        assert [them.payloads("b", post) for post in posts] == [None, None, 1, 1, None, 1]
        node = them.nodes["a"].node
        until(lambda: node.database.read(first_backlog) is None)
        until(lambda: node.database.read(count_waiting_deliveries) == 0)
        # What comes next goes on as ever.
        later = create(jane, schemas[1], **followers)["instance"]
        wait_for(jane, later, carol_b="delivered")


def test_what_was_refused_before_the_follower_was_known_there_is_sent_again(world: World) -> None:
    """A post can overtake the word that its reader was accepted."""
    node = world.them.nodes["a"].node
    world.carol.put("/me/following/jane.a.ink", json={})
    pair = world.carol.id, world.jane.id
    node.database.write(lambda c: put_relation_state(c, *pair, "accepted", 0))  # accepted, and not told yet
    post = create(world.jane, make_schema(world.jane), access={"mode": "relations"})["instance"]
    wait_for(world.jane, post, carol_b="refused")
    assert world.jane.put("/me/followers/carol.b.ink", json={"state": "accepted"}).status_code == 200
    wait_for(world.jane, post, carol_b="delivered")
