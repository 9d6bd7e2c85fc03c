"""Pages over HTTP: who gets which, how refusals look, and what no other site can make a browser do on them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from inkgrove.api.app import make_app
from inkgrove.node.identity import SESSION, hash_token
from inkgrove.pages.site import ROUTERS, make_site
from inkgrove.pages.visits import PageRoute, local_address
from inkgrove.store.logs import register_schema
from inkgrove.store.node import add_session
from tests.support.logs import key
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id
from tests.support.services import Service


class Who(Enum):
    """Who may see a page."""

    ANYBODY = "anybody; what is on it depends on who looks"
    IDENTITY = "whoever is signed in"
    ADMINISTRATOR = "the administrator of the node"


# Every route of the pages, with who may use it and what the right one gets; a form that says nothing is refused.
ROUTES: dict[tuple[str, str], tuple[Who, str, int]] = {
    ("GET", "/"): (Who.ANYBODY, "/", 200),
    ("GET", "/pages/sign-in"): (Who.ANYBODY, "/pages/sign-in", 200),
    ("POST", "/pages/sign-in"): (Who.ANYBODY, "/pages/sign-in", 403),
    ("POST", "/pages/sign-out"): (Who.ANYBODY, "/pages/sign-out", 303),
    ("GET", "/pages/views/{schema}"): (Who.ANYBODY, "/pages/views/{name}", 200),
    ("GET", "/pages/views/{author}/{log_id}"): (Who.ANYBODY, "/pages/views/{schema}", 200),
    ("GET", "/pages/instances/{instance}"): (Who.ANYBODY, "/pages/instances/{note}", 200),
    ("GET", "/pages/instances/{instance}/fields/{field}"): (Who.ANYBODY, "/pages/instances/{note}/fields/stars", 200),
    ("GET", "/pages/instances/{instance}/proof"): (Who.ANYBODY, "/pages/instances/{note}/proof", 200),
    ("GET", "/pages/schemas"): (Who.ANYBODY, "/pages/schemas", 200),
    ("GET", "/pages/schemas/{author}/{log_id}"): (Who.ANYBODY, "/pages/schemas/{schema}", 200),
    ("GET", "/pages/logs"): (Who.IDENTITY, "/pages/logs", 200),
    ("GET", "/pages/logs/{author}/{log_id}"): (Who.IDENTITY, "/pages/logs/{schema}", 200),
    ("GET", "/pages/me"): (Who.IDENTITY, "/pages/me", 200),
    ("POST", "/pages/me/profile"): (Who.IDENTITY, "/pages/me/profile", 303),
    ("POST", "/pages/me/services/{client}/revoke"): (Who.IDENTITY, f"/pages/me/services/{'0' * 32}/revoke", 404),
    ("POST", "/pages/me/following"): (Who.IDENTITY, "/pages/me/following", 422),
    ("POST", "/pages/me/following/{name}/end"): (Who.IDENTITY, "/pages/me/following/{john}/end", 404),
    ("POST", "/pages/me/followers/{name}"): (Who.IDENTITY, "/pages/me/followers/{john}", 400),
    ("POST", "/pages/me/requests/{via}"): (Who.IDENTITY, f"/pages/me/requests/{'ab' * 32}", 400),
    ("GET", "/pages/me/requests/{via}/{instance}"): (Who.IDENTITY, f"/pages/me/requests/{'ab' * 32}/0040", 404),
    ("POST", "/pages/me/requests/{via}/{instance}"): (Who.IDENTITY, f"/pages/me/requests/{'ab' * 32}/0040", 400),
    ("POST", "/pages/me/senders/{sender}/end"): (Who.IDENTITY, f"/pages/me/senders/{'ab' * 32}/end", 404),
    ("GET", "/pages/rot"): (Who.ADMINISTRATOR, "/pages/rot", 200),
    ("GET", "/pages/static/{name}"): (Who.ANYBODY, "/pages/static/style.css", 200),
}


@dataclass
class World:
    """A view with one public note and one that only jane sees."""

    running: RunningNode
    jane: Person
    john: Person
    names: dict[str, str]

    def fresh_token(self, person: Person) -> str:
        """A sign-in that a test may end."""
        token = SESSION + self.running.node.random_bytes(32).hex()
        expires = self.running.node.clock() + 3_600_000_000
        self.running.node.database.write(lambda c: add_session(c, hash_token(token), person.id, expires))
        return token

    def ask(self, method: str, path: str, cookie: str | None, **headers: str) -> httpx.Response:
        """As a browser does, with the cookie of a sign-in."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            named["cookie"] = f"__Host-inkgrove={cookie}"
        data = {"nothing": "x"} if method == "POST" else None
        return self.running.anybody.request(method, path.format(**self.names), headers=named, data=data)


@pytest.fixture(scope="module")
def world(shared: RunningNode) -> Iterator[World]:
    with Person(shared, "jane.pages.ink") as jane, Person(shared, "john.pages.ink") as john:
        schema = make_schema(jane, "pagenotes")
        public = {"mode": "public"}
        note = create(jane, schema, fields={"subject": "Open", "stars": 3}, access=public)["instance"]
        own = create(jane, schema, fields={"subject": "<b>Mine</b>"})["instance"]
        shared.node.store.write(register_schema, schema_id(schema))
        build_views(shared.node)
        names = {"schema": schema, "name": "pagenotes", "note": note, "own": own, "john": john.fqdn}
        yield World(shared, jane, john, names)


def test_every_route_is_in_the_table_and_none_of_them_in_the_api(shared: RunningNode) -> None:
    served = {
        (method, route.path_format)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert served == ROUTES.keys()
    assert make_site(shared.node).openapi() == make_app(shared.node).openapi()


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=map(" ".join, ROUTES))
def test_page_is_for_whom_the_table_says(world: World, method: str, path: str) -> None:
    who, address, right = ROUTES[method, path]
    nobody = world.ask(method, address, None)
    if who is not Who.ANYBODY:
        assert nobody.status_code == 303
        assert nobody.headers["location"].startswith("/pages/sign-in?next=")
    else:
        assert nobody.status_code == right, nobody.text
    if method == "POST":
        foreign = world.ask(method, address, world.jane.token, origin="https://evil.example")
        assert foreign.status_code == 403
        assert "auth.foreign-origin" in foreign.text
    answer = world.ask(method, address, world.fresh_token(world.jane))
    assert answer.status_code == (403 if who is Who.ADMINISTRATOR else right), answer.text


def test_ended_sign_in_leads_to_a_new_one(world: World) -> None:
    answer = world.ask("GET", "/pages/views/{schema}?sort=stars", "ink_s_" + "0" * 64)
    assert answer.status_code == 303
    assert answer.headers["location"] == (
        f"/pages/sign-in?next=%2Fpages%2Fviews%2F{world.names['schema'].replace('/', '%2F')}%3Fsort%3Dstars"
    )
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_token_of_a_service_opens_no_page(world: World) -> None:
    shared = world.running
    shared.create("mary.haiku.ink")
    token = Service(shared).connect("mary.haiku.ink", f"schema:{world.names['schema']}:read")["access_token"]
    assert world.ask("GET", "/pages/me", token).status_code == 303
    bearer = shared.anybody.get("/pages/me", headers={"authorization": f"Bearer {token}"})
    assert bearer.status_code == 303


def test_page_shows_what_the_identity_may_see(world: World) -> None:
    mine = world.ask("GET", "/pages/views/{schema}", world.jane.token).text
    assert "&lt;b&gt;Mine&lt;/b&gt;" in mine
    assert "<b>Mine" not in mine
    for cookie in (None, world.john.token):
        page = world.ask("GET", "/pages/views/{schema}", cookie).text
        assert "Open" in page
        assert "Mine" not in page
        assert world.ask("GET", "/pages/instances/{own}", cookie).status_code == 404
        assert world.ask("GET", "/pages/instances/{own}/proof", cookie).status_code == 404
        assert world.ask("GET", "/pages/instances/{own}/fields/subject", cookie).status_code == 404


def test_logs_of_others_are_for_the_administrator(world: World) -> None:
    note = world.jane.get(f"/instances/{world.names['note']}").json()
    log = f"/pages/logs/{note['author']}/{note['log_id']}"
    assert world.ask("GET", log, world.jane.token).status_code == 200
    assert world.ask("GET", log, world.john.token).status_code == 404
    assert note["author"] in world.ask("GET", "/pages/logs", world.jane.token).text
    unknown = f"/pages/logs/{key(99).public.hex()}/1"
    refusals = [world.ask("GET", path, world.john.token).text.replace(path, "") for path in (log, unknown)]
    known, other = (text.partition(", request")[0] for text in refusals)
    assert known.replace(note["author"], "") == other.replace(key(99).public.hex(), "")
    with Person(world.running, "admin.haiku.ink") as admin:
        assert world.ask("GET", log, admin.token).status_code == 200
        assert "Position" in world.ask("GET", "/", admin.token).text
    assert "Position" not in world.ask("GET", "/", world.jane.token).text


def test_pages_load_and_run_only_what_is_ours(world: World) -> None:
    for path in ("/", "/pages/sign-in", "/pages/nowhere", "/pages/me"):
        headers = world.ask("GET", path, world.jane.token, accept="text/html").headers
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")


def test_browser_gets_a_page_and_a_program_problem_details(world: World) -> None:
    page = world.ask("GET", "/nowhere", None, accept="text/html,application/xhtml+xml")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "request.no-such-route" in page.text
    program = world.ask("GET", "/nowhere", None, accept="application/json")
    assert (program.status_code, program.headers["content-type"]) == (404, "application/problem+json")


def test_page_of_an_ambiguous_name_lists_what_it_may_mean(world: World) -> None:
    schemas = {person.fqdn: make_schema(person, "twice") for person in (world.jane, world.john)}
    for schema in schemas.values():
        world.running.node.store.write(register_schema, schema_id(schema))
    build_views(world.running.node)
    page = world.ask("GET", "/pages/views/twice", None)
    assert (page.status_code, "view.ambiguous-name" in page.text) == (409, True)
    for owner, schema in schemas.items():
        assert f'href="/pages/views/{schema}"' in page.text
        assert f"by {owner}" in page.text
        assert world.ask("GET", f"/pages/views/{schema}", None).status_code == 200


def test_mistake_of_the_node_is_a_page_that_tells_nothing(shared: RunningNode) -> None:
    app = make_site(shared.node)
    router = APIRouter(route_class=PageRoute)

    @router.get("/mistake")
    def fail() -> None:
        raise ValueError("a secret of the node")

    app.include_router(router)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://node.example") as client:
            return await client.get("/mistake", headers={"x-request-id": "abc123"})

    answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert "The node made a mistake" in answer.text
    assert "abc123" in answer.text
    assert "secret" not in answer.text


def test_sign_in_never_leads_to_another_site() -> None:
    for address in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb", ""):
        assert local_address(address) == "/"
    assert local_address("/pages/me?x=1") == "/pages/me?x=1"


def test_style_sheet_is_asked_for_again_and_not_sent_again(world: World) -> None:
    first = world.ask("GET", "/pages/static/style.css", None)
    again = world.ask("GET", "/pages/static/style.css", None, if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert world.ask("GET", "/pages/static/site.py", None).status_code == 404
