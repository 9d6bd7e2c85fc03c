"""Every route x (no token, rubbish, expired, revoked, a service without the scope, somebody else, the right one).

A new route goes into `ROUTES` with who may use it; a route that is missing there fails.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from inkgrove.api.app import make_app
from tests.support.logs import key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.services import BACK, Service

SCHEMA = f"{key(7).public.hex()}/1"
UNKNOWN = "0040" + "ab" * 64


class Who(Enum):
    """Who may use a route."""

    ANYBODY = "anybody; a token changes nothing"
    TOKEN = "whoever has a good token, services too"
    IDENTITY = "the identity itself, no service"
    SCOPE = "the identity, and services with the scope"
    ADMINISTRATOR = "the administrator of the node, no service"


@dataclass(frozen=True)
class Route:
    """Who may use a route, and a request that the right one can make; `{jane}`, `{john}`, `{client}` are filled in."""

    who: Who
    json: dict[str, Any] | None = None
    form: dict[str, str] | None = None
    path: str | None = None
    """If it is not the path of the route itself."""
    scope: str = "relations:read"
    """What a service needs for it."""
    as_john: int | None = None
    """What somebody else gets who asks for the same thing of jane's; None if the route speaks of the caller only."""
    right: set[int] = field(default_factory=lambda: {200, 201, 204})


ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/identities"): Route(Who.ADMINISTRATOR, {"fqdn": "new.haiku.ink", "password": PASSWORD}, as_john=403),
    ("GET", "/identities/{name}"): Route(Who.ANYBODY, path="/identities/{jane}"),
    ("GET", "/me"): Route(Who.TOKEN),
    ("PATCH", "/me"): Route(Who.IDENTITY, {"name": "Jane"}),
    ("POST", "/me/keys"): Route(Who.IDENTITY, {"entry": "AA==", "payload": "AA=="}, right={422}),
    ("DELETE", "/me/keys/{key}"): Route(Who.IDENTITY, path=f"/me/keys/{key(9).public.hex()}", right={404}),
    ("POST", "/me/password"): Route(Who.IDENTITY, {"old": PASSWORD, "new": PASSWORD}),
    ("POST", "/sessions"): Route(Who.ANYBODY, {"fqdn": "{jane}", "password": PASSWORD}),
    ("DELETE", "/sessions/current"): Route(Who.IDENTITY),
    ("GET", "/.well-known/inkgrove"): Route(Who.ANYBODY, right={404}),
    ("POST", "/oauth/register"): Route(Who.ANYBODY, {"client_name": "A", "redirect_uris": [BACK]}),
    ("GET", "/oauth/authorize"): Route(Who.ANYBODY, right={400}),
    ("POST", "/oauth/authorize"): Route(Who.ANYBODY, form={"action": "allow"}, right={400}),
    ("POST", "/oauth/token"): Route(Who.ANYBODY, form={"grant_type": "refresh_token"}, right={400}),
    ("POST", "/oauth/revoke"): Route(Who.ANYBODY, form={"token": "x", "client_id": "{client}"}),
    ("GET", "/.well-known/oauth-authorization-server"): Route(Who.ANYBODY),
    ("GET", "/me/services"): Route(Who.IDENTITY),
    ("DELETE", "/me/services/{client}"): Route(Who.IDENTITY, path="/me/services/{client}", as_john=404),
    ("GET", "/me/accesses"): Route(Who.IDENTITY),
    ("GET", "/me/relations"): Route(Who.SCOPE),
    ("GET", "/me/requests"): Route(Who.IDENTITY),
    ("POST", "/me/requests/{via}"): Route(
        Who.IDENTITY, {"decision": "refuse"}, path=f"/me/requests/{'ab' * 32}", right={404}
    ),
    ("GET", "/instances/{instance}/deliveries"): Route(Who.TOKEN, path=f"/instances/{UNKNOWN}/deliveries", right={404}),
    ("POST", "/instances/{instance}/pass-on"): Route(
        Who.TOKEN, {"recipients": ["{john}"]}, path=f"/instances/{UNKNOWN}/pass-on", right={404}
    ),
    # Other nodes sign their requests; a token is nothing to them.
    ("POST", "/federation/deliveries"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/relations"): Route(Who.ANYBODY, right={401, 415}),
    ("PUT", "/me/following/{name}"): Route(Who.IDENTITY, {}, path="/me/following/{admin}"),
    ("DELETE", "/me/following/{name}"): Route(Who.IDENTITY, path="/me/following/{admin}", as_john=404),
    ("PUT", "/me/followers/{name}"): Route(Who.IDENTITY, {"state": "blocked"}, path="/me/followers/{admin}"),
    ("DELETE", "/me/followers/{name}"): Route(Who.IDENTITY, path="/me/followers/{admin}", as_john=404),
}
NAMES = {"jane": "jane.haiku.ink", "john": "john.haiku.ink", "admin": "admin.haiku.ink"}


@dataclass
class World:
    """A node with jane, john and an administrator, and every kind of token that is no good."""

    running: RunningNode
    service: Service
    bad_tokens: dict[str, str]

    def send(self, method: str, path: str, route: Route, token: str | None) -> httpx.Response:
        """The request of a route, with a token."""
        client = self.running.anybody if token is None else self.running.client(token)
        names = {**NAMES, "client": self.service.id}
        form = {name: text.format(**names) for name, text in route.form.items()} if route.form is not None else None
        json = _filled(route.json, names) if route.json is not None else None
        return client.request(method, (route.path or path).format(**names), json=json, data=form)

    def token_of(self, fqdn: str) -> str:
        answer = self.running.anybody.post("/sessions", json={"fqdn": fqdn, "password": PASSWORD})
        token: str = answer.json()["token"]
        return token


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(item, names) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def world(shared: RunningNode) -> World:
    for fqdn in NAMES.values():
        shared.create(fqdn)
    service = Service(shared)
    scope = f"schema:{SCHEMA}:read"
    clock = shared.node.clock
    shared.node.clock = lambda: clock() - 3600_000_000 * 25
    expired_access = service.connect("jane.haiku.ink", "relations:read")["access_token"]
    expired_session = shared.anybody.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": PASSWORD})
    shared.node.clock = clock
    other = Service(shared, "Revoked")
    revoked = other.connect("jane.haiku.ink", f"relations:read {scope}")["access_token"]
    jane = shared.sign_in("jane.haiku.ink")
    jane.delete(f"/me/services/{other.id}")
    ended = shared.anybody.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": PASSWORD}).json()["token"]
    shared.client(ended).delete("/sessions/current")
    refresh = service.connect("jane.haiku.ink", "relations:read")["refresh_token"]
    tokens = {
        "rubbish": "rubbish",
        "an unknown session": "ink_s_" + "0" * 64,
        "an unknown access token": "ink_a_" + "0" * 64,
        "an expired access token": expired_access,
        "an expired session": expired_session.json()["token"],
        "a revoked access token": revoked,
        "an ended session": ended,
        "a refresh token": refresh,
    }
    shared.node.settings = replace(shared.node.settings, registration="closed")
    return World(shared, service, tokens)


def test_every_route_is_in_the_table(shared: RunningNode) -> None:
    app = make_app(shared.node)
    served = {
        (method, route.path) for route in all_routes(app.routes) for method in route.methods - {"HEAD", "OPTIONS"}
    }
    described = {(method.upper(), path) for path, item in app.openapi()["paths"].items() for method in item}
    assert served == described == ROUTES.keys()


def all_routes(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """The routes of an application, those of included groups too; FastAPI's own page of the document aside."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from all_routes(route.original_router.routes)


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=map(" ".join, ROUTES))
def test_route_is_for_whom_the_table_says(world: World, method: str, path: str) -> None:
    route = ROUTES[method, path]
    if route.who is Who.ANYBODY:
        for token in (None, *world.bad_tokens.values()):
            answer = world.send(method, path, route, token)
            assert answer.status_code in route.right, (token, answer.text)
        return

    for kind, token in {"no token": None, **world.bad_tokens}.items():
        answer = world.send(method, path, route, token)
        assert answer.status_code == 401, (kind, answer.text)
        assert answer.headers["www-authenticate"].startswith("Bearer"), kind
        assert answer.json()["code"] == ("auth.required" if token is None else "auth.bad-token"), kind

    wrong_scope = "schema:" + SCHEMA + (":delete" if route.scope != f"schema:{SCHEMA}:delete" else ":read")
    for scope, is_right in ((wrong_scope, route.who is Who.TOKEN), (route.scope, route.who in (Who.TOKEN, Who.SCOPE))):
        token = world.service.connect("jane.haiku.ink", scope)["access_token"]
        answer = world.send(method, path, route, token)
        expected = route.right if is_right else {403}
        assert answer.status_code in expected, (scope, answer.text)
        if not is_right:
            assert answer.json()["code"] == ("auth.out-of-scope" if route.who is Who.SCOPE else "auth.not-allowed")

    if route.as_john is not None:
        answer = world.send(method, path, route, world.token_of("john.haiku.ink"))
        assert answer.status_code == route.as_john, answer.text

    owner = "admin.haiku.ink" if route.who is Who.ADMINISTRATOR else "jane.haiku.ink"
    answer = world.send(method, path, route, world.token_of(owner))
    assert answer.status_code in route.right, answer.text


def test_what_is_refused_changes_nothing(world: World) -> None:
    """A service that may do nothing tries everything: what the identity sees afterwards is the same."""
    jane = world.running.client(world.token_of("jane.haiku.ink"))
    token = world.service.connect("jane.haiku.ink", f"schema:{SCHEMA}:delete")["access_token"]

    def seen() -> list[Any]:
        return [jane.get(path).json() for path in ("/me", "/me/services", "/me/relations", "/me/accesses")]

    before = seen()
    for (method, path), route in ROUTES.items():
        if route.who in (Who.IDENTITY, Who.SCOPE, Who.ADMINISTRATOR):
            assert world.send(method, path, route, token).status_code == 403
    assert seen() == before
