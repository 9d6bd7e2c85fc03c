"""An account that is closed, between nodes: who has copies hears of the end, and the certificate says who did."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inkgrove.federation.sharing import read_receipts
from inkgrove.messages import Delivery
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
    usual = {"accepted": 0, "waits_for_them": 0, "refused": 0, "not_answered": 0}
    assert told == {
        "john.b.ink": {"identity": world.john.id.hex(), "instances": 4, "erased": 4, **usual},
        "alice.c.ink": {"identity": world.alice.id.hex(), "instances": 3, "erased": 3, **usual},
        "bob.d.ink": {"identity": world.bob.id.hex(), "instances": 1, "erased": 1, **usual},
    }
    assert (found["instances_deleted"], found["instances_not_deleted"]) == (4, 0)
    assert (found["instances_erased"], found["recipients_confirmed"]) == (4, 3)
    # The content is gone on all nodes that said so; on the fourth, which got it from somebody else, after its grace.
    for letter in "abc":
        assert [world.them.payloads(letter, mail) for mail in mails] == [None] * 3, letter
    for letter in "abd":
        assert world.them.payloads(letter, other) is None, letter
    until(lambda: world.them.is_deleted("d", mails[0]))
    for letter, person in (("b", world.john), ("c", world.alice), ("d", world.bob)):
        for where in ("a", letter):
            assert not has_relation(world.them, where, world.jane, person), (where, person.fqdn)
    answer = world.them.nodes["a"].anybody.get("/.well-known/inkgrove", headers={"Host": "jane.a.ink"})
    assert (answer.status_code, answer.json()["code"]) == (404, "identity.unknown")


def test_what_was_deleted_before_is_confirmed_too_and_only_its_owner_has_it_erased(tmp_path: Path) -> None:
    with federation(tmp_path, "abc") as them:
        jane, john, alice = them.person("jane", "a"), them.person("john", "b"), them.person("alice", "c")
        them.acquaint(jane, john)
        them.acquaint(alice, john)
        schema, mails = make_schema(jane), []
        for _ in range(2):
            mail = create(jane, schema, fields={"subject": "Hello"}, recipients=["john.b.ink"])["instance"]
            wait_for(jane, mail, john_b="delivered")
            assert jane.delete(f"/instances/{mail}").status_code == 200
            until(lambda mail=mail: them.is_deleted("b", mail))  # type: ignore[misc]
            wait_for(jane, mail, john_b="delivered")
            assert them.payloads("b", mail) == 2  # the grace is not over
            mails.append(mail)
        parcel = replace(them.pack("a", mails[0]), recipients=(john.id,))
        # Somebody else who asks for it gets nothing erased.
        for sender, is_erased in ((alice, False), (jane, True)):
            answer = them.send_as(sender, john, Delivery(sender.id, [parcel], erases=True))
            (receipt,) = read_receipts(answer).values()
            assert receipt.get("erased", False) is is_erased, receipt
            assert (them.payloads("b", mails[0]) is None) is is_erased
        (told,) = certificate(them, "a", close(them, jane))["recipients"]
        assert (told["fqdn"], told["instances"], told["erased"], told["accepted"]) == ("john.b.ink", 2, 2, 0)
        assert [them.payloads("b", mail) for mail in mails] == [None, None]


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
        found = certificate(them, "a", token)
        (told,) = found["recipients"]
        assert (told["fqdn"], told["instances"], told["accepted"], told["not_answered"]) == ("john.b.ink", 1, 0, 1)
        assert (told["erased"], found["recipients_confirmed"]) == (0, 0)
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
