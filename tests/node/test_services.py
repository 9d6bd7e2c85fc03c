"""How services get access, over real HTTP: the whole way, and every trick that must not work."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inkgrove.messages import SchemaId
from inkgrove.node.identity import record_access
from inkgrove.node.settings import NodeSettings
from tests.support.logs import key
from tests.support.nodes import RunningNode
from tests.support.services import BACK, VERIFIER, Browser, Service, challenge_of, query_of

SCHEMA = f"schema:{key(7).public.hex()}/1"
READ, CREATE = f"{SCHEMA}:read", f"{SCHEMA}:create"


@pytest.fixture
def running(shared: RunningNode) -> RunningNode:
    """The node of this module."""
    return shared


@pytest.fixture
def service(running: RunningNode) -> Service:
    """A new service."""
    return Service(running)


@pytest.fixture
def later(running: RunningNode) -> Iterator[Callable[[int], None]]:
    """Sets the node's clock forward by seconds, until the test ends."""
    clock = running.node.clock

    def set_forward(seconds: int) -> None:
        running.node.clock = lambda: clock() + seconds * 1_000_000

    yield set_forward
    running.node.clock = clock


def person(service: Service, name: str) -> str:
    """Somebody of this test's own, who has granted nothing yet."""
    fqdn = f"{name}{service.id}.haiku.ink"
    if service.running.anybody.get(f"/identities/{fqdn}").status_code == 404:
        service.running.create(fqdn)
    return fqdn


def may_read_relations(running: RunningNode, token: str) -> bool:
    status = running.client(token).get("/me/relations").status_code
    assert status in (200, 401)
    return status == 200


# The whole way


def test_service_gets_what_the_identity_agreed_to(running: RunningNode, service: Service) -> None:
    tokens = service.connect(person(service, "jane"), f"relations:read {CREATE} {READ}")
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 900
    assert tokens["scope"] == f"relations:read {CREATE} {READ}"
    me = running.client(tokens["access_token"]).get("/me").json()
    assert (me["fqdn"], me["scopes"]) == (person(service, "jane"), ["relations:read", CREATE, READ])


def test_page_says_in_plain_words_what_is_asked(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.sign_in(browser.get(service.address(f"{READ} {CREATE} relations:read")), person(service, "jane"))
    for words in (
        "Slothmail asks for access",
        person(service, "jane"),
        "see all of it that you can see",
        "add to it in your name, and pass on what it can see",
        "see whom you follow and who follows you",
        "https://app.example",
        f"{key(7).public.hex()}/1",
    ):
        assert words in page.text
    assert "delete what is yours" not in page.text


def test_answer_brings_state_and_issuer_back(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.sign_in(browser.get(service.address(READ, state="a&b=c d")), person(service, "jane"))
    location = browser.submit(page, action="allow").headers["location"]
    assert location.startswith(f"{BACK}?")
    query = query_of(location)
    assert (query["state"], query["iss"]) == ("a&b=c d", running.url)


def test_deny_sends_back_an_error_and_no_code(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.sign_in(browser.get(service.address(READ)), person(service, "jane"))
    query = query_of(browser.submit(page, action="deny").headers["location"])
    assert query["error"] == "access_denied"
    assert "code" not in query


def test_metadata_names_the_endpoints_under_the_name_that_was_asked(running: RunningNode, service: Service) -> None:
    fqdn = person(service, "jane")
    answer = running.anybody.get("/.well-known/oauth-authorization-server", headers={"host": fqdn})
    assert answer.json()["issuer"] == f"https://{fqdn}"
    assert answer.json()["token_endpoint"] == f"https://{fqdn}/oauth/token"
    assert answer.json()["code_challenge_methods_supported"] == ["S256"]


# PKCE


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": None},
        {"code_challenge": ""},
        {"code_challenge_method": None},
        {"code_challenge_method": "plain", "code_challenge": VERIFIER},
        {"code_challenge": "short"},
        {"code_challenge": "!" * 43},
    ],
)
def test_authorisation_needs_a_hashed_challenge(
    running: RunningNode, service: Service, changes: dict[str, str | None]
) -> None:
    answer = running.anybody.get(service.address(READ, **changes))
    assert answer.status_code == 302
    assert query_of(answer.headers["location"])["error"] == "invalid_request"


@pytest.mark.parametrize(
    ("verifier", "error"),
    [("w" * 43, "invalid_grant"), (challenge_of(VERIFIER), "invalid_grant"), ("", "invalid_request")],
)
def test_code_needs_its_verifier(service: Service, verifier: str, error: str) -> None:
    code = service.get_code(person(service, "jane"), READ)
    answer = service.exchange(code, code_verifier=verifier)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["code"] == f"oauth.{error.replace('_', '-')}"


# Redirect URIs


@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example/back",
        "https://app.example/back#fragment",
        "https://user@app.example/back",
        "https://*.app.example/back",
        "https:///back",
        "https://app.example;script-src/back",
        "javascript:alert(1)",
        "data:text/html,hello",
        "//app.example/back",
        "myapp://back",
        "https://app.example/\nback",
        "http://127.0.0.1.evil.example/",
        "http://localhost.evil.example/",
        "",
    ],
)
def test_unsafe_redirect_uri_is_not_registered(running: RunningNode, uri: str) -> None:
    answer = running.anybody.post("/oauth/register", json={"client_name": "A", "redirect_uris": [uri]})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize("uri", ["http://127.0.0.1:8080/back", "http://[::1]:9/back", "http://localhost/back"])
def test_loopback_may_do_without_https(running: RunningNode, uri: str) -> None:
    assert Service(running, redirect_uri=uri).id


@pytest.mark.parametrize(
    "uri",
    [
        None,
        "https://evil.example/back",
        f"{BACK}/",
        f"{BACK}/../evil",
        f"{BACK}?next=https://evil.example",
        f"{BACK}#x",
        "https://app.example@evil.example/back",
        "https://app.example.evil.example/back",
        "https://APP.example/back",
        "javascript:alert(1)",
        'https://evil.example/"><script>',
        "https://app.example\\@evil.example/back",
    ],
)
def test_nobody_is_sent_to_a_uri_that_is_not_registered(
    running: RunningNode, service: Service, uri: str | None
) -> None:
    for scope, changes in ((READ, {}), (READ, {"response_type": "token"}), ("x", {}), (READ, {"code_challenge": None})):
        answer = running.anybody.get(service.address(scope, redirect_uri=uri, **changes))
        assert answer.status_code == 400, (uri, changes)
        assert "location" not in answer.headers
        assert "<script" not in answer.text


def test_unknown_service_is_not_sent_anywhere(running: RunningNode, service: Service) -> None:
    answer = running.anybody.get(service.address(READ, client_id="0" * 32))
    assert answer.status_code == 400
    assert "location" not in answer.headers


def test_parameter_given_twice_is_refused(running: RunningNode, service: Service) -> None:
    answer = running.anybody.get(service.address(READ) + "&redirect_uri=https%3A%2F%2Fevil.example%2F")
    assert answer.status_code == 400
    assert "location" not in answer.headers


def test_code_is_only_good_with_its_own_redirect_uri_and_service(running: RunningNode, service: Service) -> None:
    code = service.get_code(person(service, "jane"), READ)
    assert service.exchange(code, redirect_uri="https://evil.example/").json()["error"] == "invalid_grant"
    assert Service(running, "Other").exchange(code).json()["error"] == "invalid_grant"
    assert service.exchange(code).status_code == 200


# Scopes


@pytest.mark.parametrize(
    "scope",
    [
        "",
        "everything",
        "schema:nothing:read",
        "schema:nowhere.schema.ink:read",
        f"schema:{'00' * 31}/1:read",
        f"schema:{key(7).public.hex()}/0:read",
        f"schema:{key(7).public.hex()}/1:own",
        f"schema:{key(7).public.hex()}/1",
        "relations:write",
        "schema:ä:read",
        " ".join(f"schema:{key(7).public.hex()}/{log_id}:read" for log_id in range(1, 52)),
    ],
)
def test_unknown_scope_sends_back_an_error(running: RunningNode, service: Service, scope: str) -> None:
    answer = running.anybody.get(service.address(scope))
    assert answer.status_code == 302
    assert query_of(answer.headers["location"])["error"] == "invalid_scope"


# Codes and tokens


def test_second_use_of_a_code_ends_what_the_first_gave(running: RunningNode, service: Service) -> None:
    code = service.get_code(person(service, "jane"), "relations:read")
    tokens = service.exchange(code).json()
    assert may_read_relations(running, tokens["access_token"])
    assert service.exchange(code).json()["error"] == "invalid_grant"
    assert not may_read_relations(running, tokens["access_token"])
    assert service.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_code_expires(service: Service, later: Callable[[int], None]) -> None:
    code = service.get_code(person(service, "jane"), READ)
    later(61)
    assert service.exchange(code).json()["error"] == "invalid_grant"


def test_refresh_gives_new_tokens_and_the_same_scopes(running: RunningNode, service: Service) -> None:
    first = service.connect(person(service, "jane"), "relations:read")
    second = service.refresh(first["refresh_token"]).json()
    assert second["scope"] == "relations:read"
    assert {first["refresh_token"], first["access_token"]}.isdisjoint({second["refresh_token"], second["access_token"]})
    assert may_read_relations(running, second["access_token"])


def test_refresh_cannot_widen_the_scope(service: Service) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    answer = service.refresh(tokens["refresh_token"], scope=f"relations:read {READ}")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")


def test_second_use_of_a_refresh_token_ends_the_grant(running: RunningNode, service: Service) -> None:
    first = service.connect(person(service, "jane"), "relations:read")
    second = service.refresh(first["refresh_token"]).json()
    assert service.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert not may_read_relations(running, second["access_token"])
    assert service.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"


def test_refresh_token_is_of_no_use_to_another_service(running: RunningNode, service: Service) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    assert Service(running, "Other").refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert service.refresh(tokens["refresh_token"]).status_code == 200


def test_tokens_expire(running: RunningNode, service: Service, later: Callable[[int], None]) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    later(890)
    assert may_read_relations(running, tokens["access_token"])
    later(901)
    assert not may_read_relations(running, tokens["access_token"])
    later(2_592_001)
    assert service.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("kind", ["refresh_token", "ink_c_"])
def test_only_access_tokens_give_access(running: RunningNode, service: Service, kind: str) -> None:
    code = service.get_code(person(service, "jane"), "relations:read")
    token = code if kind == "ink_c_" else service.exchange(code).json()[kind]
    assert not may_read_relations(running, token)
    assert service.refresh(code).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("grant_type", ["password", "client_credentials", "implicit", 'x"y', ""])
def test_other_grant_types_are_refused(service: Service, grant_type: str) -> None:
    answer = service.post("/oauth/token", grant_type=grant_type, username=person(service, "jane"), password="x")
    assert answer.status_code == 400
    assert answer.json()["error"] in ("unsupported_grant_type", "invalid_request")


# The end of access


def test_service_gives_its_tokens_back(running: RunningNode, service: Service) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    assert Service(running, "Other").post("/oauth/revoke", token=tokens["refresh_token"]).status_code == 400
    assert may_read_relations(running, tokens["access_token"])
    assert service.post("/oauth/revoke", token=tokens["refresh_token"]).status_code == 200
    assert not may_read_relations(running, tokens["access_token"])
    assert service.post("/oauth/revoke", token="unknown").status_code == 200


def test_identity_sees_and_ends_its_services(running: RunningNode, service: Service) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    johns = service.connect(person(service, "john"), "relations:read")
    jane = running.sign_in(person(service, "jane"))
    (listed,) = jane.get("/me/services").json()["services"]
    assert (listed["client"], listed["name"]) == (service.id, "Slothmail")
    assert listed["grants"][0]["scopes"] == ["relations:read"]
    assert jane.delete(f"/me/services/{service.id}").status_code == 204
    assert not may_read_relations(running, tokens["access_token"])
    assert service.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert jane.get("/me/services").json() == {"services": []}
    assert jane.delete(f"/me/services/{service.id}").json()["code"] == "oauth.unknown-service"
    assert may_read_relations(running, johns["access_token"])


def test_code_of_an_ended_grant_gives_nothing(running: RunningNode, service: Service) -> None:
    code = service.get_code(person(service, "jane"), "relations:read")
    running.sign_in(person(service, "jane")).delete(f"/me/services/{service.id}")
    assert service.exchange(code).json()["error"] == "invalid_grant"


# The record


def test_identity_sees_every_use(running: RunningNode, service: Service) -> None:
    tokens = service.connect(person(service, "jane"), "relations:read")
    for _ in range(3):
        assert may_read_relations(running, tokens["access_token"])
    jane = running.sign_in(person(service, "jane"))
    jane.get("/me/relations")
    page = jane.get("/me/accesses", params={"limit": 2}).json()
    assert [access["action"] for access in page["accesses"]] == ["relations:read"] * 2
    assert {access["name"] for access in page["accesses"]} == {"Slothmail"}
    rest = jane.get("/me/accesses", params={"before": page["next"]}).json()
    assert (len(rest["accesses"]), rest["next"]) == (1, None)
    assert jane.get("/me/services").json()["services"][0]["grants"][0]["last_used"] is not None
    assert running.sign_in(person(service, "john")).get("/me/accesses").json()["accesses"] == []


def test_reading_does_not_wait_for_a_write_and_closing_loses_nothing(place: Path | str, tmp_path: Path) -> None:
    settings = NodeSettings(registration="open", domains=("haiku.ink",))
    with RunningNode(place, tmp_path, settings) as running:
        running.create("jane.haiku.ink")
        service = Service(running)
        from inkgrove.node.identity import authenticate

        caller = authenticate(running.node, service.connect("jane.haiku.ink", READ)["access_token"])
        with running.node.database.writing():  # on SQLite nobody else can write now
            for _ in range(50):
                record_access(running.node, caller, "read", SchemaId(key(7).public, 1))
    with RunningNode(place, tmp_path, settings) as running:
        accesses = running.sign_in("jane.haiku.ink").get("/me/accesses").json()["accesses"]
        assert len(accesses) == 50
        assert {(access["action"], access["schema"]) for access in accesses} == {("read", f"{key(7).public.hex()}/1")}


# Names of schemas


def test_description_of_a_service_is_shown_as_text(running: RunningNode) -> None:
    running.create("tag.haiku.ink")
    service = Service(running, name='<script>alert("x")</script> & Co')
    browser = Browser(running)
    for page in (first := browser.get(service.address(READ)), browser.sign_in(first, "tag.haiku.ink")):
        assert "<script" not in page.text
        assert "&lt;script&gt;" in page.text
        assert re.findall(r"default-src 'none'", page.headers["content-security-policy"])


@pytest.mark.parametrize("name", ["", "   ", "a" * 81, "evil\u202egnp.exe", "bell\x07"])
def test_name_of_a_service_is_short_and_printable(running: RunningNode, name: str) -> None:
    answer = running.anybody.post("/oauth/register", json={"client_name": name, "redirect_uris": [BACK]})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_client_metadata")


def test_registrations_are_limited_per_address(place: Path | str, tmp_path: Path) -> None:
    with RunningNode(place, tmp_path, NodeSettings(clients_per_address=3)) as running:
        body = {"client_name": "A", "redirect_uris": [BACK]}
        answers = [running.anybody.post("/oauth/register", json=body) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
        assert 3590 <= int(answers[-1].headers["retry-after"]) <= 3600
