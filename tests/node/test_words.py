"""Identities whose first key is on paper: sign-up, getting back in, and what the node may do meanwhile."""

import json
from base64 import b64encode
from typing import Any

import pytest

from inkgrove.client import Client, Invalid, NotSignedIn, new_words
from inkgrove.client.signing import read_next_entry
from inkgrove.core import (
    Hash,
    PublicKey,
    SecretKey,
    identity_of,
    parse_hash,
    parse_words,
    render_words,
    sign_entry,
    sign_next,
)
from inkgrove.core.errors import KeysError
from inkgrove.messages import FurtherKey, IdentityDocument, adoption_claim, encode_message
from inkgrove.node.identity import apply_identity_log, find_control, find_owner, read_control, read_next_of_log0
from inkgrove.store.logs import find_entry
from inkgrove.store.node import find_key_status, sealed_key
from tests.support.command import inkgrove
from tests.support.logs import key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.publishing import create, make_schema

JANE = "jane.haiku.ink"


@pytest.fixture
def words(running: RunningNode) -> str:
    """Jane has signed up with these words."""
    made = new_words()
    with Client(running.url) as client:
        client.sign_up(JANE, PASSWORD, made, name="Jane", endpoint=endpoint(running))
    return made


def endpoint(running: RunningNode) -> str:
    return running.node.settings.endpoint.format(fqdn=JANE)


def first_key(words: str) -> SecretKey:
    return SecretKey.from_seed(parse_words(words))


def test_node_keeps_a_controller_and_never_the_first_key(running: RunningNode, words: str) -> None:
    first, jane = first_key(words), running.sign_in(JANE)
    me = jane.get("/me").json()
    assert (me["key"], me["recovery"], me["name"]) == (first.public.hex(), "words", "Jane")
    (listed,) = me["keys"]
    assert (listed["key"], listed["state"], listed["label"]) == (me["controller"], "key.counts", "server")

    def secrets(connection: Any) -> list[bool]:
        kept = (first.public, PublicKey.fromhex(me["controller"]))
        return [sealed_key(connection, author) is not None for author in kept]

    assert running.node.database.read(secrets) == [False, True]
    # The node speaks and publishes with the controller.
    assert jane.patch("/me", json={"name": "Jane Doe"}).json()["name"] == "Jane Doe"
    assert jane.patch("/me", json={"name": "Jane D."}).json()["name"] == "Jane D."
    control = running.node.database.read(lambda connection: read_control(connection, first.public))
    assert [(step.author == first.public, step.seq_num) for step in control.path] == [(True, 1), (False, 3)]
    made = create(jane, make_schema(jane), fields={"subject": "Hello"})
    held = running.node.store.read(find_entry, parse_hash(made["instance"]))
    assert held is not None
    assert held.entry.author.hex() == me["controller"]
    owner = running.node.database.read(lambda connection: find_owner(connection, held.entry.author))
    assert owner.hex() == me["id"]


def test_password_alone_is_marked_and_mended(running: RunningNode) -> None:
    running.create(JANE)
    jane = running.sign_in(JANE)
    before = jane.get("/me").json()
    assert (before["recovery"], before["controller"]) == ("none", None)
    with Client.sign_in(running.url, JANE, PASSWORD) as client:
        with pytest.raises(NotSignedIn):
            client.show_words("not the password")
        words = client.show_words(PASSWORD)
        assert first_key(words).public.hex() == before["key"]
        assert client.me().recovery == "none", "nothing changes before they are confirmed"
        for wrong, code in (
            (words.replace(words.split()[3], "slothful", 1), "key.wrong-word"),
            (" ".join(words.split()[:23]), "key.bad-words"),
            (new_words(), "key.mismatch"),
        ):
            with pytest.raises(Invalid) as caught:
                client.confirm_words(PASSWORD, wrong)
            assert caught.value.code == code
        after = client.confirm_words(PASSWORD, words)
    assert (after.recovery, after.key, after.id) == ("words", before["key"], before["id"])
    stored = running.node.database.read(lambda connection: sealed_key(connection, PublicKey.fromhex(before["key"])))
    assert stored is None
    with Client.sign_in(running.url, JANE, PASSWORD) as client, pytest.raises(Invalid) as caught:
        client.show_words(PASSWORD)
    assert caught.value.code == "identity.no-key-here"
    assert jane.patch("/me", json={"name": "Jane"}).status_code == 200


def test_words_set_a_new_password_and_end_every_sign_in(running: RunningNode, words: str) -> None:
    jane = running.sign_in(JANE)
    with Client(running.url) as client:
        with pytest.raises(KeysError) as caught:
            client.recover(JANE, "a new password", new_words())
        assert caught.value.code == "key.mismatch"
        client.recover(JANE, "a new password", words)
    assert jane.get("/me").status_code == 401
    with Client.sign_in(running.url, JANE, "a new password") as client:
        assert client.me().recovery == "words"


def test_words_take_the_controller_away(running: RunningNode, words: str) -> None:
    jane = running.sign_in(JANE)
    jane.patch("/me", json={"name": "by the thief"})
    made = create(jane, make_schema(jane), fields={"subject": "Hello"})
    before = jane.get("/me").json()["controller"]
    with Client.sign_in(running.url, JANE, PASSWORD) as client:
        after = client.replace_controller(JANE, "a new password", words)
    assert after.controller not in (before, None)
    with Client.sign_in(running.url, JANE, "a new password") as client:
        assert client.change_me(name="Jane").name == "Jane"
    # What was published before still counts.
    held = running.node.store.read(find_entry, parse_hash(made["instance"]))
    assert held is not None
    assert held.refusal is None
    status = running.node.database.read(lambda connection: find_key_status(connection, PublicKey.fromhex(before)))
    assert status is not None
    assert status.ends is not None
    control = running.node.database.read(lambda connection: find_control(connection, first_key(words).public))
    assert control is not None
    assert [step.author == first_key(words).public for step in control.path] == [True, False]


def adopt(running: RunningNode, secret: SecretKey, document: IdentityDocument, signer: SecretKey | None = None) -> Any:
    """Send entry 1 of log 0 with a document, and a proof by `signer`."""
    asked = running.anybody.post("/identities/challenges", json={"key": secret.public.hex()}).json()
    payload = encode_message(document)
    entry = sign_entry(secret, payload, log_id=0, seq_num=1).encoded
    claim = adoption_claim(identity_of(secret.public), JANE, document.endpoint, entry, asked["challenge"])
    body = {
        "fqdn": JANE,
        "password": PASSWORD,
        "signed": {"entry": b64encode(entry).decode(), "payload": b64encode(payload).decode()},
        "proof": {"challenge": asked["challenge"], "signature": (signer or secret).sign(claim).hex()},
    }
    return running.anybody.post("/identities", json=body)


def test_controller_that_nobody_has_shown_is_refused(running: RunningNode) -> None:
    stranger = key(9).public
    plain = IdentityDocument(JANE, endpoint(running), controller=stranger)
    unlisted = adopt(running, key(8), plain)
    assert (unlisted.status_code, unlisted.json()["code"]) == (422, "identity.bad-document")
    unknown = adopt(
        running, key(8), IdentityDocument(JANE, endpoint(running), None, {}, (FurtherKey(stranger),), stranger)
    )
    assert (unknown.status_code, unknown.json()["code"]) == (422, "identity.unknown-controller")
    assert running.anybody.get(f"/identities/{JANE}").status_code == 404, "nothing is left behind"


def test_recovery_needs_the_first_key(running: RunningNode, words: str) -> None:
    thief = key(7)
    asked = running.anybody.post("/identities/challenges", json={"key": first_key(words).public.hex()}).json()
    identity = identity_of(first_key(words).public)
    claim = adoption_claim(identity, JANE, endpoint(running), b"", asked["challenge"])
    body = {"fqdn": JANE, "password": "a new password"}
    refused = running.anybody.post(
        "/identities/recover",
        json={**body, "proof": {"challenge": asked["challenge"], "signature": thief.sign(claim).hex()}},
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "identity.unproved")
    running.sign_in(JANE)


def test_document_under_the_wrong_entry_is_refused(running: RunningNode, words: str) -> None:
    jane, first = running.sign_in(JANE), first_key(words)
    document = IdentityDocument(JANE, endpoint(running), under=Hash(b"\0\x40" + bytes(64)))
    asked = running.anybody.post("/identities/challenges", json={"key": first.public.hex()}).json()
    assert asked["next"]["seq_num"] == 2
    payload = encode_message(document)
    entry = sign_next(first, payload, read_next_entry(asked["next"])).encoded
    signed = {"entry": b64encode(entry).decode(), "payload": b64encode(payload).decode()}
    refused = jane.patch("/me", json={"signed": signed})
    assert (refused.status_code, refused.json()["code"]) == (422, "identity.bad-document")
    assert render_words(first.seed) == words


def test_command_gets_back_in(running: RunningNode, words: str) -> None:
    before = running.sign_in(JANE).get("/me").json()["controller"]
    recover = ("identity", "recover", JANE, "--node", running.url, "--json")
    wrong = inkgrove(*recover, stdin=f"a new password\n{new_words()}")
    assert (wrong.returncode, "key.mismatch" in wrong.stderr) == (2, True)
    done = inkgrove(*recover, "--new-controller", stdin=f"a new password\n{words}\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["controller"] not in (None, before)
    with Client.sign_in(running.url, JANE, "a new password") as client:
        assert client.me().recovery == "words"


def test_words_used_twice_end_nothing_and_the_node_goes_on(running: RunningNode, words: str) -> None:
    first, node = first_key(words), running.node
    # The words are tried on another host, which this node hears of later.
    following = node.database.read(lambda connection: read_next_of_log0(connection, first.public))
    payload = encode_message(IdentityDocument(JANE, "https://elsewhere.ink", "elsewhere"))
    elsewhere = sign_next(first, payload, following)
    controllers = []
    for _ in range(2):
        with Client.sign_in(running.url, JANE, PASSWORD) as client:
            controllers.append(client.replace_controller(JANE, PASSWORD, words).controller)
    node.store.ingest([(elsewhere.encoded, payload)])
    node.database.write(lambda connection: apply_identity_log(connection, first.public, is_ours=True))

    jane = running.sign_in(JANE)
    me = jane.get("/me").json()
    assert (me["state"], me["controller"], me["endpoint"]) == (
        "identity.words-used-twice", controllers[-1], endpoint(running)
    )  # fmt: skip
    # The controller goes on, the words too, and rows are written.
    assert jane.patch("/me", json={"name": "Jane D."}).json()["name"] == "Jane D."
    create(jane, make_schema(jane), fields={"subject": "Hello"})
    with Client.sign_in(running.url, JANE, PASSWORD) as client:
        after = client.replace_controller(JANE, PASSWORD, words)
    assert after.controller not in controllers
    found = running.anybody.get(f"/identities/{JANE}/documents").json()
    assert (found["id"], found["state"]) == (me["id"], "identity.words-used-twice")
    told = [(item["key"] == me["key"], item["seq_num"], item["endpoint"], item["state"]) for item in found["documents"]]
    here = endpoint(running)
    assert sorted(told[:5], reverse=True) == sorted(
        [
            (True, 4, here, "document.in-effect"),
            (True, 3, here, "document.replaced"),
            (True, 2, here, "document.replaced"),
            (True, 2, "https://elsewhere.ink", "document.overruled"),
            (True, 1, here, "document.replaced"),
        ],
        reverse=True,
    )
    # What the controller before said, under a document that was overruled since.
    assert told[5:] == [(False, 2, here, "document.overruled")]
    jane = running.sign_in(JANE)
    states = {item["key"]: item["state"] for item in jane.get("/me").json()["keys"]}
    assert (states[controllers[0]], states[controllers[1]], states[after.controller]) == (
        "key.ended", "key.ended", "key.counts"
    )  # fmt: skip
    cookie = {"Cookie": f"__Host-inkgrove={jane.headers['Authorization'].removeprefix('Bearer ')}"}
    page = running.anybody.get(f"/pages/logs/{me['key']}/0", headers=cookie).text
    for code in ("document.in-effect", "document.replaced", "document.overruled", "identity.words-used-twice"):
        assert code in page
    page = running.anybody.get("/pages/me", headers=cookie).text
    for code in ("key.counts", "key.ended", "identity.words-used-twice"):
        assert code in page
