"""Identities and sign-ins over HTTP."""

from base64 import b64decode, b64encode
from collections import UserDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from httpx import Response
from sqlalchemy import Connection

from inkgrove.core import IdentityId, identity_of, parse_public_key, verify_signature
from inkgrove.core.errors import KeyRevoked
from inkgrove.federation.peers import claim_of
from inkgrove.messages import (
    Access,
    Create,
    FieldChange,
    FurtherKey,
    IdentityDocument,
    IdentityMessage,
    KeyOf,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    decode_message,
    encode_message,
)
from inkgrove.node.errors import BadPassword
from inkgrove.node.identity import (
    ANYBODY,
    append_document,
    apply_identity_log,
    change_identity,
    check_author,
    create_identity,
    hash_password,
    show_identity,
    sign_in,
)
from inkgrove.node.reading import prove_instance
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import add_node_key
from inkgrove.store.logs import read_entries, register_schema
from inkgrove.store.node import (
    HostedIdentity,
    add_identity,
    end_sessions,
    find_identity,
    find_name,
    keys_of,
    set_password,
)
from tests.support.adopting import bring, prove, signed
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.plain_views import build_views
from tests.support.races import Meanwhile, begin_before_commit
from tests.support.revocations import Revoking


def test_new_identity_is_served_by_name_and_by_id(running: RunningNode) -> None:
    created = running.create("Jane.haiku.ink", name="Jane", profile={"city": "Bern"})
    assert created["fqdn"] == "jane.haiku.ink"
    assert created["id"] == identity_of(parse_public_key(created["key"])).hex()
    for name in ("jane.haiku.ink", created["id"]):
        assert running.anybody.get(f"/identities/{name}").json() == created


def test_identity_document_is_a_signed_message_in_log_0(running: RunningNode) -> None:
    created = running.create("jane.haiku.ink", name="Jane")
    (stored,) = running.node.store.read(read_entries, parse_public_key(created["key"]), 0)
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


@pytest.mark.parametrize(
    "name", ["\0", "a\0.ink", "\ud800".encode("utf-8", "surrogatepass"), "ä" * 300, "%", "../me", "\n"]
)
def test_strange_names_are_nobody(running: RunningNode, name: str | bytes) -> None:
    running.create("jane.haiku.ink")
    jane = running.client(_token(running))
    for answer in (
        running.anybody.get(f"/identities/{quote(name, safe='')}"),
        running.anybody.get("/.well-known/inkgrove", headers={"host": quote(name, safe="")}),
        running.anybody.post("/sessions", json={"fqdn": quote(name), "password": PASSWORD}),
        running.anybody.post("/sessions", content=b'{"fqdn": "\\u0000", "password": "\\ud800"}'),
        jane.put(f"/me/following/{quote(name, safe='')}", json={"group": "\0"}),
        jane.put("/me/followers/jane.haiku.ink", content=b'{"state": "blocked", "group": "\\ud800"}'),
        jane.patch("/me", json={"name": "\0"}),
        jane.patch("/me", content=b'{"profile": {"\\ud800": "\\u0000"}}'),
        jane.delete(f"/me/services/{quote(name, safe='')}"),
        jane.get("/me/accesses", params={"client": "\0"}),
        running.anybody.get("/oauth/authorize", params={"client_id": "\0"}),
    ):
        assert 400 <= answer.status_code < 500, (answer.request.url, answer.status_code)


def _token(running: RunningNode) -> str:
    body = {"fqdn": "jane.haiku.ink", "password": PASSWORD}
    token: str = running.anybody.post("/sessions", json=body).json()["token"]
    return token


# A key that never leaves the client


def document(fqdn: str = "jane.haiku.ink", **changes: Any) -> IdentityDocument:
    return replace(IdentityDocument(fqdn, f"https://{fqdn}"), **changes)


def adopt(running: RunningNode, log: LogBuilder, message: IdentityMessage, fqdn: str = "jane.haiku.ink") -> Response:
    return bring(running.anybody, log, fqdn, signed(log, message))


def test_client_may_hold_the_key_and_sign_for_itself(running: RunningNode) -> None:
    log = LogBuilder(key(5), log_id=0)
    created = adopt(running, log, document(name="Jane"))
    assert (created.status_code, created.json()["id"]) == (201, identity_of(key(5).public).hex())
    jane = running.sign_in("jane.haiku.ink")
    answer = jane.patch("/me", json={"name": "Other"})
    assert (answer.status_code, answer.json()["code"]) == (422, "identity.no-key-here")
    moved = jane.patch("/me", json={"signed": signed(log, document("jane.poem.ink"))})
    assert (moved.status_code, moved.json()["revision"]) == (200, 2)
    assert running.anybody.get("/identities/jane.poem.ink").json()["id"] == created.json()["id"]
    assert running.anybody.get("/identities/jane.haiku.ink").status_code == 404


@pytest.mark.parametrize(
    ("log_id", "message", "code"),
    [
        (1, document(), "identity.bad-document"),
        (0, KeyOf(identity_of(key(5).public)), "identity.bad-document"),
        (0, document("john.haiku.ink"), "identity.bad-document"),
        (0, document(endpoint="https://evil.example"), "identity.bad-document"),
    ],
)
def test_first_entry_of_a_client_is_checked(
    running: RunningNode, log_id: int, message: IdentityMessage, code: str
) -> None:
    answer = adopt(running, LogBuilder(key(5), log_id=log_id), message)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert running.anybody.get("/identities/jane.haiku.ink").status_code == 404
    assert running.node.store.heights() == {}


def test_forged_first_entry_is_refused(running: RunningNode) -> None:
    log = LogBuilder(key(5), log_id=0)
    item = signed(log, document())
    entry = bytearray(b64decode(item["entry"]))
    entry[-1] ^= 1
    other = b64encode(encode_message(document(name="Other"))).decode()
    for changes, code in (
        ({"entry": b64encode(entry).decode()}, "entry.bad-signature"),
        ({"payload": other}, "payload.hash-mismatch"),
        ({"entry": "%%%"}, "request.invalid"),
    ):
        sent = {**item, **changes}
        given = bytes(entry) if changes.get("entry", "%%%") != "%%%" else log.entries[0].encoded
        proof = prove(running.anybody, key(5), given, "jane.haiku.ink")
        assert bring(running.anybody, log, "jane.haiku.ink", sent, **proof).json()["code"] == code
    assert running.node.store.heights() == {}


def test_stale_document_of_a_client_is_refused(running: RunningNode) -> None:
    log = LogBuilder(key(5), log_id=0)
    adopt(running, log, document())
    jane = running.sign_in("jane.haiku.ink")
    second = {"signed": signed(log, document(name="Second"))}
    assert jane.patch("/me", json=second).status_code == 200
    branch = LogBuilder(key(5), log_id=0)
    branch.entries, branch.payloads = log.entries[:1], log.payloads[:1]
    fork = jane.patch("/me", json={"signed": signed(branch, document(name="Fork"))})
    assert (fork.status_code, fork.json()["code"]) == (409, "log.stale")


# Changes


def test_document_and_name_change_and_every_revision_is_signed(running: RunningNode) -> None:
    created = running.create("jane.haiku.ink", name="Jane")
    running.create("john.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    changed = jane.patch("/me", json={"profile": {"city": "Bern"}}).json()
    assert (changed["name"], changed["profile"], changed["revision"]) == ("Jane", {"city": "Bern"}, 2)
    taken = jane.patch("/me", json={"fqdn": "john.haiku.ink"})
    assert (taken.status_code, taken.json()["code"]) == (409, "identity.exists")
    moved = jane.patch("/me", json={"fqdn": "jane.poem.ink"}).json()
    assert (moved["id"], moved["endpoint"], moved["revision"]) == (created["id"], "https://jane.poem.ink", 3)
    assert jane.get("/me").json()["fqdn"] == "jane.poem.ink"
    assert running.sign_in("jane.poem.ink").get("/me").status_code == 200
    assert len(running.node.store.read(read_entries, parse_public_key(created["key"]), 0)) == 3


def test_document_is_signed_again_only_if_it_says_something_else(running: RunningNode) -> None:
    running.create("jane.haiku.ink", name="Jane", profile={"city": "Bern"})
    jane = running.sign_in("jane.haiku.ink")
    same = {"fqdn": "Jane.haiku.ink", "name": "Jane", "profile": {"city": "Bern"}}
    for change in ({}, same, {"name": "Jane"}):
        assert jane.patch("/me", json=change).json()["revision"] == 1
    unnamed = jane.patch("/me", json={"name": None}).json()
    assert (unnamed["name"], unnamed["profile"], unnamed["revision"]) == (None, {"city": "Bern"}, 2)
    assert jane.patch("/me", json={"profile": None}).json()["profile"] == {}
    assert jane.get("/me").json()["revision"] == 3
    assert jane.patch("/me", json={"fqdn": None}).json()["code"] == "request.invalid"


def test_new_password_needs_the_old_one_and_ends_every_other_sign_in(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane, elsewhere = running.sign_in("jane.haiku.ink"), running.sign_in("jane.haiku.ink")
    wrong = jane.post("/me/password", json={"old": "not this one", "new": "another password"})
    assert (wrong.status_code, wrong.json()["code"]) == (401, "auth.bad-password")
    assert jane.post("/me/password", json={"old": PASSWORD, "new": "another password"}).status_code == 204
    assert (jane.get("/me").status_code, elsewhere.get("/me").status_code) == (200, 401)
    for password, status in (("another password", 201), (PASSWORD, 401)):
        body = {"fqdn": "jane.haiku.ink", "password": password}
        assert running.anybody.post("/sessions", json=body).status_code == status


# Further keys


def test_further_key_counts_only_with_both_words(running: RunningNode) -> None:
    first, further = LogBuilder(key(5), log_id=0), LogBuilder(key(6), log_id=0)
    me = identity_of(key(5).public)
    adopt(running, first, document())
    jane = running.sign_in("jane.haiku.ink")

    def keys() -> list[bytes]:
        return running.node.database.read(lambda connection: [*keys_of(connection, me)])

    jane.patch("/me", json={"signed": signed(first, document(keys=(FurtherKey(key(6).public),)))})
    assert keys() == [key(5).public]  # listed, and has not said so itself
    entry = signed(further, KeyOf(me))
    running.node.store.ingest([(b64decode(entry["entry"]), b64decode(entry["payload"]))])
    running.node.database.write(lambda connection: apply_identity_log(connection, key(6).public))
    assert sorted(keys()) == sorted([key(5).public, key(6).public])
    jane.patch("/me", json={"signed": signed(first, document())})
    assert keys() == [key(5).public]  # no longer listed


@pytest.mark.both_databases
def test_name_that_two_documents_give_at_once_is_one_identitys(running: RunningNode) -> None:
    """Both were signed here, in a past that a restored home does not remember."""
    node, wanted = running.node, "wanted.haiku.ink"
    people = [create_identity(node, f"{name}.haiku.ink", None) for name in ("jane", "john")]
    for person in people:
        secret, said = node.secret_key(person.key), replace(person.document, fqdn=wanted, endpoint=f"https://{wanted}")
        node.database.write(lambda c, secret=secret, said=said: append_document(c, secret, said))  # type: ignore[misc]
    begin_before_commit(
        node.database,
        lambda connection: apply_identity_log(connection, people[0].key),
        lambda: node.database.write(lambda connection: apply_identity_log(connection, people[1].key)),
    )
    record, hosted = node.database.read(lambda c: (find_name(c, wanted), find_identity(c, wanted)))
    assert record is not None
    assert hosted is not None
    assert record.identity == hosted.id == people[0].id


def test_proof_has_no_message_behind_the_end_of_a_revoked_key(running: RunningNode) -> None:
    store, schema, notes = running.node.store, LogBuilder(key(50)), LogBuilder(key(60))
    for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
        schema.append(encode_message(message))
    version = SchemaVersion(key(50).public, 1, 2)
    notes.append(encode_message(Create(version, {"text": "mine"}, Access("public"))))
    notes.append(encode_message(Update(version, notes.hash(1), {"text": "a thief's"})))
    for log in (schema, notes):
        store.ingest(zip(log.entries, log.payloads, strict=True))
    store.write(register_schema, version.schema_id)
    Revoking(51, 60).say(((1, 1),)).tell(store)
    build_views(running.node)
    assert running.anybody.get(f"/instances/{notes.hash(1)}").json()["fields"] == {"text": "mine"}
    proof = prove_instance(running.node, ANYBODY, notes.hash(1))
    assert [payload for _, payload in proof.entries if payload is not None] == [notes.payloads[0]]


def test_key_of_somebody_else_cannot_be_claimed(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    johns = parse_public_key(running.create("john.haiku.ink")["key"])
    jane = running.sign_in("jane.haiku.ink")
    theirs = signed(LogBuilder(key(6), log_id=0), KeyOf(identity_of(johns)))
    answer = jane.post("/me/keys", json={**theirs, "password": PASSWORD})
    assert (answer.status_code, answer.json()["code"]) == (422, "identity.bad-document")


def test_revoked_key_counts_up_to_what_was_held(running: RunningNode) -> None:
    me = bytes.fromhex(running.create("jane.haiku.ink")["id"])
    jane = running.sign_in("jane.haiku.ink")
    claim = LogBuilder(key(6), log_id=0)
    listed = jane.post("/me/keys", json={**signed(claim, KeyOf(IdentityId(me))), "password": PASSWORD})
    assert (listed.status_code, listed.json()["keys"]) == (
        201,
        [{"key": key(6).public.hex(), "state": "key.counts", "label": None, "revoked": None}],
    )
    log = LogBuilder(key(6), log_id=3).grow(2)
    running.node.store.ingest(zip(log.entries, log.payloads, strict=True))

    def check(log_id: int, seq_num: int) -> object:
        return running.node.database.read(lambda connection: check_author(connection, key(6).public, log_id, seq_num))

    assert check(3, 3) == me
    revoked = jane.delete(f"/me/keys/{key(6).public.hex()}").json()
    ends = [[0, 1, claim.hash(1).hex()], [3, 2, log.hash(2).hex()]]
    assert revoked["keys"] == [{"key": key(6).public.hex(), "state": "key.ended", "label": None, "revoked": ends}]
    assert check(3, 2) == me
    assert check(0, 2) == me
    for place in ((3, 3), (4, 1)):
        with pytest.raises(KeyRevoked):
            check(*place)
    assert jane.delete(f"/me/keys/{key(9).public.hex()}").status_code == 404


# Discovery


def test_host_says_who_is_there(running: RunningNode) -> None:
    created = running.create("jane.haiku.ink")
    found = running.anybody.get("/.well-known/inkgrove", headers={"host": "Jane.haiku.ink:8750"}).json()
    assert (found["id"], found["fqdn"]) == (created["id"], "jane.haiku.ink")
    own_key = load_node_key(running.node).public
    claim = claim_of(IdentityId.fromhex(found["id"]), "jane.haiku.ink", created["endpoint"])
    verify_signature(own_key, claim, bytes.fromhex(found["node"].pop("proof")))
    assert found["node"] == {"endpoint": created["endpoint"], "key": own_key.hex()}
    assert found["node"]["key"] != created["key"]
    assert running.anybody.get("/.well-known/inkgrove").json()["code"] == "identity.unknown"


def test_node_keeps_its_own_key(place: Path | str, tmp_path: Path) -> None:
    keys = []
    for _ in range(2):
        with RunningNode(place, tmp_path) as running:
            keys.append(load_node_key(running.node).public)
    assert keys[0] == keys[1]


# Several processes at the same moment


@pytest.fixture
def node(place: Path | str, tmp_path: Path) -> Iterator[Node]:
    """A node that nobody serves."""
    opened = Node(place, NodeSettings(domains=("haiku.ink",)), home=tmp_path)
    yield opened
    opened.close()


@pytest.mark.both_databases
def test_two_changes_of_the_same_moment_are_both_in_the_document(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    other = Meanwhile(lambda: change_identity(node, jane, name="Jane"))

    class Profile(UserDict[str, str]):
        """Is looked at after the document was read that it is to be put into."""

        def __getitem__(self, name: str) -> str:
            other()
            return super().__getitem__(name)

    changed = change_identity(node, jane, profile=Profile(city="Bern"))
    later = other.result()
    assert sorted([changed.revision, later.revision]) == [2, 3]
    document = show_identity(node, jane).document
    assert (document.name, document.profile) == ("Jane", {"city": "Bern"})


@pytest.mark.both_databases
def test_name_that_is_taken_at_the_same_moment_is_refused(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None).id
    john = HostedIdentity(identity_of(key(2).public), "john.haiku.ink", key(2).public, None, 0)
    with raises("identity.exists"):
        begin_before_commit(
            node.database,
            lambda connection: add_identity(connection, john, None),
            lambda: change_identity(node, jane, fqdn="john.haiku.ink"),
        )
    assert show_identity(node, jane).document.fqdn == "jane.haiku.ink"


@pytest.mark.both_databases
def test_first_use_by_two_processes_makes_one_node_key(node: Node) -> None:
    first = key(3)
    found = begin_before_commit(
        node.database,
        lambda connection: add_node_key(connection, first.public, node.vault.seal(first), 0),
        lambda: load_node_key(node),
    )
    assert found.public == first.public


@pytest.mark.both_databases
def test_old_password_opens_nothing_while_it_is_changed(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", PASSWORD).id

    def change(connection: Connection) -> None:
        set_password(connection, jane, hash_password("another long one"))
        end_sessions(connection, identity=jane)

    with pytest.raises(BadPassword):
        begin_before_commit(node.database, change, lambda: sign_in(node, "jane.haiku.ink", PASSWORD))
    assert sign_in(node, "jane.haiku.ink", "another long one")
