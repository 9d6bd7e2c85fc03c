"""The whole site of a node: the HTTP API and the pages."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from inkgrove.api.app import make_app
from inkgrove.api.http import RequestProblem, on_http_error
from inkgrove.node.errors import NoSuchRoute
from inkgrove.node.node import Node
from inkgrove.pages import assets, home, instances, logs, me, rot, schemas, sign_in, views
from inkgrove.pages.visits import refuse

ROUTERS: Final = (
    home.router,
    sign_in.router,
    views.router,
    instances.router,
    schemas.router,
    logs.router,
    me.router,
    rot.router,
    assets.router,
)


def make_site(node: Node, *, closes_node: bool = False, rot_policy: Mapping[str, Any] | None = None) -> FastAPI:
    """The application of a node with its pages; `rot_policy` is what the settings say of rot, as a run keeps it."""
    app = make_app(node, closes_node=closes_node)
    app.state.rot_policy = rot_policy or {}
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(HTTPException, _or_page(on_http_error))
    return app


def _or_page(
    handle: Callable[[Request, Exception], Awaitable[Response]],
) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def on_missing(request: Request, error: Exception) -> Response:
        """A browser that found nothing gets a page; a program gets problem details."""
        assert isinstance(error, HTTPException)
        wants_page = "text/html" in request.headers.get("accept", "") and request.method in ("GET", "HEAD")
        if error.status_code == 404 and wants_page and not isinstance(error, RequestProblem):
            return refuse(request, NoSuchRoute(f"nothing is at {request.url.path[:120]}"))
        return await handle(request, error)

    return on_missing
