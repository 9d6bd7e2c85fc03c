"""The consent page and signing in: who can say yes, and how often one may try."""

from pathlib import Path

import pytest

from inkgrove.messages import SchemaMeta, encode_message
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import register_schema
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.services import VERIFIER, Browser, Service, challenge_of, query_of

READ = f"schema:{key(7).public.hex()}/1:read"


@pytest.fixture
def service(running: RunningNode) -> Service:
    """A service; jane is hosted."""
    running.create("jane.haiku.ink")
    return Service(running)


# The page


def test_page_cannot_be_framed_cached_or_scripted(running: RunningNode, service: Service) -> None:
    headers = running.anybody.get(service.address(READ)).headers
    policy = headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "form-action 'self' https://app.example" in policy
    assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
    assert headers["referrer-policy"] == "same-origin"
    (cookie,) = headers.get_list("set-cookie")
    assert cookie.startswith("__Host-inkgrove-form=")
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))


def test_yes_must_come_from_our_own_page(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    address = service.address(READ)
    browser.sign_in(browser.get(address), "jane.haiku.ink")
    token = browser.cookies["__Host-inkgrove-form"]
    yes = {"action": "allow", "scopes": READ}
    for form, headers in (
        (yes, {}),
        ({**yes, "form_token": ""}, {}),
        ({**yes, "form_token": "0" * 64}, {}),
        ({**yes, "form_token": token}, {"origin": "https://evil.example"}),
        ({**yes, "form_token": token}, {"origin": "null"}),
        ({**yes, "form_token": token}, {"sec_fetch_site": "cross-site"}),
        ({**yes, "form_token": token}, {"sec_fetch_site": "same-site"}),
    ):
        answer = browser.post(address, form, **headers)
        assert answer.status_code == 403, (form, headers)
        assert "location" not in answer.headers
    assert browser.post(address, {**yes, "form_token": token}).status_code == 302


def test_yes_needs_a_sign_in_of_this_browser(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.get(service.address(READ))
    for name in ("__Host-inkgrove", "inkgrove"):
        browser.cookies[name] = "ink_s_" + "0" * 64
    answer = browser.submit(page, action="allow", scopes=READ)
    assert answer.status_code == 403
    assert "location" not in answer.headers


def test_token_of_a_service_in_the_cookie_is_nobody(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    browser.cookies["__Host-inkgrove"] = service.connect("jane.haiku.ink", READ)["access_token"]
    assert 'name="password"' in browser.get(service.address(READ)).text


def test_cookie_of_the_page_counts_for_our_own_pages_only(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    browser.sign_in(browser.get(service.address(READ)), "jane.haiku.ink")
    cookie = {"cookie": f"__Host-inkgrove={browser.cookies['__Host-inkgrove']}"}
    assert running.anybody.get("/me", headers=cookie).status_code == 200
    foreign = running.anybody.patch("/me", json={"name": "X"}, headers={**cookie, "origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "auth.foreign-origin")
    own = running.anybody.patch("/me", json={"name": "X"}, headers={**cookie, "origin": running.url})
    assert own.status_code == 200


def test_sign_in_can_be_changed_on_the_page(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.sign_in(browser.get(service.address(READ)), "jane.haiku.ink")
    old = browser.cookies["__Host-inkgrove"]
    answer = browser.submit(page, action="sign-out")
    assert 'name="password"' in browser.get(answer.headers["location"]).text
    assert running.client(old).get("/me").status_code == 401


# Names are resolved once, before anything is granted


def schema_log(number: int, fqdn: str | None = None) -> LogBuilder:
    log = LogBuilder(key(number))
    log.append(encode_message(SchemaMeta("slothmail", fqdn=fqdn)))
    return log


def ingest_and_register(node: Node, log: LogBuilder) -> str:
    from inkgrove.messages import SchemaId

    node.store.ingest(zip(log.entries, log.payloads, strict=True))
    schema_id = SchemaId(log.secret.public, log.log_id)
    node.store.write(register_schema, schema_id)
    with node.views.database.writing() as connection:
        from inkgrove.store.views import views

        connection.execute(
            views.insert(), {"author": schema_id.author, "log_id": schema_id.log_id, "name": "slothmail"}
        )
    return str(schema_id)


def test_name_is_granted_as_author_and_log(running: RunningNode, service: Service) -> None:
    first = ingest_and_register(running.node, schema_log(31))
    tokens = service.connect("jane.haiku.ink", "schema:slothmail:read")
    assert tokens["scope"] == f"schema:{first}:read"


def test_namesake_makes_the_name_ambiguous_and_inherits_nothing(running: RunningNode, service: Service) -> None:
    first = ingest_and_register(running.node, schema_log(31))
    browser = Browser(running)
    address = service.address("schema:slothmail:read")
    page = browser.sign_in(browser.get(address), "jane.haiku.ink")
    tokens = service.connect("jane.haiku.ink", "schema:slothmail:read")
    ingest_and_register(running.node, schema_log(32))
    assert query_of(browser.get(address).headers["location"])["error"] == "invalid_scope"
    assert query_of(browser.submit(page, action="allow").headers["location"])["error"] == "invalid_scope"
    assert running.client(tokens["access_token"]).get("/me").json()["scopes"] == [f"schema:{first}:read"]


def test_what_was_not_shown_is_not_granted(running: RunningNode, service: Service) -> None:
    browser = Browser(running)
    page = browser.sign_in(browser.get(service.address(READ)), "jane.haiku.ink")
    answer = browser.submit(page, action="allow", scopes="relations:read")
    assert answer.status_code == 403
    assert "location" not in answer.headers


def test_fqdn_of_a_schema_needs_both_to_point_at_each_other(place: Path | str, tmp_path: Path) -> None:
    named, nameless = (f"{key(number).public.hex()}/1" for number in (31, 32))
    names = (f"mail.schema.ink={named}", f"post.schema.ink={nameless}")
    with RunningNode(
        place, tmp_path, NodeSettings(registration="open", domains=("haiku.ink",), schema_names=names)
    ) as running:
        running.create("jane.haiku.ink")
        for log in (schema_log(31, "mail.schema.ink"), schema_log(32)):
            running.node.store.ingest(zip(log.entries, log.payloads, strict=True))
        service = Service(running)
        tokens = service.connect("jane.haiku.ink", "schema:mail.schema.ink:create")
        assert tokens["scope"] == f"schema:{named}:create"
        answer = running.anybody.get(service.address("schema:post.schema.ink:create"))
        assert query_of(answer.headers["location"])["error"] == "invalid_scope"
        found = running.anybody.get("/.well-known/inkgrove", headers={"host": "mail.schema.ink:8750"}).json()
        assert found["schema"] == {"author": key(31).public.hex(), "log_id": 1}
        assert running.anybody.get("/.well-known/inkgrove", headers={"host": "post.schema.ink"}).status_code == 404


# How often one may try


def try_to_sign_in(running: RunningNode, fqdn: str, password: str, address: str) -> tuple[int, int]:
    from inkgrove.node.errors import BadPassword, TooManyAttempts
    from inkgrove.node.identity import sign_in

    try:
        sign_in(running.node, fqdn, password, address)
    except BadPassword:
        return 401, 0
    except TooManyAttempts as error:
        retry_after = error.data["retry_after"]
        assert isinstance(retry_after, int)
        return 429, retry_after
    return 201, 0


@pytest.fixture
def limited(place: Path | str, tmp_path: Path) -> object:
    settings = NodeSettings(registration="open", domains=("haiku.ink",), sign_ins_per_name=3, sign_ins_per_address=5)
    with RunningNode(place, tmp_path, settings) as running:
        running.create("jane.haiku.ink")
        running.create("john.haiku.ink")
        yield running


def test_failed_sign_ins_are_limited_and_say_how_long_to_wait(limited: RunningNode) -> None:
    body = {"fqdn": "jane.haiku.ink", "password": "wrong password"}
    answers = [limited.anybody.post("/sessions", json=body) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
    assert answers[-1].json()["code"] == "auth.too-many-attempts"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 300
    assert limited.anybody.post("/sessions", json={**body, "password": PASSWORD}).status_code == 429
    service = Service(limited)
    browser = Browser(limited)
    page = browser.get(service.address(READ))
    answer = browser.submit(page, action="sign-in", name="jane.haiku.ink", password=PASSWORD)
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 300


def test_address_has_a_limit_whatever_names_it_tries(limited: RunningNode) -> None:
    names = [f"name{number}.haiku.ink" for number in range(6)]
    found = [try_to_sign_in(limited, name, "wrong password", "192.0.2.1")[0] for name in names]
    assert found == [401] * 5 + [429]
    assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "192.0.2.2")[0] == 201


def test_strangers_do_not_lock_anybody_out(limited: RunningNode) -> None:
    assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "192.0.2.1")[0] == 201
    for number in range(10):
        try_to_sign_in(limited, "jane.haiku.ink", "wrong password", f"198.51.100.{number}")
    assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "203.0.113.9")[0] == 429  # never seen before
    assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "192.0.2.1")[0] == 201  # her own place
    clock = limited.node.clock
    limited.node.clock = lambda: clock() + 301_000_000
    assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "203.0.113.9")[0] == 201


def test_waiting_does_not_grow_while_one_keeps_trying(limited: RunningNode) -> None:
    for _ in range(3):
        try_to_sign_in(limited, "jane.haiku.ink", "wrong password", "192.0.2.1")
    clock = limited.node.clock
    limited.node.clock = lambda: clock() + 200_000_000
    assert try_to_sign_in(limited, "jane.haiku.ink", "wrong password", "192.0.2.1")[1] <= 100


def test_right_password_counts_for_nothing(limited: RunningNode) -> None:
    for _ in range(8):
        assert try_to_sign_in(limited, "jane.haiku.ink", PASSWORD, "192.0.2.1")[0] == 201


# Secrets


def test_no_secret_is_stored_or_shown(running: RunningNode, service: Service) -> None:
    code = service.get_code("jane.haiku.ink", "relations:read")
    tokens = service.exchange(code).json()
    again = service.refresh(tokens["refresh_token"]).json()
    answers = [service.exchange(code), service.refresh(tokens["refresh_token"])]
    answers.append(running.client(tokens["access_token"]).get("/me"))
    answers.append(running.anybody.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": "wrong " + PASSWORD}))
    answers.append(running.anybody.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": ["wrong", PASSWORD]}))
    secrets = [
        code,
        VERIFIER,
        PASSWORD,
        *(each[kind] for each in (tokens, again) for kind in ("access_token", "refresh_token")),
    ]
    with running.node.database.reading() as connection:
        stored = "".join(
            repr(connection.exec_driver_sql(f"SELECT * FROM {table}").all())
            for table in ("codes", "tokens", "sessions", "identities", "grants", "attempts")
        )
    shown = "".join(answer.text for answer in answers) + repr(running.node) + repr(running.node.vault)
    for secret in secrets:
        assert secret not in stored
        assert secret not in shown
    assert challenge_of(VERIFIER) in stored  # the look itself works
