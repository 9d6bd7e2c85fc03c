"""Every route x (no token, rubbish, expired, revoked, a service without the scope, somebody else, a service of theirs
without the scope, the right one).

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
from tests.support.plain_views import build_views
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
    READER = "anybody sees what is public; a service needs the scope, and a token must be good"


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
    out_of_scope: int = 403
    """What a service gets without the scope."""
    as_anybody: int = 200
    """What a reader without a token gets."""
    content: tuple[str, bytes] | None = None
    """Content type and bytes of a body that is not JSON."""


_READ, _CREATE, _UPDATE, _DELETE = (f"schema:{{schema}}:{action}" for action in ("read", "create", "update", "delete"))
_MERGE = ("application/merge-patch+json", b'{"fields": {"title": "Ink"}}')


ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/identities"): Route(Who.ADMINISTRATOR, {"fqdn": "new.haiku.ink", "password": PASSWORD}, as_john=403),
    ("POST", "/identities/challenges"): Route(Who.ANYBODY, {"key": key(9).public.hex()}),
    ("POST", "/identities/recover"): Route(
        Who.ANYBODY,
        {"fqdn": "{jane}", "password": PASSWORD, "proof": {"challenge": "x", "signature": "00" * 64}},
        right={403},
    ),
    ("POST", "/identities/arrivals"): Route(
        Who.ADMINISTRATOR,
        {
            "key": key(9).public.hex(),
            "fqdn": "newer.haiku.ink",
            "password": PASSWORD,
            "proof": {"challenge": "x", "signature": "00" * 64},
            "file": {"size": 1000, "digest": "00" * 64},
        },
        as_john=403,
        right={403},
    ),
    ("GET", "/identities/arrivals/{id}"): Route(Who.ANYBODY, path=f"/identities/arrivals/{'ab' * 16}", right={404}),
    ("DELETE", "/identities/arrivals/{id}"): Route(Who.ANYBODY, path=f"/identities/arrivals/{'ab' * 16}", right={404}),
    ("PUT", "/identities/arrivals/{id}/file"): Route(
        Who.ANYBODY,
        path=f"/identities/arrivals/{'ab' * 16}/file",
        content=("application/octet-stream", b"x"),
        right={404},
    ),
    ("POST", "/identities/arrivals/{id}/commit"): Route(
        Who.ANYBODY,
        {"signed": {"entry": "AA==", "payload": "AA=="}},
        path=f"/identities/arrivals/{'ab' * 16}/commit",
        right={404},
    ),
    ("GET", "/identities/{name}"): Route(Who.ANYBODY, path="/identities/{jane}"),
    ("GET", "/identities/{name}/documents"): Route(Who.ANYBODY, path="/identities/{jane}/documents"),
    ("GET", "/me"): Route(Who.TOKEN),
    ("PATCH", "/me"): Route(Who.IDENTITY, {"name": "Jane"}),
    ("DELETE", "/me"): Route(Who.IDENTITY, {"password": "not their password"}, right={401}),
    ("GET", "/closing"): Route(Who.ANYBODY, right={401}),
    ("POST", "/me/export"): Route(Who.IDENTITY, {}, right={202}),
    ("GET", "/me/export/{id}"): Route(Who.IDENTITY, path=f"/me/export/{'ab' * 16}", right={404}),
    ("DELETE", "/me/export/{id}"): Route(Who.IDENTITY, path=f"/me/export/{'ab' * 16}", right={404}),
    ("GET", "/me/export/{id}/file"): Route(Who.IDENTITY, path=f"/me/export/{'ab' * 16}/file", right={404}),
    ("POST", "/me/move"): Route(
        Who.IDENTITY, {"endpoint": "https://jane.poem.ink", "password": "not their password"}, right={401}
    ),
    ("GET", "/me/move"): Route(Who.IDENTITY),
    ("DELETE", "/me/move"): Route(Who.IDENTITY, {"password": "not their password"}, right={401}),
    ("POST", "/identities/arrivals/helped"): Route(
        Who.ADMINISTRATOR,
        {"lives_at": "https://127.0.0.1", "grant": "ink_g_" + "ab" * 32, "fqdn": "new.haiku.ink", "password": PASSWORD},
        right={422},
        as_john=403,
    ),
    ("GET", "/federation/moves/{grant}"): Route(Who.ANYBODY, path="/federation/moves/x", right={404}),
    ("GET", "/federation/moves/{grant}/file"): Route(Who.ANYBODY, path="/federation/moves/x/file", right={404}),
    ("POST", "/federation/moves/{grant}/commit"): Route(
        Who.ANYBODY, path="/federation/moves/x/commit", right={404, 415}
    ),
    ("GET", "/me/keys"): Route(Who.IDENTITY),
    ("PATCH", "/me/keys/{key}"): Route(
        Who.IDENTITY, {"label": "phone"}, path=f"/me/keys/{key(9).public.hex()}", right={404}
    ),
    ("POST", "/me/keys"): Route(Who.IDENTITY, {"entry": "AA==", "payload": "AA==", "password": PASSWORD}, right={422}),
    ("DELETE", "/me/keys/{key}"): Route(Who.IDENTITY, path=f"/me/keys/{key(9).public.hex()}", right={404}),
    ("GET", "/me/keys/{key}/ends"): Route(Who.IDENTITY, path=f"/me/keys/{key(9).public.hex()}/ends", right={404}),
    ("POST", "/me/words"): Route(Who.IDENTITY, {"password": PASSWORD}),
    ("POST", "/me/words/confirm"): Route(Who.IDENTITY, {"password": PASSWORD, "words": "zoo"}, right={422}),
    ("POST", "/me/password"): Route(Who.IDENTITY, {"old": PASSWORD, "new": PASSWORD}),
    ("POST", "/sessions"): Route(Who.ANYBODY, {"fqdn": "{jane}", "password": PASSWORD}),
    ("GET", "/sessions"): Route(Who.IDENTITY),
    ("DELETE", "/sessions/others"): Route(Who.IDENTITY),
    ("DELETE", "/sessions/{session}"): Route(Who.IDENTITY, path=f"/sessions/{'ab' * 16}", right={404}),
    ("DELETE", "/sessions/current"): Route(Who.IDENTITY),
    ("GET", "/.well-known/inkgrove"): Route(Who.ANYBODY, right={404}),
    ("GET", "/.well-known/inkgrove-node"): Route(Who.ANYBODY, right={422}),  # asked by an address
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
    ("GET", "/me/usage"): Route(Who.IDENTITY),
    ("GET", "/me/requests"): Route(Who.IDENTITY),
    ("POST", "/me/requests/{via}"): Route(
        Who.IDENTITY, {"decision": "refuse"}, path=f"/me/requests/{'ab' * 32}", right={404}
    ),
    ("GET", "/me/requests/{via}/{instance}"): Route(
        Who.IDENTITY, path=f"/me/requests/{'ab' * 32}/{UNKNOWN}", right={404}
    ),
    ("POST", "/me/requests/{via}/{instance}"): Route(
        Who.IDENTITY, {"decision": "refuse"}, path=f"/me/requests/{'ab' * 32}/{UNKNOWN}", right={404}
    ),
    ("GET", "/me/senders"): Route(Who.IDENTITY),
    ("PUT", "/me/senders/{name}"): Route(Who.IDENTITY, path="/me/senders/{mary}"),
    ("DELETE", "/me/senders/{name}"): Route(Who.IDENTITY, path="/me/senders/{mary}", as_john=404),
    ("GET", "/instances/{instance}/deliveries"): Route(
        Who.SCOPE, path="/instances/{note}/deliveries", scope=_READ, as_john=404
    ),
    ("POST", "/instances/{instance}/pass-on"): Route(
        Who.SCOPE,
        {"recipients": ["{mary}"]},
        path="/instances/{received}/pass-on",
        scope=f"{_READ} {_CREATE}",
        as_john=404,
    ),
    # Other nodes sign their requests; a token is nothing to them.
    ("POST", "/federation/deliveries"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/relations"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/documents"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/heights"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/entries"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/own/heights"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/own/entries"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/own/relations"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/own/shares"): Route(Who.ANYBODY, right={401, 415}),
    ("POST", "/federation/forks"): Route(Who.ANYBODY, {"first": "AA==", "second": "AA=="}, right={422}),
    ("GET", "/federation/blobs/{hash}"): Route(Who.ANYBODY, path=f"/federation/blobs/{UNKNOWN}", right={401}),
    ("GET", "/federation/copies/{instance}"): Route(Who.ANYBODY, path=f"/federation/copies/{UNKNOWN}", right={401}),
    ("PUT", "/me/following/{name}"): Route(Who.IDENTITY, {}, path="/me/following/{admin}"),
    ("DELETE", "/me/following/{name}"): Route(Who.IDENTITY, path="/me/following/{admin}", as_john=404),
    # Not of who sent her something: to block them would take it away.
    ("PUT", "/me/followers/{name}"): Route(Who.IDENTITY, {"state": "blocked"}, path="/me/followers/{mary}"),
    ("DELETE", "/me/followers/{name}"): Route(Who.IDENTITY, path="/me/followers/{mary}", as_john=404),
    ("POST", "/schemas"): Route(Who.IDENTITY, {"name": "more"}),
    ("POST", "/schemas/{author}/{log_id}/versions"): Route(
        Who.IDENTITY, {"kind": "schema-revert", "target": 2}, path="/schemas/{empty}/versions", right={422}, as_john=403
    ),
    ("GET", "/schemas/{author}/{log_id}"): Route(Who.ANYBODY, path="/schemas/{schema}"),
    ("POST", "/instances"): Route(Who.SCOPE, {"schema": "{schema}", "fields": {"title": "Ink"}}, scope=_CREATE),
    ("PATCH", "/instances/{instance}"): Route(
        Who.SCOPE, path="/instances/{note}", scope=_UPDATE, content=_MERGE, as_john=404
    ),
    ("PUT", "/instances/{instance}"): Route(
        Who.SCOPE, {"fields": {"title": "Paper"}}, path="/instances/{note}", scope=_UPDATE, as_john=404
    ),
    # The service has deleted it before jane tries.
    ("DELETE", "/instances/{instance}"): Route(
        Who.SCOPE, path="/instances/{lost}", scope=_DELETE, as_john=404, right={200, 404, 409}
    ),
    ("POST", "/instances/{instance}/erase"): Route(
        Who.IDENTITY, {"password": PASSWORD}, path="/instances/{note}/erase", as_john=404, right={409}
    ),
    ("GET", "/instances/{instance}"): Route(
        Who.READER, path="/instances/{note}", scope=_READ, as_john=404, as_anybody=404
    ),
    ("GET", "/instances/{instance}/history"): Route(
        Who.READER, path="/instances/{note}/history", scope=_READ, as_john=404, as_anybody=404
    ),
    ("GET", "/instances/{instance}/proof"): Route(
        Who.READER, path="/instances/{note}/proof", scope=_READ, as_john=404, as_anybody=404
    ),
    # Whether the instance is theirs or a copy, only who may see it can keep it; to let go changes nothing for others.
    ("PUT", "/instances/{instance}/keep"): Route(Who.IDENTITY, path="/instances/{note}/keep", as_john=404),
    ("DELETE", "/instances/{instance}/keep"): Route(Who.IDENTITY, path="/instances/{note}/keep", as_john=204),
    ("POST", "/instances/{instance}/fetch"): Route(
        Who.IDENTITY, path="/instances/{note}/fetch", right={404}, as_john=404
    ),
    ("POST", "/instances/{instance}/copy"): Route(
        Who.SCOPE, {}, path="/instances/{note}/copy", scope=f"{_READ} {_CREATE}", as_john=404
    ),
    ("POST", "/instances/{instance}/share"): Route(
        Who.SCOPE, {"recipients": ["{admin}"]}, path="/instances/{note}/share", scope=_UPDATE, as_john=404
    ),
    ("GET", "/publish/next"): Route(Who.SCOPE, path="/publish/next?schema={schema}", scope=_CREATE),
    ("POST", "/entries"): Route(Who.TOKEN, {"entry": "AA==", "payload": "AA=="}, right={422}),
    ("GET", "/views"): Route(Who.READER, scope=_READ, path="/views"),
    ("GET", "/views/{schema}"): Route(Who.READER, path="/views/notes", scope=_READ),
    ("GET", "/views/{schema}/outcomes"): Route(Who.READER, path="/views/notes/outcomes", scope=_READ),
    ("GET", "/views/{schema}/summary"): Route(Who.READER, path="/views/notes/summary", scope=_READ),
    ("GET", "/views/{author}/{log_id}/summary"): Route(Who.READER, path="/views/{schema}/summary", scope=_READ),
    ("GET", "/views/{author}/{log_id}"): Route(Who.READER, path="/views/{schema}", scope=_READ),
    ("GET", "/views/{author}/{log_id}/outcomes"): Route(Who.READER, path="/views/{schema}/outcomes", scope=_READ),
    ("GET", "/views/{schema}/changes"): Route(Who.READER, path="/views/notes/changes", scope=_READ),
    ("GET", "/views/{author}/{log_id}/changes"): Route(Who.READER, path="/views/{schema}/changes", scope=_READ),
    ("PUT", "/views/{author}/{log_id}"): Route(Who.ADMINISTRATOR, path="/views/{schema}", as_john=403),
    ("DELETE", "/views/{author}/{log_id}"): Route(
        Who.ADMINISTRATOR, path="/views/{empty}", as_john=403, right={200, 204, 404}
    ),
    ("POST", "/blobs"): Route(Who.SCOPE, scope=_CREATE, content=("text/plain", b"ink")),
    # Whether there is such a blob is nothing that a service learns without the scope.
    ("GET", "/blobs/{hash}"): Route(
        Who.READER, path="/blobs/{picture}", scope=_READ, as_anybody=404, as_john=404, out_of_scope=404
    ),
    ("GET", "/healthz"): Route(Who.ANYBODY),
    ("GET", "/readyz"): Route(Who.ANYBODY),
    ("GET", "/metrics"): Route(Who.ANYBODY),
}
_NEEDS_NO_SCOPE = {("GET", "/views")}
NAMES = {name: f"{name}.haiku.ink" for name in ("jane", "john", "mary", "admin")}


@dataclass
class World:
    """A node with jane, john and an administrator, and every kind of token that is no good."""

    running: RunningNode
    service: Service
    bad_tokens: dict[str, str]
    names: dict[str, str]

    def send(self, method: str, path: str, route: Route, token: str | None) -> httpx.Response:
        """The request of a route, with a token."""
        client = self.running.anybody if token is None else self.running.client(token)
        names = {**NAMES, **self.names, "client": self.service.id}
        if path.endswith("/changes"):  # a stream that opens does not end by itself
            with client.stream(method, (route.path or path).format(**names)) as opened:
                return (
                    opened
                    if opened.status_code == 200
                    else httpx.Response(opened.status_code, headers=opened.headers, content=opened.read())
                )
        form = {name: text.format(**names) for name, text in route.form.items()} if route.form is not None else None
        if route.content is not None:
            kind, body = route.content
            return client.request(
                method, (route.path or path).format(**names), content=body, headers={"content-type": kind}
            )
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
    jane, admin = shared.sign_in("jane.haiku.ink"), NAMES["admin"]
    assert jane.put(f"/me/senders/{admin}").status_code == 200
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
    names = _publish(shared, jane)
    shared.node.settings = replace(shared.node.settings, registration="closed")
    return World(shared, service, tokens, names)


def _publish(running: RunningNode, jane: httpx.Client) -> dict[str, str]:
    """A schema of jane's with two notes that nobody else sees and one that she received; a schema without fields."""
    schemas = []
    for name in ("notes", "empty"):
        made = jane.post("/schemas", json={"name": name}).json()
        schemas.append(f"{made['author']}/{made['log_id']}")
    fields = [{name: {"action": "create", "type": kind}} for name, kind in (("title", "varchar"), ("picture", "blob"))]
    version = {"kind": "schema-migration", "fields": fields}
    assert jane.post(f"/schemas/{schemas[0]}/versions", json=version).status_code == 201
    picture = jane.post("/blobs", content=b"a picture", headers={"content-type": "image/png"}).json()
    admin = running.sign_in("admin.haiku.ink")
    kept, lost = ({"title": title, "picture": picture} for title in ("kept", "lost"))
    names = {
        name: author.post("/instances", json={"schema": schemas[0], "fields": said, **rest}).json()["instance"]
        for name, author, said, rest in (
            ("note", jane, kept, {}),
            ("lost", jane, lost, {}),
            ("received", admin, {"title": "from elsewhere"}, {"recipients": ["jane.haiku.ink"]}),
        )
    }
    admin.put(f"/views/{schemas[0]}")
    build_views(running.node)
    return {"schema": schemas[0], "empty": schemas[1], "picture": picture["hash"], **names}


def test_every_route_is_in_the_table(shared: RunningNode) -> None:
    app = make_app(shared.node)
    served = {
        (method, route.path_format)
        for route in all_routes(app.routes)
        for method in (route.methods or set()) - {"HEAD", "OPTIONS"}
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

    if route.who is Who.READER:
        assert world.send(method, path, route, None).status_code == route.as_anybody
    no_token: dict[str, str | None] = {} if route.who is Who.READER else {"no token": None}
    for kind, token in {**no_token, **world.bad_tokens}.items():
        answer = world.send(method, path, route, token)
        assert answer.status_code == 401, (kind, answer.text)
        challenge = 'Bearer realm="inkgrove"' + ("" if token is None else ', error="invalid_token"')
        assert answer.headers["www-authenticate"] == challenge, kind
        assert answer.json()["code"] == ("auth.required" if token is None else "auth.bad-token"), kind

    needs_scope = route.who is Who.SCOPE or (route.who is Who.READER and (method, path) not in _NEEDS_NO_SCOPE)
    is_open = route.who is Who.TOKEN or (route.who is Who.READER and not needs_scope)
    wrong_scope, right_scope = f"schema:{SCHEMA}:delete", route.scope.format(**world.names)
    for scope, is_right in ((wrong_scope, is_open), (right_scope, is_open or needs_scope)):
        token = world.service.connect("jane.haiku.ink", scope)["access_token"]
        answer = world.send(method, path, route, token)
        expected = route.right if is_right else {route.out_of_scope}
        assert answer.status_code in expected, (scope, answer)
        if not is_right and route.out_of_scope == 403:
            assert answer.json()["code"] == ("auth.out-of-scope" if needs_scope else "auth.not-allowed")
            told = 'Bearer realm="inkgrove", error="insufficient_scope"' if needs_scope else None
            assert answer.headers.get("www-authenticate") == told

    if route.as_john is not None:
        answer = world.send(method, path, route, world.token_of("john.haiku.ink"))
        assert answer.status_code == route.as_john, answer.text
    if route.as_john is not None and needs_scope:
        # What john may not see looks to a service of his as if it was not there, whatever its scopes are.
        token = world.service.connect("john.haiku.ink", "relations:read")["access_token"]
        answer = world.send(method, path, route, token)
        assert answer.status_code == 404, answer.text
        assert answer.json()["code"] in ("view.unknown-instance", "blob.unknown")
        assert world.names["schema"] not in answer.text

    owner = "admin.haiku.ink" if route.who is Who.ADMINISTRATOR else "jane.haiku.ink"
    answer = world.send(method, path, route, world.token_of(owner))
    assert answer.status_code in route.right, answer


@pytest.mark.parametrize("scope", [_READ, _CREATE], ids=["read", "create"])
@pytest.mark.parametrize("action", ["copy", "pass-on"])
def test_what_is_sent_on_must_be_read_and_written(world: World, action: str, scope: str) -> None:
    """Neither scope alone is enough, for the service would let out what it may not see, or write in somebody's name."""
    token = world.service.connect("jane.haiku.ink", scope.format(**world.names))["access_token"]
    route = ROUTES["POST", f"/instances/{{instance}}/{action}"]
    answer = world.send("POST", f"/instances/{{received}}/{action}", replace(route, path=None), token)
    assert (answer.status_code, answer.json()["code"]) == (403, "auth.out-of-scope")


def test_what_is_refused_changes_nothing(world: World) -> None:
    """A service that may do nothing tries everything: what the identity sees afterwards is the same."""
    jane = world.running.client(world.token_of("jane.haiku.ink"))
    token = world.service.connect("jane.haiku.ink", f"schema:{SCHEMA}:delete")["access_token"]

    def seen() -> list[Any]:
        return [jane.get(path).json() for path in ("/me", "/me/services", "/me/relations", "/me/accesses")]

    before = seen()
    for (method, path), route in ROUTES.items():
        if route.who in (Who.IDENTITY, Who.SCOPE, Who.ADMINISTRATOR):
            # The instance that the route ends may be gone by now.
            living = replace(route, path="/instances/{note}") if route.scope == _DELETE else route
            assert world.send(method, path, living, token).status_code == 403
    assert seen() == before
