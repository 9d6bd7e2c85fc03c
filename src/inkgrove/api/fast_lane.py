"""Middleware: the routes that are asked most often skip the framework's routing, which costs more than a signature.

The same functions answer, and the framework documents them; here they are only called without a detour.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from inkgrove.api.problems import problem
from inkgrove.core.errors import InkgroveError

Endpoint = Callable[[Request], Awaitable[Response]]


class FastLane:
    """Answers routes that take nothing but the request; passes everything else on."""

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter], endpoints: Iterable[Endpoint]) -> None:
        self._app = app
        wanted = set(endpoints)
        self._routes = {
            (method, route.path): route
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and route.endpoint in wanted
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            answer = await cast(Endpoint, route.endpoint)(Request(scope, receive, send))
        except InkgroveError as error:
            answer = problem(error)
        await answer(scope, receive, send)
