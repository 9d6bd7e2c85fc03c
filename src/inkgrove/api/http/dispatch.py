"""Middleware: the routes that are asked most often skip the framework, which costs more than a signature or a read.

The same functions answer, and the framework documents them; here they are only called without a detour. A reading route
takes this lane for requests that are certainly well formed: what is malformed, the framework refuses.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from inkgrove.api.http.problems import RequestProblem, problem
from inkgrove.core.errors import InkgroveError
from inkgrove.node.errors import UnknownParameter

Endpoint = Callable[[Request], Awaitable[Response]]
Reader = Callable[[Request], Awaitable[Response | None]]


class FastLane:
    """Answers routes that take nothing but the request, and plain requests to others; passes everything else on."""

    def __init__(
        self,
        app: ASGIApp,
        routers: Iterable[APIRouter],
        endpoints: Iterable[Endpoint],
        readers: Mapping[Callable[..., Any], Reader],
    ) -> None:
        """`readers`: for the endpoint of a route with GET what answers plain requests to it."""
        self._app = app
        wanted = set(endpoints)
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._routes = {
            (method, route.path): route
            for route in routes
            if route.endpoint in wanted
            for method in route.methods or ()
        }
        self._readers: list[tuple[re.Pattern[str], APIRoute, Reader]] = [
            (route.path_regex, route, readers[route.endpoint]) for route in routes if route.endpoint in readers
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        answer = await self._answer(scope, receive, send) if scope["type"] == "http" else None
        await (self._app if answer is None else answer)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        found = self._find(scope)
        if found is None:
            return None
        route, answer = found
        try:
            given = await answer(Request(scope, receive, send))
        except InkgroveError as error:
            given = problem(error)
        except RequestProblem as refused:  # while the body was being read
            given = problem(refused.error)
        if given is not None:
            scope["route"] = route
        return given

    def _find(self, scope: Scope) -> tuple[APIRoute, Reader] | None:
        method, path = scope["method"], scope["path"]
        if method == "GET":
            return next(((route, read) for pattern, route, read in self._readers if pattern.match(path)), None)
        # These take no parameters; the framework refuses them.
        route = None if scope["query_string"] else self._routes.get((method, path))
        return None if route is None else (route, cast(Reader, route.endpoint))


_OPEN: Final = ("/oauth/", "/.well-known/", "/federation/")
"""RFC 6749 section 3.1 wants unknown parameters ignored; and another node may be newer than this one."""


def takes_known_parameters_only(route: APIRoute) -> bool:
    """Whether a route refuses parameters that it does not document; pages for people do not."""
    return route.include_in_schema and not route.path.startswith(_OPEN)


async def check_parameters(request: Request) -> None:
    """A dependency of every route: refuse a query with a parameter that the route does not document."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute) or not takes_known_parameters_only(route):
        return
    known = [*_names(route.dependant), *_documented(route)]
    for name in request.query_params:
        if name not in known:
            there = f"there are: {', '.join(known)}" if known else "there are none"
            raise UnknownParameter(f"{name[:80]!r} is no parameter of this address; {there}", parameter=name[:80])


def _documented(route: APIRoute) -> Iterator[str]:
    """Parameters that the route reads itself."""
    for parameter in (route.openapi_extra or {}).get("parameters", []):
        if parameter["in"] == "query":
            yield parameter["name"]


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
