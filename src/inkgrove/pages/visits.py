"""A visit: one request for a page, with the node and the caller; errors become pages too.

Pages take the cookie of a sign-in and nothing else. A visitor who must sign in first is sent to do so, and comes back.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, cast
from urllib.parse import quote

import structlog
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from inkgrove.api.http.auth import check_origin, cookie_name, cookie_of, get_node, is_https
from inkgrove.api.http.problems import forget_frames, note_internal, status_of
from inkgrove.core import parse_public_key
from inkgrove.core.errors import InkgroveError
from inkgrove.node import errors
from inkgrove.node.identity import Caller, authenticate, names_of_authors, show_identity
from inkgrove.node.runtime import Node
from inkgrove.pages.rendering import render

SIGN_IN = "/pages/sign-in"
_SAFE = frozenset({"GET", "HEAD"})
_ADVICE: Mapping[int, tuple[str, str]] = {
    400: ("That cannot be read", "The address or the form says something that this page does not take."),
    403: ("Not for you", "You are signed in, but this belongs to somebody else or needs the administrator."),
    404: (
        "Nothing here",
        "It may have been deleted, or never was, or you may not see it: the node tells no difference.",
    ),
    409: ("That does not fit", "Things have changed since the page was shown. Look again and repeat what you did."),
    429: ("Too many tries", "Wait a little before the next one."),
    500: ("The node made a mistake", "It is not your fault. The node’s log tells more under the id below."),
    503: ("Not right now", "The store cannot be reached, or the node is busy. Try again in a moment."),
}
log = structlog.get_logger("inkgrove.pages")


class Visit:
    """One request for a page; raises `BadToken` for a cookie that is not valid, and for forms of other sites."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.node: Node = get_node(request)
        token = cookie_of(request, self.node)
        if request.method not in _SAFE:
            check_origin(request)
        self.caller: Caller = authenticate(self.node, token)
        identity = self.caller.identity
        self.name = None if identity is None else show_identity(self.node, identity).document.fqdn

    def show(self, template: str, facts: Mapping[str, Any] | None = None, *, status: int = 200) -> HTMLResponse:
        """Render a page, with what the frame around every page needs."""
        around = {
            "me": self.name,
            "is_administrator": self.caller.is_administrator,
            "path": self.request.url.path,
            "now": self.node.clock(),
        }
        return render(template, {**around, **(facts or {})}, status=status)

    def go(self, address: str) -> RedirectResponse:
        """Redirect to another page, which shows what was done."""
        return RedirectResponse(address, 303, {"Cache-Control": "no-store"})


VisitDependency = Annotated[Visit, Depends(Visit)]


def set_cookie(answer: Response, node: Node, name: str, value: str, seconds: int | None) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send along with a form."""
    answer.set_cookie(
        cookie_name(node, name), value, max_age=seconds, path="/", secure=is_https(node), httponly=True, samesite="lax"
    )


def drop_cookie(answer: Response, node: Node, name: str) -> None:
    """Delete a cookie in the browser."""
    answer.delete_cookie(cookie_name(node, name), path="/", secure=is_https(node), httponly=True, samesite="lax")


def local_address(text: str) -> str:
    """Return `text` if it is the path of a page on this node, else `/`."""
    is_local = text.startswith("/") and not text.startswith("//") and text.isprintable() and "\\" not in text
    return text if is_local and len(text) <= 2000 else "/"


class PageRoute(APIRoute):
    """A route whose errors are shown as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler, with its errors turned into pages."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            try:
                return await handle(request)
            except InkgroveError as error:
                return refuse(request, error)
            except RequestValidationError as error:
                places = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors()[:3])
                return refuse(request, errors.RequestError("request.invalid", places))
            except HTTPException:
                raise
            except Exception:
                log.exception("internal error", path=request.url.path)
                return refuse(
                    request, errors.RequestError("request.internal", "something went wrong inside of the node")
                )

        return handle_page


def refuse(request: Request, error: InkgroveError) -> Response:
    """Render an error as a page; if it asks for a sign-in, redirect to the form. The error's traceback is gone then."""
    forget_frames(error)
    node = get_node(request)
    if isinstance(error, errors.SignInRequired | errors.BadToken):
        back = request.url.path if request.method in _SAFE else "/"
        query = f"?{request.url.query}" if request.url.query and request.method in _SAFE else ""
        answer = RedirectResponse(f"{SIGN_IN}?next={quote(back + query, safe='')}", 303, {"Cache-Control": "no-store"})
        if isinstance(error, errors.BadToken):
            drop_cookie(answer, node, "inkgrove")
        return answer
    note_internal(error)
    status = status_of(error)
    title, advice = _ADVICE.get(status, _ADVICE[400] if status < 500 else _ADVICE[503])
    try:
        visit = Visit(request)
        me, is_administrator = visit.name, visit.caller.is_administrator
    except InkgroveError:
        me, is_administrator = None, False
    facts = {
        "me": me,
        "is_administrator": is_administrator,
        "path": request.url.path,
        "title": title,
        "advice": advice,
        "detail": error.public_message,
        "code": error.code,
        "candidates": _candidates(node, error),
        "status": status,
        "request_id": structlog.contextvars.get_contextvars().get("request_id", ""),
    }
    page = render("error.html", facts, status=status)
    if isinstance(retry_after := error.data.get("retry_after"), int):
        page.headers["Retry-After"] = str(retry_after)
    return page


def _candidates(node: Node, error: InkgroveError) -> list[tuple[str, str]]:
    """List the views that an ambiguous name may mean, each with the publisher of its schema."""
    if not isinstance(error, errors.AmbiguousName):
        return []
    texts = cast("list[str]", error.data["candidates"])
    schemas = [(text, parse_public_key(text.partition("/")[0])) for text in texts]
    names = names_of_authors(node, {author for _, author in schemas})
    return [(text, names.get(author, "somebody whose name is not known here")) for text, author in schemas]
