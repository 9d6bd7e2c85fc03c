"""An account that is closed, between nodes: who has copies hears of the end, and the certificate says who did."""

from pathlib import Path
from typing import Any

import pytest

from inkgrove.node.identity import hash_password
from inkgrove.store.node import find_relation_state, set_password
from tests.federation.conftest import World
from tests.store.postgres import PostgresServer
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.nodes import PASSWORD, Person
from tests.support.publishing import create, make_schema


def close(them: Federation, person: Person) -> str:
    node = them.nodes[person.fqdn.split(".")[1]].node
    node.database.write(lambda c: set_password(c, person.id, hash_password(PASSWORD)))
    answer = person.request("DELETE", "/me", json={"password": PASSWORD})
    assert answer.status_code == 202, answer.text
    token: str = answer.json()["token"]
    return token


def look(them: Federation, letter: str, token: str) -> dict[str, Any]:
    answer = them.nodes[letter].anybody.get("/closing", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def certificate(them: Federation, letter: str, token: str) -> dict[str, Any]:
    until(lambda: look(them, letter, token)["state"] == "closed")
    found: dict[str, Any] = look(them, letter, token)["certificate"]
    return found


def has_relation(them: Federation, letter: str, one: Person, other: Person) -> bool:
    """Whether one of two follows the other, as far as a node knows."""
    pairs = ((one.id, other.id), (other.id, one.id))
    node = them.nodes[letter].node
    return any(node.database.read(lambda c: [find_relation_state(c, *pair) for pair in pairs]))


def test_everybody_who_has_a_copy_hears_of_the_end(world: World) -> None:
    mails = [world.mail(recipients=["john.b.ink", "alice.c.ink"]) for _ in range(3)]
    for mail in mails:
        wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    other = world.mail(recipients=["john.b.ink", "bob.d.ink"])
    wait_for(world.jane, other, john_b="delivered", bob_d="delivered")
    passed = world.alice.post(f"/instances/{mails[0]}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert passed.status_code == 200, passed.text
    wait_for(world.alice, mails[0], bob_d="delivered")

    found = certificate(world.them, "a", close(world.them, world.jane))
    told = {item.pop("fqdn"): item for item in found["recipients"]}
    usual = {"waits_for_them": 0, "refused": 0, "not_answered": 0}
    assert told == {
        "john.b.ink": {"identity": world.john.id.hex(), "instances": 4, "accepted": 4, **usual},
        "alice.c.ink": {"identity": world.alice.id.hex(), "instances": 3, "accepted": 3, **usual},
        "bob.d.ink": {"identity": world.bob.id.hex(), "instances": 1, "accepted": 1, **usual},
    }
    assert (found["instances_deleted"], found["instances_not_deleted"]) == (4, 0)
    for mail in mails:
        assert [world.them.is_deleted(letter, mail) for letter in "abc"] == [True] * 3
    until(lambda: world.them.is_deleted("d", mails[0]))
    assert [world.them.is_deleted(letter, other) for letter in "abd"] == [True] * 3
    for letter, person in (("b", world.john), ("c", world.alice), ("d", world.bob)):
        for where in ("a", letter):
            assert not has_relation(world.them, where, world.jane, person), (where, person.fqdn)
    answer = world.them.nodes["a"].anybody.get("/.well-known/inkgrove", headers={"Host": "jane.a.ink"})
    assert (answer.status_code, answer.json()["code"]) == (404, "identity.unknown")


def test_who_never_answers_is_named_and_does_not_keep_the_account_open(tmp_path: Path) -> None:
    with federation(tmp_path, "ab", give_up_seconds=3) as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        mail = create(jane, schema, fields={"subject": "Hello"}, recipients=["john.b.ink"])["instance"]
        wait_for(jane, mail, john_b="delivered")
        them.nodes["b"].__exit__()
        token = close(them, jane)
        until(lambda: look(them, "a", token)["state"] == "delivering")
        assert look(them, "a", token)["unanswered"] == 1
        assert look(them, "a", token)["certificate"] is None
        assert them.nodes["a"].anybody.get("/identities/jane.a.ink").status_code == 200, (
            "served until all have answered"
        )
        (told,) = certificate(them, "a", token)["recipients"]
        assert (told["fqdn"], told["instances"], told["accepted"], told["not_answered"]) == ("john.b.ink", 1, 0, 1)
        assert them.nodes["a"].anybody.get("/identities/jane.a.ink").status_code == 404


@pytest.mark.both_databases
def test_account_of_somebody_who_was_sent_things_is_closed(tmp_path: Path, postgres: PostgresServer) -> None:
    places = {"a": postgres.create_store("closing_a"), "b": postgres.create_store("closing_b")}
    with federation(tmp_path, "ab", places) as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        mail = create(jane, make_schema(jane), fields={"subject": "Hello"}, recipients=["john.b.ink"])["instance"]
        wait_for(jane, mail, john_b="delivered")
        found = certificate(them, "b", close(them, john))
        assert (found["recipients"], found["removed_here"]["received_shares"]) == ([], 1)
        assert not them.is_deleted("a", mail)
        assert them.shares("b", mail) == set()
