"""Identities and sign-ins over HTTP."""

import pytest

from inkgrove.core.keys import identity_of, parse_public_key
from inkgrove.messages.identity import IdentityDocument
from inkgrove.messages.message import decode_message
from tests.support.nodes import RunningNode


def test_new_identity_is_served_by_name_and_by_id(running: RunningNode) -> None:
    created = running.create("Jane.haiku.ink", name="Jane", profile={"city": "Bern"})
    assert created["fqdn"] == "jane.haiku.ink"
    assert created["id"] == identity_of(parse_public_key(created["key"])).hex()
    for name in ("jane.haiku.ink", created["id"]):
        assert running.anybody.get(f"/identities/{name}").json() == created


def test_identity_document_is_a_signed_message_in_log_0(running: RunningNode) -> None:
    created = running.create("jane.haiku.ink", name="Jane")
    (stored,) = running.node.store.entries_of(parse_public_key(created["key"]), 0)
    assert stored.refusal is None
    assert stored.payload is not None
    document = decode_message(stored.payload)
    assert document == IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", "Jane")


def test_name_is_given_once(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    answer = running.anybody.post("/identities", json={"fqdn": "JANE.haiku.ink", "password": "long enough"})
    assert (answer.status_code, answer.json()["code"]) == (409, "identity.exists")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("fqdn", ["jane", "jane..ink", "-a.ink", "jane.haiku.ink:80", "", "jä.ink"])
def test_bad_names_are_refused(running: RunningNode, fqdn: str) -> None:
    answer = running.anybody.post("/identities", json={"fqdn": fqdn, "password": "long enough"})
    assert (answer.status_code, answer.json()["code"]) == (422, "identity.bad-name")


def test_sign_in_gives_a_token_that_ends_with_the_sign_out(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    assert jane.delete("/sessions/current").status_code == 204
    answer = jane.delete("/sessions/current")
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.bad-token")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("fqdn", ["jane.haiku.ink", "john.haiku.ink"])
def test_wrong_password_and_unknown_name_look_alike(running: RunningNode, fqdn: str) -> None:
    running.create("jane.haiku.ink")
    answer = running.anybody.post("/sessions", json={"fqdn": fqdn, "password": "not this one"})
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.bad-password")


def test_secret_key_is_encrypted_at_rest(running: RunningNode) -> None:
    created = running.create("jane.haiku.ink")
    author = parse_public_key(created["key"])
    secret = running.node.secret_key(author)
    assert secret.public == author
    with running.node.database.reading() as connection:
        stored = connection.exec_driver_sql("SELECT sealed FROM identity_keys").scalar_one()
    assert secret.seed not in bytes(stored)
