"""The whole site of a node: the HTTP API, the pages, and the few files that pages load (style sheet, scripts, icon)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException

from inkgrove.api.app import make_app
from inkgrove.api.http.problems import RequestProblem, on_http_error
from inkgrove.federation.replication import ArchiveImporter
from inkgrove.node.errors import RequestError
from inkgrove.node.runtime import Node
from inkgrove.pages import home, instances, logs, me, rot, schemas, sign_in, views
from inkgrove.pages.visits import PageRoute, refuse

static_files = APIRouter(route_class=PageRoute, include_in_schema=False)
ROUTERS: Final = (
    home.router,
    sign_in.router,
    views.router,
    instances.router,
    schemas.router,
    logs.router,
    me.router,
    rot.router,
    static_files,
)
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def make_site(
    node: Node,
    *,
    closes_node: bool = False,
    importer: ArchiveImporter | None = None,
    rot_policy: Mapping[str, Any] | None = None,
) -> FastAPI:
    """Make the application of a node with its pages.

    `closes_node` and `importer` are those of `make_app`; `rot_policy` is what the settings say of rot, as JSON.
    """
    app = make_app(node, closes_node=closes_node, importer=importer)
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
            return refuse(request, RequestError("request.no-such-route", f"nothing is at {request.url.path[:120]}"))
        return await handle(request, error)

    return on_missing


@cache
def _read(name: str) -> tuple[bytes, str] | None:
    folder = files("inkgrove.pages") / "static"
    found = next((item for item in folder.iterdir() if item.name == name), None)
    if found is None:
        return None
    content = found.read_bytes()
    return content, f'"{sha256(content).hexdigest()[:24]}"'


@static_files.get("/pages/static/{name}")
def show_asset(request: Request, name: str) -> Response:
    """Send a file of the pages, with a tag by which browsers ask if it has changed; else `request.no-such-route`."""
    found = _read(name)
    if found is None:
        raise RequestError("request.no-such-route", f"no file {name[:80]!r} belongs to the pages")
    content, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
