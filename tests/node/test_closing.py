"""The end of an account: what is deleted, what goes, what the certificate says, and what nobody can do."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, LargeBinary, func, select

from inkgrove.core import IdentityId, PublicKey, identity_of, parse_hash
from inkgrove.messages import Create, IdentityDocument, KeyOf, SchemaVersion
from inkgrove.node.identity import SESSION, check_own_password, hash_token, read_newest_document
from inkgrove.node.publishing import (
    CreateInstance,
    PublishJob,
    Writer,
    advance_closing,
    begin_closing,
    find_held_instance,
    show_closing,
)
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import entries, identities
from inkgrove.store.db.node_tables import grants
from inkgrove.store.federation import forget_closings, list_open_closings
from inkgrove.store.logs import is_erased
from inkgrove.store.node import ServiceAccess, add_session, find_relation_state, keys_of, sealed_key, set_home
from tests.support.adopting import bring, signed
from tests.support.federated import until
from tests.support.logs import LogBuilder, key
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.publishing import Signer, create, make_schema, schema_id
from tests.support.services import Service
from tests.support.tiers import amount


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def close(client: httpx.Client, password: str = PASSWORD) -> httpx.Response:
    return client.request("DELETE", "/me", json={"password": password})


def look(running: RunningNode, token: str) -> dict[str, Any]:
    answer = running.anybody.get("/closing", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wait_until_closed(running: RunningNode, token: str) -> dict[str, Any]:
    until(lambda: look(running, token)["state"] == "closed")
    return look(running, token)


def is_deleted(running: RunningNode, instance: str) -> bool:
    """Whether an instance was deleted; once its account is closed its content is gone as well."""
    held = running.node.database.read(lambda c: find_held_instance(c, parse_hash(instance)))
    if held is None:
        return running.node.database.read(lambda c: is_erased(c, parse_hash(instance)))
    return held.is_deleted


def tables_with(node: Node, what: bytes) -> set[str]:
    """The tables of a node that hold some bytes in a column of their own."""

    def work(connection: Connection) -> set[str]:
        return {
            table.name
            for table in identities.metadata.sorted_tables
            for column in table.c
            if isinstance(column.type, LargeBinary)
            and connection.scalar(select(func.count()).select_from(table).where(column == what))
        }

    return node.database.read(work)


# What is left


@pytest.mark.both_databases
def test_closed_account_leaves_deletes_a_document_and_a_certificate(running: RunningNode) -> None:
    facts = {"name": "Jane", "profile": {"city": "Bern"}}
    made = running.create("jane.haiku.ink", **facts)
    running.create("john.haiku.ink")
    running.acquaint()
    identity, first = IdentityId.fromhex(made["id"]), PublicKey.fromhex(made["key"])
    jane, john = running.sign_in("jane.haiku.ink"), running.sign_in("john.haiku.ink")
    second = running.sign_in("jane.haiku.ink")
    service = running.client(Service(running).connect("jane.haiku.ink", "relations:read")["access_token"])
    schema = make_schema(jane)
    mails = [create(jane, schema, fields={"subject": f"{n}"})["instance"] for n in range(3)]
    mails.append(create(jane, schema, fields={"subject": "hi"}, recipients=["john.haiku.ink"])["instance"])
    assert jane.delete(f"/instances/{mails[0]}").status_code == 200
    theirs = create(john, schema, fields={"subject": "hello"}, recipients=["jane.haiku.ink"])["instance"]
    jane.put("/me/following/john.haiku.ink", json={})
    john.put("/me/followers/jane.haiku.ink", json={"state": "accepted"})
    john.put("/me/following/jane.haiku.ink", json={})
    jane.post("/blobs", content=b"a sloth", headers={"Content-Type": "text/plain"})

    begun = close(jane)
    assert begun.status_code == 202, begun.text
    assert begun.json().keys() == {"token"}
    token = begun.json()["token"]
    for client in (jane, second, service, running.client(token)):
        assert refusal(client.get("/me")) == (401, "auth.bad-token")
    body = {"fqdn": "jane.haiku.ink", "password": PASSWORD}
    assert refusal(running.anybody.post("/sessions", json=body)) == (401, "auth.bad-password")

    found = wait_until_closed(running, token)
    assert {name: found[name] for name in ("total", "deleted", "undeleted", "unanswered")} == {
        "total": 3,
        "deleted": 3,
        "undeleted": 0,
        "unanswered": 0,
    }
    certificate = found["certificate"]
    assert (certificate["identity"], certificate["fqdn"]) == (made["id"], "jane.haiku.ink")
    assert (certificate["document"], certificate["recipients"]) == ({"revision": 2, "closed": True}, [])
    assert (certificate["instances_erased"], certificate["recipients_confirmed"]) == (4, 0)
    removed = certificate["removed_here"]
    assert (removed["keys"], removed["sign_ins"], removed["service_grants"]) == (1, 3, 1)
    assert (removed["received_shares"], removed["blobs"]) == (1, 1)

    assert [is_deleted(running, mail) for mail in mails] == [True] * 4
    assert not is_deleted(running, theirs)
    _, document = running.node.database.read(lambda c: read_newest_document(c, first))
    assert document == IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", closed=True)
    assert running.node.database.read(lambda c: sealed_key(c, first)) is None
    assert running.node.database.read(lambda c: keys_of(c, identity)) == [first], "whose logs these are is still known"
    for address in ("/identities/jane.haiku.ink", f"/identities/{made['id']}"):
        assert refusal(running.anybody.get(address)) == (404, "identity.unknown")
    again = running.anybody.post("/identities", json=body)
    assert refusal(again) == (409, "identity.name-left")
    assert john.get("/me/relations").json()["relations"] == []
    # John keeps what he decided about her (that he takes in what she sends), and what he sent to her.
    known = {"identity_keys", "names", "closings", "accepted_senders", "deliveries"}
    assert tables_with(running.node, identity) == known


def test_account_without_anything_is_closed(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    found = wait_until_closed(running, close(running.sign_in("jane.haiku.ink")).json()["token"])
    assert (found["total"], found["deleted"], found["certificate"]["recipients"]) == (0, 0, [])


def test_certificate_is_forgotten_after_a_while(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    token = close(running.sign_in("jane.haiku.ink")).json()["token"]
    wait_until_closed(running, token)
    now = running.node.clock()
    running.node.database.write(lambda c: forget_closings(c, now - 60_000_000))
    assert look(running, token)["state"] == "closed"
    running.node.database.write(lambda c: forget_closings(c, now + 60_000_000))
    answer = running.anybody.get("/closing", headers={"Authorization": f"Bearer {token}"})
    assert refusal(answer) == (401, "auth.bad-token")


def test_what_the_key_of_a_device_wrote_is_deleted_too(running: RunningNode) -> None:
    me = IdentityId.fromhex(running.create("jane.haiku.ink")["id"])
    jane = running.sign_in("jane.haiku.ink")
    schema = make_schema(jane)
    claim = signed(LogBuilder(key(6), log_id=0), KeyOf(me))
    assert jane.post("/me/keys", json={**claim, "password": PASSWORD}).status_code == 201
    phone, own = Signer(jane, key(6)), create(jane, schema, fields={"subject": "by the node"})["instance"]
    answer = phone.publish(mail_of(schema), schema)
    assert answer.status_code in (200, 201), answer.text
    found = wait_until_closed(running, close(jane).json()["token"])
    assert (found["total"], found["deleted"], found["undeleted"]) == (2, 2, 0)
    assert found["certificate"]["instances_not_deleted"] == 0
    assert is_deleted(running, own)


def mail_of(schema: str) -> Create:
    return Create(SchemaVersion(*schema_id(schema), 2), {"subject": "by the phone"}, None, None, None)


def test_client_that_keeps_its_key_signs_the_end_itself(running: RunningNode) -> None:
    log = LogBuilder(key(5), log_id=0)
    document = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", "Jane")
    assert bring(running.anybody, log, "jane.haiku.ink", signed(log, document)).status_code == 201
    jane = running.sign_in("jane.haiku.ink")
    assert refusal(close(jane)) == (422, "identity.no-key-here")
    assert jane.get("/me").status_code == 200, "and nothing has ended"
    ended = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", closed=True)
    assert jane.patch("/me", json={"signed": signed(log, ended)}).status_code == 200
    found = wait_until_closed(running, close(jane).json()["token"])
    assert found["certificate"]["document"] == {"revision": 2, "closed": True}
    assert tables_with(running.node, identity_of(key(5).public)) == {"identity_keys", "names", "closings"}


def test_identity_that_has_moved_away_is_only_forgotten(running: RunningNode) -> None:
    made = running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    mail = create(jane, make_schema(jane), fields={"subject": "Hello"})["instance"]
    me = IdentityId.fromhex(made["id"])
    running.node.database.write(lambda c: set_home(c, me, "https://jane.poem.ink", lives_here=False))
    found = wait_until_closed(running, close(jane).json()["token"])
    assert (found["total"], found["deleted"]) == (0, 0)
    assert (found["certificate"]["lived_here"], found["certificate"]["document"]) == (
        False,
        {"revision": 1, "closed": False},
    )
    assert not is_deleted(running, mail), "its logs go on elsewhere"
    assert refusal(running.anybody.get("/identities/jane.haiku.ink")) == (404, "identity.unknown")


def test_block_of_somebody_who_closes_the_account_stays(running: RunningNode) -> None:
    jane = IdentityId.fromhex(running.create("jane.haiku.ink")["id"])
    john = IdentityId.fromhex(running.create("john.haiku.ink")["id"])
    clients = [running.sign_in(f"{name}.haiku.ink") for name in ("jane", "john")]
    for client, other in zip(clients, ("john", "jane"), strict=True):
        assert client.put(f"/me/following/{other}.haiku.ink", json={}).status_code in (200, 201, 202)
    for client, other in zip(clients, ("john", "jane"), strict=True):
        assert client.put(f"/me/followers/{other}.haiku.ink", json={"state": "blocked"}).status_code == 200
    wait_until_closed(running, close(clients[0]).json()["token"])
    state = running.node.database.read(
        lambda c: (find_relation_state(c, jane, john), find_relation_state(c, john, jane))
    )
    assert state == ("blocked", None), "john's decision stays, jane's goes with her"


@pytest.mark.both_databases
def test_what_comes_while_the_account_is_shut_is_deleted_too(place: Path | str, tmp_path: Path) -> None:
    with RunningNode(place, tmp_path) as running:
        me = IdentityId.fromhex(running.create("jane.haiku.ink")["id"])
        jane = running.sign_in("jane.haiku.ink")
        schema = make_schema(jane)
        create(jane, schema, fields={"subject": "early"})
    node = Node(place, running.settings, home=tmp_path)
    token = begin_closing(node, check_own_password(node, me, PASSWORD, ""))
    assert [advance_closing(node, me) for _ in range(2)] == [True, True]
    assert show_closing(node, token).state == "delivering"
    # Somebody whose sign-in was looked up just before is a moment late.
    late = SESSION + "ab" * 32
    node.database.write(lambda c: add_session(c, hash_token(late), me, node.clock() + 10**10))
    writer = Writer(node)
    writer.submit_and_wait(PublishJob(late, CreateInstance(schema, {"subject": "late"})))
    writer.close()
    states = []
    while advance_closing(node, me):
        states.append(show_closing(node, token).state)
    found = show_closing(node, token)
    node.close()
    assert states == ["deleting", "deleting", "delivering", "parting"]
    assert (found.state, found.total, found.deleted, found.undeleted) == ("closed", 1, 2, 0)


@pytest.mark.both_databases
def test_what_a_service_did_last_keeps_nobody_elses_record_from_being_written(running: RunningNode) -> None:
    """Accesses are written a moment later: by then the grants of a closed account are gone."""
    services = {}
    for name in ("jane", "john"):
        running.create(f"{name}.haiku.ink")
        services[name] = running.client(
            Service(running, name).connect(f"{name}.haiku.ink", "relations:read")["access_token"]
        )
    jane, john = running.sign_in("jane.haiku.ink"), running.sign_in("john.haiku.ink")
    grant = running.node.database.read(lambda c: c.scalar(select(func.min(grants.c.id))))
    wait_until_closed(running, close(jane).json()["token"])
    running.node.access_log.write(ServiceAccess(grant or 0, running.node.clock(), "relations", None, None))
    assert services["john"].get("/me/relations").status_code == 200
    assert [item["name"] for item in john.get("/me/accesses").json()["accesses"]] == ["john"]


# Who may


def test_closing_needs_the_person_and_the_password(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    service = running.client(Service(running).connect("jane.haiku.ink", "relations:read")["access_token"])
    assert refusal(close(running.anybody)) == (401, "auth.required")
    assert refusal(close(service)) == (403, "auth.not-allowed")
    assert refusal(close(jane, "not this one")) == (401, "auth.bad-password")
    bodies: list[Any] = [{}, {"password": 5}, {"password": None}, {"password": PASSWORD, "now": True}, [], "x"]
    for body in bodies:
        assert refusal(jane.request("DELETE", "/me", json=body)) == (400, "request.invalid"), body
    assert jane.request("DELETE", "/me").status_code == 400
    assert jane.get("/me").status_code == 200
    assert running.node.database.read(list_open_closings) == []


def test_tries_of_passwords_are_limited(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    assert {close(jane, "not this one").status_code for _ in range(12)} == {401, 429}
    assert refusal(close(jane)) == (429, "auth.too-many-attempts")


def test_administrator_stays(running: RunningNode) -> None:
    running.create("admin.haiku.ink")
    admin = running.sign_in("admin.haiku.ink")
    assert refusal(close(admin)) == (409, "identity.administers")
    assert admin.get("/me").status_code == 200


@pytest.mark.parametrize("token", ["ink_x_" + "00" * 32, "ink_s_" + "00" * 32, "ink_x_", "x", "ink_x_" + "a" * 5000])
def test_only_its_token_shows_a_closing(running: RunningNode, token: str) -> None:
    running.create("jane.haiku.ink")
    close(running.sign_in("jane.haiku.ink"))
    assert refusal(running.anybody.get("/closing")) == (401, "auth.required")
    answer = running.anybody.get("/closing", headers={"Authorization": f"Bearer {token}"})
    assert refusal(answer) == (401, "auth.bad-token")


@pytest.mark.both_databases
def test_of_two_sign_ins_that_close_at_once_one_does(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    clients = [running.sign_in("jane.haiku.ink") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(close, clients))
    assert sorted(answer.status_code for answer in answers) == [202, 401]
    (token,) = (answer.json()["token"] for answer in answers if answer.status_code == 202)
    assert wait_until_closed(running, token)["state"] == "closed"


# Interrupted


def count_kinds(place: Path | str, settings: NodeSettings, home: Path) -> dict[str, int]:
    """How many messages of each kind a node holds."""
    node = Node(place, settings, home=home)
    query = select(entries.c.kind, func.count()).group_by(entries.c.kind)
    kinds = {row[0]: row[1] for row in node.database.read(lambda c: c.execute(query).all())}
    node.close()
    return kinds


@pytest.fixture
def large(place: Path | str, tmp_path: Path) -> Iterator[tuple[RunningNode, IdentityId]]:
    """An account with 120 instances."""
    settings = NodeSettings(registration="open", domains=("haiku.ink",), metrics="local")
    with RunningNode(place, tmp_path, settings) as running:
        made = running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        schema = make_schema(jane)
        for number in range(120):
            create(jane, schema, fields={"subject": f"{number}"})
        yield running, IdentityId.fromhex(made["id"])


@pytest.mark.both_databases
def test_closing_goes_on_after_any_step(
    place: Path | str, tmp_path: Path, large: tuple[RunningNode, IdentityId]
) -> None:
    running, jane = large
    running.__exit__()
    settings, steps, states = running.settings, 0, []
    with_node = Node(place, settings, home=tmp_path)
    token = begin_closing(with_node, check_own_password(with_node, jane, PASSWORD, ""))
    with_node.close()
    while True:  # a new process does each step
        node = Node(place, settings, home=tmp_path)
        goes_on = advance_closing(node, jane)
        progress = show_closing(node, token)
        states.append((progress.state, progress.deleted))
        node.close()
        steps += 1
        if not goes_on or steps > 20:
            break
    assert states == [
        ("deleting", 100),
        ("deleting", 120),
        ("delivering", 120),
        ("parting", 120),
        ("closed", 120),
    ]
    kinds = count_kinds(place, settings, tmp_path)
    assert (kinds["create"], kinds["delete"], kinds["identity"]) == (120, 120, 2), "each is deleted once"


def test_killed_node_closes_the_account_when_it_is_back(tmp_path: Path) -> None:
    settings = {"registration": "open", "domains": "haiku.ink", "log_level": "warning"}
    chance, token, kills = Random(17), "", 0
    while True:  # a process for each round, killed at a moment of its own
        with Serving(tmp_path, settings) as serving:
            if not token:
                body = {"fqdn": "jane.haiku.ink", "password": PASSWORD}
                assert serving.client.post("/identities", json=body).status_code == 201
                bearer = f"Bearer {serving.client.post('/sessions', json=body).json()['token']}"
                with httpx.Client(base_url=serving.url, headers={"Authorization": bearer}, timeout=60) as jane:
                    schema = make_schema(jane)
                    for number in range(150):
                        create(jane, schema, fields={"subject": f"{number}"})
                    token = close(jane).json()["token"]
            if kills < amount(1, 12):
                time.sleep(chance.uniform(0, 1))
                serving.stop(signal.SIGKILL)
                kills += 1
                continue
            serving.client.headers["Authorization"] = f"Bearer {token}"
            until(lambda: serving.client.get("/closing").json()["state"] == "closed")
            found = serving.client.get("/closing").json()
            break
    assert (found["total"], found["deleted"], found["undeleted"]) == (150, 150, 0)
    assert found["certificate"]["document"] == {"revision": 2, "closed": True}
    assert count_kinds(tmp_path, NodeSettings(), tmp_path)["delete"] == 150
