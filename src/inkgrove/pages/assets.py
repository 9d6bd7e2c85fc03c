"""The few files that pages load: one style sheet, small scripts, an icon."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request, Response

from inkgrove.node.errors import NoSuchRoute
from inkgrove.pages.visits import PageRoute

router = APIRouter(route_class=PageRoute, include_in_schema=False)
TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _read(name: str) -> tuple[bytes, str] | None:
    folder = files("inkgrove.pages") / "static"
    found = next((item for item in folder.iterdir() if item.name == name), None)
    if found is None:
        return None
    content = found.read_bytes()
    return content, f'"{sha256(content).hexdigest()[:24]}"'


@router.get("/pages/static/{name}")
def show_asset(request: Request, name: str) -> Response:
    """A file of ours; browsers ask each time whether it has changed."""
    found = _read(name)
    if found is None:
        raise NoSuchRoute(f"no file {name[:80]!r} belongs to the pages")
    content, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=TYPES[name.rpartition(".")[2]])
