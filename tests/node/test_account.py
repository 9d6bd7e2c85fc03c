"""An account as its owner uses it: sign-ins that are listed and ended, the password, keys of devices, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from inkgrove.client import Client, NotFound, NotSignedIn
from inkgrove.core import IdentityId
from inkgrove.messages import FurtherKey, IdentityDocument, KeyOf
from inkgrove.node.errors import BadPassword
from inkgrove.node.identity import (
    SESSION,
    change_password,
    check_own_password,
    create_identity,
    hash_password,
    label_from,
    sign_in,
)
from inkgrove.store.node import end_sessions, list_sessions, set_password
from tests.support.adopting import bring, signed
from tests.support.federated import until
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.races import begin_before_commit
from tests.support.services import Service

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"
NEW = "another long password"


def sign_in_as(running: RunningNode, agent: str, **body: str) -> httpx.Client:
    facts = {"fqdn": "jane.haiku.ink", "password": PASSWORD, **body}
    answer = running.anybody.post("/sessions", json=facts, headers={"User-Agent": agent})
    assert answer.status_code == 201, answer.text
    return running.client(answer.json()["token"])


def sessions_of(client: httpx.Client) -> list[dict[str, object]]:
    answer = client.get("/sessions")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["sessions"]
    return found


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# The list


def test_sign_ins_are_listed_with_what_began_them_and_no_token(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    running.create("john.haiku.ink")
    running.sign_in("john.haiku.ink")
    laptop = sign_in_as(running, FIREFOX)
    named = sign_in_as(running, FIREFOX, label="  Jane's\u0007 phone\u202e ")
    answer = laptop.get("/sessions")
    found = {str(item["label"]): item for item in answer.json()["sessions"]}
    assert found.keys() == {"Firefox on Linux", "Jane's phone"}
    assert [item["is_current"] for item in found.values() if item["label"] == "Firefox on Linux"] == [True]
    assert found["Jane's phone"]["is_current"] is False
    now = datetime.now(UTC)
    for item in found.values():
        assert item.keys() == {"id", "label", "created", "last_used", "expires", "is_current"}
        created, used, expires = (datetime.fromisoformat(item[name]) for name in ("created", "last_used", "expires"))
        assert created <= used <= now < expires
    for client in (laptop, named):
        token = client.headers["authorization"].removeprefix("Bearer ")
        assert token.removeprefix(SESSION) not in answer.text
    for item in found.values():  # nobody signs in with an id
        for text in (item["id"], SESSION + item["id"], SESSION + item["id"] * 2):
            assert running.client(text).get("/me").status_code == 401


@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (FIREFOX, "Firefox on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0"
            " Safari/537.36 Edg/141.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)"
            " Version/18.5 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        ("Mozilla/5.0", ""),
        ("curl/8.5.0", "curl/8.5.0"),
        ("python-httpx/0.28.1 (anything else)", "python-httpx/0.28.1"),
        ("", ""),
        ("<script>alert(1)</script>", ""),
        ("x" * 60_000, "x" * 40),
        ("caf\xe9/1", "caf"),
    ],
)
def test_label_is_what_the_program_says_of_itself_in_short(agent: str, label: str) -> None:
    assert label_from(agent) == label


def test_sign_in_without_a_user_agent_has_an_empty_label(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    assert [item["label"] for item in sessions_of(sign_in_as(running, ""))] == [""]


@pytest.mark.parametrize("label", ["x" * 101, 5, ["a"], {}])
def test_label_that_is_none_is_refused_and_nobody_is_signed_in(running: RunningNode, label: object) -> None:
    jane = IdentityId.fromhex(running.create("jane.haiku.ink")["id"])
    body = {"fqdn": "jane.haiku.ink", "password": PASSWORD, "label": label}
    assert refusal(running.anybody.post("/sessions", json=body)) == (400, "request.invalid")
    assert running.node.database.read(lambda c: list_sessions(c, jane, 0)) == []


def test_last_use_is_known_within_minutes(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane, node = running.sign_in("jane.haiku.ink"), running.node
    began = node.clock()
    uses = []
    for minutes in (1, 4, 6, 8, 12):
        node.clock = lambda minutes=minutes: began + minutes * 60_000_000  # type: ignore[misc]
        assert jane.get("/me").status_code == 200
        (item,) = sessions_of(jane)
        at = datetime.fromisoformat(str(item["last_used"])).timestamp()
        uses.append(round(at - began / 1e6) // 60)
    assert uses == [0, 0, 6, 6, 12]


# Ending


@pytest.mark.both_databases
def test_one_sign_in_is_ended_by_another(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    here, stolen = sign_in_as(running, "here"), sign_in_as(running, "stolen")
    (wrong,) = (item["id"] for item in sessions_of(here) if item["label"] == "stolen")
    assert here.delete(f"/sessions/{wrong}").status_code == 204
    assert refusal(stolen.get("/me")) == (401, "auth.bad-token")
    assert refusal(here.delete(f"/sessions/{wrong}")) == (404, "auth.unknown-session")
    assert [item["label"] for item in sessions_of(here)] == ["here"]
    (mine,) = (item["id"] for item in sessions_of(here))
    assert here.delete(f"/sessions/{mine}").status_code == 204  # as by signing out
    assert here.get("/me").status_code == 401


def test_all_others_end_at_once(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    running.create("john.haiku.ink")
    john = running.sign_in("john.haiku.ink")
    first, *others = [running.sign_in("jane.haiku.ink") for _ in range(4)]
    assert first.delete("/sessions/others").json() == {"ended": 3}
    assert [client.get("/me").status_code for client in (first, *others, john)] == [200, 401, 401, 401, 200]
    assert first.delete("/sessions/others").json() == {"ended": 0}


@pytest.mark.parametrize("named", ["", "0", "zz", "ab" * 16, "ab" * 5000, "%00", "%F0%9F%A6%A5", "..", "others%00"])
def test_sign_in_that_is_not_ones_own_is_not_there(running: RunningNode, named: str) -> None:
    running.create("jane.haiku.ink")
    running.create("john.haiku.ink")
    jane, john = running.sign_in("jane.haiku.ink"), running.sign_in("john.haiku.ink")
    (hers,) = (item["id"] for item in sessions_of(jane))
    assert refusal(john.delete(f"/sessions/{hers}")) == (404, "auth.unknown-session")
    assert john.delete(f"/sessions/{named}").status_code in (400, 404, 405)
    assert jane.get("/me").status_code == 200


def test_sign_ins_are_for_the_identity_itself(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    tokens = Service(running).connect("jane.haiku.ink", "relations:read")
    service = running.client(tokens["access_token"])
    jane = running.sign_in("jane.haiku.ink")
    mine = next(item["id"] for item in sessions_of(jane) if item["is_current"])
    asked = [("GET", "/sessions"), ("DELETE", "/sessions/others"), ("DELETE", f"/sessions/{mine}")]
    for method, address in asked:
        assert refusal(service.request(method, address)) == (403, "auth.not-allowed"), address
        assert refusal(running.anybody.request(method, address)) == (401, "auth.required"), address
    body = {"old": PASSWORD, "new": NEW}
    assert refusal(service.post("/me/password", json=body)) == (403, "auth.not-allowed")
    assert jane.get("/me").status_code == 200


# The password


@pytest.mark.both_databases
def test_of_two_who_change_the_password_at_once_one_does(running: RunningNode) -> None:
    node = running.node
    jane = create_identity(node, "jane.haiku.ink", PASSWORD).id
    kept, other = (sign_in(node, "jane.haiku.ink", PASSWORD)[0] for _ in range(2))
    checked = check_own_password(node, jane, PASSWORD, "")

    def change(connection: object) -> None:
        set_password(connection, jane, hash_password(NEW))  # type: ignore[arg-type]
        end_sessions(connection, identity=jane)  # type: ignore[arg-type]

    with pytest.raises(BadPassword):
        begin_before_commit(
            node.database, change, lambda: change_password(node, jane, "a third one", checked=checked, keep=kept)
        )
    assert sign_in(node, "jane.haiku.ink", NEW)
    for token in (kept, other):
        assert running.client(token).get("/me").status_code == 401


def test_wrong_passwords_are_limited_and_the_right_one_is_not_told_apart(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        body = {"old": "not this one", "new": NEW}
        answers = [jane.post("/me/password", json=body).status_code for _ in range(12)]
        assert set(answers) == {401, 429}
        limited = jane.post("/me/password", json={"old": PASSWORD, "new": NEW})
        assert refusal(limited) == (429, "auth.too-many-attempts")
        assert jane.get("/me").status_code == 200


def test_weak_password_changes_nothing(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane, other = running.sign_in("jane.haiku.ink"), running.sign_in("jane.haiku.ink")
    assert refusal(jane.post("/me/password", json={"old": PASSWORD, "new": "short"}))[1] == "identity.weak-password"
    assert (jane.get("/me").status_code, other.get("/me").status_code) == (200, 200)
    assert running.sign_in("jane.haiku.ink").get("/me").status_code == 200


# The Python client


def test_client_has_the_account(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    Service(running).connect("jane.haiku.ink", "relations:read")
    with Client.sign_in(running.url, "jane.haiku.ink", PASSWORD, label="laptop") as jane:
        current = next(session for session in jane.sessions() if session.is_current)
        assert current.label == "laptop"
        with Client.sign_in(running.url, "jane.haiku.ink", PASSWORD, label="phone") as phone:
            (lost,) = (session.id for session in jane.sessions() if session.label == "phone")
            jane.end_session(lost)
            with pytest.raises(NotSignedIn):
                phone.me()
            with pytest.raises(NotFound):
                jane.end_session(lost)
        jane.change_password(PASSWORD, NEW)
        with pytest.raises(NotSignedIn):
            jane.change_password(PASSWORD, NEW)
        assert jane.end_other_sessions() == 0
        jane.add_key(key(6), "phone", password=NEW)
        jane.label_key(key(6).public.hex(), "old phone")
        jane.revoke_key(key(6).public.hex())
        keys = [(item.label, item.kept_by, item.state) for item in jane.devices()]
        assert keys == [(None, "node", "counts"), ("old phone", "client", "ended")]
        assert jane.usage().entries.used == 3, "documents after the first"
        (service,) = jane.services()
        assert (service.name, service.scopes) == ("Slothmail", ("relations:read",))
        jane.end_service(service.client)
        assert jane.services() == ()
        token = jane.close_account(NEW)
        with pytest.raises(NotSignedIn):
            jane.me()
    with Client(running.url) as anybody:
        until(lambda: anybody.closing(token).state == "closed")
        certificate = anybody.closing(token).certificate
        assert certificate is not None
        assert certificate["fqdn"] == "jane.haiku.ink"


# Keys of devices


def add_device(running: RunningNode, jane: httpx.Client, number: int, **more: object) -> LogBuilder:
    """Let a device add its key; its log 0."""
    claim = LogBuilder(key(number), log_id=0)
    me = IdentityId.fromhex(jane.get("/me").json()["id"])
    answer = jane.post("/me/keys", json={**signed(claim, KeyOf(me)), "password": PASSWORD, **more})
    assert answer.status_code == 201, answer.text
    return claim


def keys_of(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get("/me/keys")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["keys"]
    return found


@pytest.mark.parametrize("password", [None, "", "wrong horse battery"])
def test_sign_in_alone_adds_no_key(running: RunningNode, password: str | None) -> None:
    """Who has stolen a sign-in must not get a key that outlives it."""
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    claim = signed(LogBuilder(key(6), log_id=0), KeyOf(IdentityId.fromhex(jane.get("/me").json()["id"])))
    answer = jane.post("/me/keys", json=claim if password is None else {**claim, "password": password})
    assert refusal(answer) == (401, "auth.bad-password")
    assert [item["kept_by"] for item in keys_of(jane)] == ["node"]


def test_devices_are_added_listed_labelled_and_revoked(running: RunningNode) -> None:
    first = running.create("jane.haiku.ink")["key"]
    jane = running.sign_in("jane.haiku.ink")
    claim = add_device(running, jane, 6, label=" Jane's  phone\u0007 ")
    add_device(running, jane, 7)
    log = LogBuilder(key(6), log_id=3).grow(2)
    running.node.store.ingest(zip(log.entries, log.payloads, strict=True))
    phone, tablet = key(6).public.hex(), key(7).public.hex()
    usual: dict[str, Any] = {
        "is_first": False,
        "is_controller": False,
        "kept_by": "client",
        "state": "counts",
        "revoked": None,
    }
    usual |= {"logs": 0, "entries": 0}
    own = {**usual, "key": first, "label": None, "is_first": True, "kept_by": "node"}
    of_phone = {**usual, "key": phone, "label": "Jane's phone", "logs": 1, "entries": 2}
    assert keys_of(jane) == [own, of_phone, {**usual, "key": tablet, "label": None}]
    assert jane.patch(f"/me/keys/{tablet}", json={"label": "tablet"}).status_code == 204
    assert jane.delete(f"/me/keys/{phone}").status_code == 200
    ends = [[0, 1, claim.hash(1).hex()], [3, 2, log.hash(2).hex()]]
    ended = {**of_phone, "state": "ended", "revoked": ends}
    assert keys_of(jane) == [own, ended, {**usual, "key": tablet, "label": "tablet"}]
    shown = running.anybody.get("/identities/jane.haiku.ink").json()
    assert shown["keys"] == [
        {"key": phone, "state": "key.ended", "label": "Jane's phone", "revoked": ends},
        {"key": tablet, "state": "key.counts", "label": "tablet", "revoked": None},
    ]
    revision = shown["revision"]
    assert jane.patch(f"/me/keys/{tablet}", json={"label": "tablet"}).status_code == 204
    assert jane.delete(f"/me/keys/{phone}").json()["revision"] == revision, "nothing new is said"
    assert jane.patch(f"/me/keys/{tablet}", json={"label": None}).status_code == 204
    assert [item["label"] for item in keys_of(jane)] == [None, "Jane's phone", None]


def test_branch_that_came_first_is_pinned_in_a_forked_log_of_a_revoked_device(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    claim = add_device(running, jane, 6)
    log = LogBuilder(key(6), log_id=3).grow(3)
    for branch in (log, log.fork_at(2).grow(1)):
        running.node.store.ingest(zip(branch.entries, branch.payloads, strict=True))
    revoked = jane.delete(f"/me/keys/{key(6).public.hex()}").json()["keys"][0]["revoked"]
    assert revoked == [[0, 1, claim.hash(1).hex()], [3, 3, log.hash(3).hex()]]


@pytest.mark.parametrize(
    ("named", "body", "refused"),
    [
        (key(9).public.hex(), {"label": "x"}, (404, "identity.unknown")),
        ("ab", {"label": "x"}, (422, "key.bad-key")),
        ("%00", {"label": "x"}, (400, "request.bad-address")),
        (key(6).public.hex(), {"label": "x" * 101}, (400, "request.invalid")),
        (key(6).public.hex(), {"label": 5}, (400, "request.invalid")),
        (key(6).public.hex(), {}, (400, "request.invalid")),
        (key(6).public.hex(), {"label": "x", "revoked": []}, (400, "request.invalid")),
    ],
)
def test_label_that_cannot_be_changes_nothing(
    running: RunningNode, named: str, body: dict[str, object], refused: tuple[int, str]
) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    add_device(running, jane, 6, label="phone")
    revision = jane.get("/me").json()["revision"]
    assert refusal(jane.patch(f"/me/keys/{named}", json=body)) == refused
    assert (jane.get("/me").json()["revision"], keys_of(jane)[1]["label"]) == (revision, "phone")


def test_keys_are_for_the_identity_itself(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    add_device(running, jane, 6)
    service = running.client(Service(running).connect("jane.haiku.ink", "relations:read")["access_token"])
    phone = f"/me/keys/{key(6).public.hex()}"
    for method, address, body in (("GET", "/me/keys", None), ("PATCH", phone, {"label": "x"}), ("DELETE", phone, None)):
        assert refusal(service.request(method, address, json=body)) == (403, "auth.not-allowed"), address
        assert refusal(running.anybody.request(method, address, json=body)) == (401, "auth.required"), address


@pytest.mark.both_databases
def test_two_who_label_keys_at_once_both_count(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane, other = running.sign_in("jane.haiku.ink"), running.sign_in("jane.haiku.ink")
    for number in (6, 7):
        add_device(running, jane, number)

    def label(client: httpx.Client, number: int) -> int:
        return client.patch(f"/me/keys/{key(number).public.hex()}", json={"label": f"{number}"}).status_code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(label, (jane, other), (6, 7))) == [204, 204]
    assert [item["label"] for item in keys_of(jane)] == [None, "6", "7"]


def test_key_that_only_the_document_names_is_unclaimed(running: RunningNode) -> None:
    log = LogBuilder(key(5), log_id=0)
    document = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", keys=(FurtherKey(key(6).public),))
    assert bring(running.anybody, log, "jane.haiku.ink", signed(log, document)).status_code == 201
    jane = running.sign_in("jane.haiku.ink")
    assert [(item["state"], item["kept_by"]) for item in keys_of(jane)] == [
        ("counts", "client"),
        ("unclaimed", "client"),
    ]
    answer = jane.patch(f"/me/keys/{key(6).public.hex()}", json={"label": "phone"})
    assert refusal(answer) == (422, "identity.no-key-here"), "the client signs documents"
