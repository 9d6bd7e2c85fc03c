"""Sharing between real nodes over HTTP: everybody gets exactly what they should."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inkgrove.store.deliveries import count_waiting
from tests.support.federated import Federation, federation, states, until, wait_for
from tests.support.nodes import Person
from tests.support.publishing import create, make_schema, refusal


@dataclass
class World:
    """jane on node a, john on b, alice on c, bob on d; all of them know each other."""

    them: Federation
    jane: Person
    john: Person
    alice: Person
    bob: Person
    schema: str

    def mail(self, **facts: object) -> str:
        """A new instance of jane's."""
        instance: str = create(self.jane, self.schema, fields={"subject": "Hello"}, **facts)["instance"]
        return instance

    def change(self, instance: str, **document: object) -> None:
        answer = self.jane.patch(
            f"/instances/{instance}", json=document, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert answer.status_code == 200, answer.text

    def held(self, instance: str) -> list[int | None]:
        """How many messages each node holds."""
        return [self.them.payloads(letter, instance) for letter in "abcd"]


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "abcd") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        alice, bob = them.person("alice", "c"), them.person("bob", "d")
        yield World(them, jane, john, alice, bob, make_schema(jane))


@pytest.fixture
def world(strangers: World) -> World:
    strangers.them.acquaint(strangers.jane, strangers.john, strangers.alice, strangers.bob)
    return strangers


def test_instance_is_sent_passed_on_changed_and_ended(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink", "alice.c.ink"])
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    assert world.held(mail) == [1, 1, 1, None]
    assert world.them.shares("b", mail) == {world.john.id}
    assert world.them.shares("c", mail) == {world.alice.id}

    answer = world.alice.post(f"/instances/{mail}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.alice, mail, bob_d="delivered")
    assert world.held(mail) == [1, 1, 1, 1]
    assert world.them.shares("d", mail) == {world.bob.id}

    world.change(mail, fields={"subject": "Hello again"})
    until(lambda: world.held(mail) == [2, 2, 2, 2])

    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: [world.them.is_deleted(letter, mail) for letter in "abcd"] == [True] * 4)
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    wait_for(world.alice, mail, bob_d="delivered")
    assert world.held(mail) == [3, 3, 3, 3]


def test_only_those_it_was_sent_to_get_anything(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    assert world.held(mail) == [1, 1, None, None]
    assert refusal(world.alice.get(f"/instances/{mail}/deliveries")) == (404, "view.unknown-instance")
    assert refusal(world.john.get(f"/instances/{mail}/deliveries")) == (404, "view.unknown-instance")


def test_instance_for_oneself_never_leaves_the_node(world: World) -> None:
    mail = world.mail(access={"mode": "self"})
    sent = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, sent, john_b="delivered")
    assert world.held(mail) == [1, None, None, None]
    answer = world.jane.post(f"/instances/{mail}/share", json={"recipients": ["john.b.ink"]})
    assert refusal(answer) == (422, "publish.not-shareable")


def test_closed_instance_is_not_passed_on(world: World) -> None:
    mail = world.mail(access={"mode": "closed", "to": ["john.b.ink"]})
    wait_for(world.jane, mail, john_b="delivered")
    answer = world.john.post(f"/instances/{mail}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert refusal(answer) == (422, "publish.not-shareable")
    assert world.held(mail) == [1, 1, None, None]


def test_who_is_left_out_hears_nothing_but_the_end(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink", "alice.c.ink"])
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    answer = world.alice.post(f"/instances/{mail}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.alice, mail, bob_d="delivered")
    world.change(mail, access={"mode": "closed", "to": ["john.b.ink"]}, fields={"subject": "For john"})
    until(lambda: world.held(mail)[1] == 2)
    world.jane.delete(f"/instances/{mail}")
    until(lambda: all(world.them.is_deleted(letter, mail) for letter in "abcd"))
    assert world.held(mail) == [3, 3, 2, 2]  # alice and bob lack the update


def test_later_recipients_get_all_of_it(world: World) -> None:
    mail = world.mail()
    world.change(mail, fields={"subject": "Second"})
    assert world.held(mail) == [2, None, None, None]
    assert world.jane.post(f"/instances/{mail}/share", json={"recipients": ["alice.c.ink"]}).status_code == 200
    wait_for(world.jane, mail, alice_c="delivered")
    assert world.held(mail) == [2, None, 2, None]


def test_followers_get_what_is_for_them(world: World) -> None:
    first = world.mail(recipients=["john.b.ink", "alice.c.ink", "bob.d.ink"])  # so that a knows where they are
    wait_for(world.jane, first, john_b="delivered", alice_c="delivered", bob_d="delivered")
    for mode in ("relations", "public"):
        mail = world.mail(access={"mode": mode})
        wait_for(world.jane, mail, john_b="delivered", alice_c="delivered", bob_d="delivered")
        assert world.held(mail) == [1, 1, 1, 1]


def test_stranger_waits_in_the_box_of_requests(strangers: World) -> None:
    mail = strangers.mail(recipients=["john.b.ink"])
    wait_for(strangers.jane, mail, john_b="held")
    assert strangers.held(mail) == [1, None, None, None]
    strangers.change(mail, fields={"subject": "Hello?"})
    until(lambda: states(strangers.jane, mail) == {"john.b.ink": "held"} and count(strangers, "a") == 0)
    (request,) = strangers.john.get("/me/requests").json()["requests"]
    assert (request["via"], request["fqdn"], request["instances"]) == (
        strangers.jane.id.hex(),
        "jane.a.ink",
        [mail],
    )
    path = f"/me/requests/{strangers.jane.id.hex()}"
    answer = strangers.john.post(path, json={"decision": "accept"})
    assert answer.json() == {"instances": [mail]}
    assert strangers.held(mail) == [2, 2, None, None]
    assert strangers.john.get("/me/requests").json() == {"requests": []}
    assert refusal(strangers.john.post(path, json={"decision": "accept"})) == (404, "federation.no-such-request")
    second = strangers.mail(recipients=["john.b.ink"])
    wait_for(strangers.jane, second, john_b="delivered")


def test_refused_request_leaves_nothing(strangers: World) -> None:
    mail = strangers.mail(recipients=["john.b.ink"])
    wait_for(strangers.jane, mail, john_b="held")
    path = f"/me/requests/{strangers.jane.id.hex()}"
    assert strangers.john.post(path, json={"decision": "refuse"}).json() == {"instances": []}
    assert strangers.john.get("/me/requests").json() == {"requests": []}
    assert strangers.held(mail) == [1, None, None, None]


def test_dead_node_delays_nobody(world: World) -> None:
    dead = "ab" * 32
    mail = world.mail(recipients=[dead, "john.b.ink"])
    until(lambda: world.held(mail)[1] == 1)
    until(lambda: states(world.jane, mail) == {None: "waiting", "john.b.ink": "delivered"})


def test_name_that_leads_nowhere_is_refused_before_anything_is_published(world: World) -> None:
    answer = world.jane.post(
        "/instances", json={"schema": world.schema, "fields": {}, "recipients": ["nobody.dead.ink"]}
    )
    assert refusal(answer) == (404, "identity.unknown")
    assert answer.json()["reason"] == "federation.unreachable"


def count(world: World, letter: str) -> int:
    return world.them.nodes[letter].node.database.read(count_waiting)
