"""HEAD and OPTIONS for every route, and which methods an address takes."""

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROBED = ("GET", "POST", "PUT", "PATCH", "DELETE")


def allowed_methods(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """The methods that some route has at this address; none if there is nothing."""
    probe = {key: scope[key] for key in ("type", "path", "root_path", "headers") if key in scope}
    found = [m for m in PROBED if any(route.matches({**probe, "method": m})[0] is Match.FULL for route in routes)]
    if not found:
        return []
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]


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
