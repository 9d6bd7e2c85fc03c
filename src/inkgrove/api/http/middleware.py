"""Small middleware: HEAD and OPTIONS for every route, headers for pages of other hosts, records of services."""

from functools import partial

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.api.http.formats import first_headers
from inkgrove.api.http.problems import allowed_methods
from inkgrove.node.runtime import AccessLog


class HeadAndOptions:
    """Middleware: HEAD is GET without the body, OPTIONS lists the methods."""

    def __init__(self, app: ASGIApp, routes: list[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer OPTIONS, turn HEAD into GET."""
        method = scope.get("method")
        if method == "OPTIONS" and (allowed := allowed_methods(self._routes, scope)):
            await Response(status_code=204, headers={"Allow": ", ".join(allowed)})(scope, receive, send)
        elif method == "HEAD":
            as_get = {**scope, "method": "GET"}
            await self._app(as_get, receive, _HeadOnly(send).send)
            scope["route"] = as_get.get("route")
        else:
            await self._app(scope, receive, send)


class _HeadOnly:
    """Ends the answer behind its head: a stream would go on for nobody."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class CorsHeaders(CORSMiddleware):
    """To a request without an Origin there is nothing to say but that one would have mattered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or b"origin" in first_headers(scope):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, partial(_say_it_matters, send))


async def _say_it_matters(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        headers = message.get("headers", ())
        named = [value for name, value in headers if name == b"vary"]
        others = [item for item in headers if item[0] != b"vary"] if named else headers
        message["headers"] = [*others, (b"vary", b", ".join([*named, b"Origin"]))]
    await send(message)


_REFUSED = 400


class AccessRecorder:
    """Confirms what was noted during a request as soon as its answer begins well."""

    def __init__(self, app: ASGIApp, access_log: AccessLog) -> None:
        self._app, self._access_log = app, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._access_log.begin_request() as uses:

            async def confirm(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] < _REFUSED:
                    uses.confirm()
                await send(message)

            await self._app(scope, receive, confirm)
