"""Sharing between real nodes over HTTP: everybody gets exactly what they should."""

import socket
import time
from pathlib import Path
from typing import Any

from inkgrove.core import parse_hash
from inkgrove.federation.sharing import DELIVERIES_PATH
from inkgrove.messages import (
    DELIVERY_MEDIA_TYPE,
    Access,
    Create,
    Delivery,
    KeyOf,
    Parcel,
    SchemaVersion,
    Update,
    encode_delivery,
    encode_message,
    with_salt,
)
from inkgrove.store.federation import count_waiting_deliveries, read_backoffs
from inkgrove.store.node import put_relation_state
from tests.federation.conftest import World
from tests.store.postgres import PostgresServer
from tests.support.federated import federation, states, until, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import Signer, as_json, create, make_schema, refusal, schema_id


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


def test_closed_instance_of_a_new_key_is_taken_once_its_owner_was_looked_up_again(world: World) -> None:
    first = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, first, john_b="delivered")  # john's node knows jane as she is now
    log0 = LogBuilder(key(6), log_id=0)
    answer = world.jane.post(
        "/me/keys", json=as_json(log0.append(encode_message(KeyOf(world.jane.id))), log0.payloads[0])
    )
    assert answer.status_code == 201, answer.text
    closed = Create(
        SchemaVersion(*schema_id(world.schema), 2), {"subject": "By another key"}, Access("closed", (world.john.id,))
    )
    answer = Signer(world.jane, key(6)).publish(with_salt(closed, lambda size: b"s" * size), world.schema)
    assert answer.status_code == 201, answer.text
    mail = answer.json()["hash"]
    answer = world.jane.post(f"/instances/{mail}/share", json={"recipients": ["john.b.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.jane, mail, john_b="delivered")
    assert world.held(mail)[1] == 1


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


def test_history_larger_than_a_request_goes_in_parts(world: World) -> None:
    mail = world.mail(access={"mode": "closed", "to": ["alice.c.ink"]})
    for number in range(36):
        world.change(mail, fields={"subject": f"{number}" + "y" * 500_000})
    # The word that lets john see it is the newest of all, and goes with the first part.
    answer = world.jane.patch(
        f"/instances/{mail}",
        json={"access": {"mode": "closed", "to": ["alice.c.ink", "john.b.ink"]}},
        params={"history": "show"},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text
    until(lambda: world.held(mail)[1:3] == [38, 38])
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")


def test_followers_get_what_is_for_them(world: World) -> None:
    first = world.mail(recipients=["john.b.ink", "alice.c.ink", "bob.d.ink"])  # so that a knows where they are
    wait_for(world.jane, first, john_b="delivered", alice_c="delivered", bob_d="delivered")
    for mode in ("relations", "public"):
        mail = world.mail(access={"mode": mode})
        wait_for(world.jane, mail, john_b="delivered", alice_c="delivered", bob_d="delivered")
        assert world.held(mail) == [1, 1, 1, 1]


def test_what_is_for_relations_goes_to_followers_of_its_owner_alone(world: World) -> None:
    carol = world.them.person("carol", "d")  # knows everybody, and does not follow jane
    for person in (world.jane, world.john):
        assert carol.put(f"/me/senders/{person.fqdn}").status_code == 200
    first = world.mail(recipients=["john.b.ink", "alice.c.ink", "bob.d.ink"])  # so that a knows where they are
    wait_for(world.jane, first, john_b="delivered", alice_c="delivered", bob_d="delivered")
    mail = world.mail(access={"mode": "relations"})
    until(lambda: world.held(mail) == [1, 1, 1, 1])
    refused = (422, "federation.not-following")
    # Their nodes refuse to send it, the owner's too.
    share = {"recipients": ["carol.d.ink"]}
    assert refusal(world.jane.post(f"/instances/{mail}/share", json=share)) == refused
    assert refusal(world.john.post(f"/instances/{mail}/pass-on", json=share)) == refused
    body = {"schema": world.schema, "fields": {}, "access": {"mode": "relations"}, **share}
    assert refusal(world.jane.post("/instances", json=body)) == refused
    # A node that sends it all the same is refused.
    for sender, letter in ((world.john, "b"), (world.jane, "a")):
        fate = world.them.fate(sender, carol, world.them.pack(letter, mail))
        assert fate == ("refused", "federation.not-following")
    assert world.them.shares("d", mail) == {world.bob.id}
    # What was passed on while it was `listed` is not followed up once it is for relations; that it ends is.
    listed = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, listed, john_b="delivered")
    assert world.john.post(f"/instances/{listed}/pass-on", json={"recipients": ["carol.d.ink"]}).status_code == 200
    wait_for(world.john, listed, carol_d="delivered")
    answer = world.jane.patch(
        f"/instances/{listed}",
        json={"access": {"mode": "relations"}},
        params={"history": "show"},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text
    wait_for(world.john, listed, carol_d="refused")
    assert world.jane.delete(f"/instances/{listed}").status_code == 200
    wait_for(world.john, listed, carol_d="delivered")


def test_stranger_waits_in_the_box_of_requests(strangers: World) -> None:
    mail = strangers.mail(recipients=["john.b.ink"])
    wait_for(strangers.jane, mail, john_b="held")
    assert strangers.held(mail) == [1, None, None, None]
    strangers.change(mail, fields={"subject": "Hello?"})
    until(lambda: states(strangers.jane, mail) == {"john.b.ink": "held"} and count(strangers, "a") == 0)
    (request,) = strangers.john.get("/me/requests").json()["requests"]
    (waiting,) = request["instances"]
    assert (request["via"], request["fqdn"], waiting["instance"]) == (strangers.jane.id.hex(), "jane.a.ink", mail)
    path = f"/me/requests/{strangers.jane.id.hex()}"
    answer = strangers.john.post(path, json={"decision": "accept"})
    assert answer.json() == {"instances": [mail]}
    assert strangers.held(mail) == [2, 2, None, None]
    assert strangers.john.get("/me/requests").json() == {"requests": []}
    assert refusal(strangers.john.post(path, json={"decision": "accept"})) == (404, "federation.no-such-request")


def test_to_accept_one_mail_is_neither_to_accept_its_sender_nor_to_let_them_follow(strangers: World) -> None:
    """Accept this, accept from them from now on, let them follow me: three things, and none is told to the sender."""
    jane, john = strangers.jane, strangers.john
    first, second = (strangers.mail(recipients=["john.b.ink"]) for _ in range(2))
    for mail in (first, second):
        wait_for(jane, mail, john_b="held")
    (request,) = john.get("/me/requests").json()["requests"]
    assert [item["instance"] for item in request["instances"]] == [first, second]
    assert {item["schema"] for item in request["instances"]} == {strangers.schema}
    assert all(item["size"] > 100 and item["arrived"] for item in request["instances"])
    assert request["asks_to_follow"] is False
    path = f"/me/requests/{jane.id.hex()}"
    # Whoever wants to know what it is looks at it, and has accepted nothing by that.
    (message,) = john.get(f"{path}/{first}").json()["messages"]
    assert (message["kind"], message["fields"]) == ("create", {"subject": "Hello"})
    assert strangers.held(first)[1] is None
    # Accept this: the other one still waits, and so does what comes.
    assert john.post(f"{path}/{first}", json={"decision": "accept"}).json() == {"instances": [first]}
    assert (strangers.held(first)[1], strangers.held(second)[1]) == (1, None)
    assert refusal(john.post(f"{path}/{first}", json={"decision": "accept"})) == (404, "federation.no-such-request")
    third = strangers.mail(recipients=["john.b.ink"])
    wait_for(jane, third, john_b="held")
    # Accept from them from now on.
    assert john.put("/me/senders/jane.a.ink").json() == {"instances": [second, third]}
    assert [item["fqdn"] for item in john.get("/me/senders").json()["senders"]] == ["jane.a.ink"]
    fourth = strangers.mail(recipients=["john.b.ink"])
    wait_for(jane, fourth, john_b="delivered")
    # Nobody follows anybody by all this, on neither node, and jane was told nothing.
    assert john.get("/me/relations").json()["relations"] == jane.get("/me/relations").json()["relations"] == []
    john_only = create(john, strangers.schema, fields={}, access={"mode": "relations"})["instance"]
    assert john.get(f"/instances/{john_only}/deliveries").json()["deliveries"] == []
    assert [states(jane, mail) for mail in (first, second, third)] == [{"john.b.ink": "held"}] * 3
    # A change of what was accepted comes in; then jane hears that, as of any delivery.
    strangers.change(first, fields={"subject": "Hello again"})
    wait_for(jane, first, john_b="delivered")
    assert strangers.held(first)[1] == 2
    # From now on has an end.
    assert john.delete("/me/senders/jane.a.ink").status_code == 204
    assert refusal(john.delete("/me/senders/jane.a.ink")) == (404, "federation.unknown-sender")
    # Let them follow me: she has to ask first.
    answer = john.put("/me/followers/jane.a.ink", json={"state": "accepted"})
    assert refusal(answer) == (409, "relation.not-requested")
    assert jane.put("/me/following/john.b.ink").json() == {"state": "requested"}
    assert john.put("/me/followers/jane.a.ink", json={"state": "accepted"}).json() == {"state": "accepted"}


def test_one_of_several_requests_is_refused(strangers: World) -> None:
    first, second = (strangers.mail(recipients=["john.b.ink"]) for _ in range(2))
    for mail in (first, second):
        wait_for(strangers.jane, mail, john_b="held")
    path = f"/me/requests/{strangers.jane.id.hex()}"
    assert strangers.john.post(f"{path}/{first}", json={"decision": "refuse"}).json() == {"instances": []}
    (request,) = strangers.john.get("/me/requests").json()["requests"]
    assert [item["instance"] for item in request["instances"]] == [second]
    assert refusal(strangers.john.get(f"{path}/{first}")) == (404, "federation.no-such-request")


def test_who_is_blocked_is_no_accepted_sender_any_more_and_nothing_of_theirs_waits(strangers: World) -> None:
    jane, john = strangers.jane, strangers.john
    mail = strangers.mail(recipients=["john.b.ink"])
    wait_for(jane, mail, john_b="held")
    assert john.put("/me/senders/jane.a.ink").json() == {"instances": [mail]}
    assert john.put("/me/following/jane.a.ink").json() == {"state": "requested"}
    assert john.put("/me/followers/jane.a.ink", json={"state": "blocked"}).status_code == 200
    assert john.get("/me/senders").json()["senders"] == []
    assert [item["side"] for item in john.get("/me/relations").json()["relations"]] == ["followers"]
    until(lambda: jane.get("/me/relations").json()["relations"] == [])  # john asks no more
    assert refusal(john.put("/me/senders/jane.a.ink")) == (409, "federation.sender-blocked")
    second = strangers.mail(recipients=["john.b.ink"])
    wait_for(jane, second, john_b="refused")


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


def test_node_that_never_answers_delays_nobody(tmp_path: Path) -> None:
    with federation(tmp_path, "abe") as them, socket.socket() as mute:
        jane, john, eve = them.person("jane", "a"), them.person("john", "b"), them.person("eve", "e")
        them.acquaint(jane, john, eve)
        schema = make_schema(jane)
        first = create(jane, schema, recipients=["john.b.ink", "eve.e.ink"])["instance"]
        wait_for(jane, first, john_b="delivered", eve_e="delivered")
        them.nodes["e"].__exit__()
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        mute.bind(("127.0.0.1", them.nodes["e"].port))
        mute.listen()
        begun = time.monotonic()
        for _ in range(3):
            mail = create(jane, schema, recipients=["eve.e.ink", "john.b.ink"])["instance"]
            wait_for(jane, mail, john_b="delivered", eve_e="waiting")
        assert time.monotonic() - begun < 5  # a request to eve's node is given 20 s


def test_sharing_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    places = {letter: postgres.create_database(f"sharing_{letter}") for letter in "ab"}
    with federation(tmp_path, "ab", places) as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        mail = create(jane, make_schema(jane), recipients=["john.b.ink"])["instance"]
        wait_for(jane, mail, john_b="held")
        path = f"/me/requests/{jane.id.hex()}"
        assert john.post(path, json={"decision": "accept"}).json() == {"instances": [mail]}
        assert jane.delete(f"/instances/{mail}").status_code == 200
        wait_for(jane, mail, john_b="delivered")
        assert them.is_deleted("b", mail)


def test_name_that_certainly_leads_to_nobody_is_refused_before_anything_is_published(world: World) -> None:
    answer = world.jane.post(
        "/instances", json={"schema": world.schema, "fields": {}, "recipients": ["nobody.b.ink", "john.b.ink"]}
    )
    assert refusal(answer) == (404, "identity.unknown")
    assert answer.json()["reason"] == "federation.no-identity-there"


def test_recipient_on_a_node_that_is_down_and_never_met_holds_up_nobody_else(tmp_path: Path) -> None:
    with federation(tmp_path, "ab") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        names = ["carol.dead.ink", "john.b.ink", "nobody.dead.ink"]
        made = create(jane, schema, fields={"subject": "Hello"}, recipients=names)
        mail, lost = made["instance"], ["carol.dead.ink", "nobody.dead.ink"]
        assert made["not_found_yet"] == lost
        until(lambda: states(jane, mail)["john.b.ink"] == "delivered")
        codes = {item["fqdn"]: (item["recipient"], item["code"]) for item in _deliveries(jane, mail)}
        assert [codes[name] for name in lost] == [(None, "federation.not-found-yet")] * 2
        # Passing on and sharing wait as well.
        assert john.post(f"/instances/{mail}/pass-on", json={"recipients": ["carol.dead.ink"]}).status_code == 200
        assert states(john, mail) == {"carol.dead.ink": "waiting"}
        # What is closed names ids inside of what is signed: without one, nothing waits for that recipient.
        closed = create(jane, schema, access={"mode": "closed", "to": names[:2]})
        assert closed["not_found_yet"] == ["carol.dead.ink"]
        until(lambda: states(jane, closed["instance"])["john.b.ink"] == "delivered")
        refused = {item["fqdn"]: (item["state"], item["code"]) for item in _deliveries(jane, closed["instance"])}
        assert refused["carol.dead.ink"] == ("refused", "federation.cannot-be-named")
        body = {"schema": schema, "access": {"mode": "closed"}, "recipients": ["carol.dead.ink"]}
        assert refusal(jane.post("/instances", json=body)) == (409, "federation.cannot-be-named")
        for mode, code in (("self", "publish.not-shareable"), ("relations", "federation.not-following")):
            body = {"schema": schema, "access": {"mode": mode}, "recipients": ["carol.dead.ink"]}
            assert refusal(jane.post("/instances", json=body)) == (422, code)


def _deliveries(person: Person, instance: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person.get(f"/instances/{instance}/deliveries").json()["deliveries"]
    return found


# Nodes that do not keep to the rules


def test_receiver_refuses_a_closed_instance_that_is_passed_on(world: World) -> None:
    mail = world.mail(access={"mode": "closed", "to": ["john.b.ink"]})
    wait_for(world.jane, mail, john_b="delivered")
    refused = ("refused", "federation.not-to-be-passed-on")
    assert world.them.fate(world.john, world.bob, world.them.pack("b", mail)) == refused
    assert world.held(mail) == [1, 1, None, None]


def test_receiver_refuses_a_closed_instance_for_others_from_the_owner_too(world: World) -> None:
    mail = world.mail(access={"mode": "closed", "to": ["john.b.ink"]})
    refused = ("refused", "federation.not-addressed")
    assert world.them.fate(world.jane, world.bob, world.them.pack("a", mail)) == refused
    assert world.held(mail)[3] is None


def test_word_that_is_older_than_the_one_held_does_not_count(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink", "bob.d.ink"])
    wait_for(world.jane, mail, john_b="delivered", bob_d="delivered")
    world.change(mail, access={"mode": "closed", "to": ["john.b.ink", "bob.d.ink"]})
    until(lambda: world.held(mail) == [2, 2, None, 2])
    carol = world.them.person("carol", "d")
    world.them.acquaint(world.john, carol)
    old = world.them.pack("b", mail, last=1)  # as if nothing had been said
    assert world.them.fate(world.john, carol, old) == ("refused", "federation.not-to-be-passed-on")
    assert world.them.shares("d", mail) == {world.bob.id}


def test_delivery_that_comes_twice_changes_nothing(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    before = world.them.count_entries("b")
    for _ in range(2):
        assert world.them.fate(world.jane, world.john, world.them.pack("a", mail)) == ("accepted", None)
    assert world.them.count_entries("b") == before
    assert count(world, "b") == 0


def test_forged_entries_are_refused_and_nothing_is_stored(world: World) -> None:
    first = world.mail()
    mail = world.mail()
    good, other = world.them.pack("a", mail), world.them.pack("a", first)
    before = world.them.count_entries("b")
    entries = list(good.entries)
    last, payload = entries[-1]
    assert payload is not None
    bent = last[:-1] + bytes([last[-1] ^ 1])
    for forged, code in (
        ([*entries[:-1], (bent, payload)], "entry.bad-signature"),
        ([*entries[:-1], (last, payload + b" ")], "payload.hash-mismatch"),
        ([entries[-1]], "entry.no-path-to-first"),
        ([*other.entries, *entries[1:]], "parcel.bad"),
    ):
        parcel = Parcel(good.instance, (), forged)
        assert world.them.fate(world.jane, world.john, parcel) == ("refused", code)
    assert world.them.count_entries("b") == before
    assert world.them.shares("b", mail) == set()


def test_foreign_entries_cannot_touch_an_instance(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    carol = world.them.person("carol", "b")
    world.them.acquaint(world.bob, carol)
    log = LogBuilder(world.them.nodes["d"].node.secret_key(world.bob.key), log_id=1)
    version = SchemaVersion(*schema_id(world.schema), 2)
    log.append(encode_message(Update(version, parse_hash(mail), {"subject": "Mine"}, Access("public"))))
    parcel = Parcel(parse_hash(mail), (), [(log.entry(1).encoded, log.payloads[0])])
    before = world.them.count_entries("b")
    assert world.them.fate(world.bob, carol, parcel) == ("refused", "parcel.bad")
    assert world.them.shares("b", mail) == {world.john.id}
    assert world.them.count_entries("b") == before


def test_nobody_delivers_in_the_name_of_another(world: World) -> None:
    mail = world.mail()
    parcel = world.them.pack("a", mail)
    delivery = Delivery(world.jane.id, [Parcel(parcel.instance, (world.john.id,), parcel.entries)])
    answer = world.them.send_as(world.bob, world.john, delivery)
    assert (answer.status, b"federation.sender-unproved" in answer.body) == (403, True)
    assert world.held(mail)[1] is None


def test_delivery_without_a_signature_is_refused(world: World) -> None:
    mail = world.mail()
    parcel = world.them.pack("a", mail)
    body = encode_delivery(Delivery(world.jane.id, [Parcel(parcel.instance, (world.john.id,), parcel.entries)]))
    headers = {"Content-Type": DELIVERY_MEDIA_TYPE, "Host": "john.b.ink"}
    answer = world.them.nodes["b"].anybody.post(DELIVERIES_PATH, content=body, headers=headers)
    assert refusal(answer) == (401, "federation.signature-missing")
    assert world.held(mail)[1] is None


def test_rubbish_is_refused_with_a_code(world: World) -> None:
    answer = world.them.send_as(world.jane, world.john, b"rubbish")
    assert (answer.status, b"parcel.bad" in answer.body) == (422, True)


def test_blocked_sender_is_refused(world: World) -> None:
    node = world.them.nodes["b"].node
    node.database.write(lambda c: put_relation_state(c, world.jane.id, world.john.id, "blocked", 0))
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="refused")
    assert world.held(mail)[1] is None


def test_what_waits_for_a_node_that_is_away_is_delivered_when_it_is_back(tmp_path: Path) -> None:
    with federation(tmp_path, "ab") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        first = create(jane, schema, recipients=["john.b.ink"])["instance"]
        wait_for(jane, first, john_b="delivered")
        away = them.nodes["b"]
        away.__exit__()
        second = create(jane, schema, recipients=["john.b.ink"])["instance"]
        until(lambda: them.nodes["a"].node.database.read(read_backoffs))
        assert states(jane, second) == {"john.b.ink": "waiting"}
        them.nodes["b"] = them.stack.enter_context(RunningNode(away.place, away.home, away.settings, away.port))
        wait_for(jane, second, john_b="delivered")
        assert them.payloads("b", second) == 1


def count(world: World, letter: str) -> int:
    return world.them.nodes[letter].node.database.read(count_waiting_deliveries)
