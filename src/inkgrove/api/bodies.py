"""Reads bodies within limits of size, time and form, before any route sees them."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from fastapi import params
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.api.problems import RequestProblem, problem
from inkgrove.api.strict_json import check_json
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.fork_proofs import PATH as FORKS
from inkgrove.node.errors import (
    BadAddress,
    BlobTooLarge,
    HeadTooLarge,
    RequestTooLarge,
    RequestTooSlow,
    UnsupportedMediaType,
)
from inkgrove.node.settings import NodeSettings

BLOBS: Final = "/blobs"
_PROOF_BYTES: Final = 4096
"""Two entries need less; whoever brings them is not known."""
_LEAST_RATE: Final = 16 * 1024
_SMALL: Final = 64 * 1024
"""Up to this size JSON is checked where we are: a thread costs more."""


class BodyLimits:
    """Middleware: refuses bodies that are too large, too slow or, if they are JSON and no blob, not strict."""

    def __init__(self, app: ASGIApp, settings: NodeSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a problem, or pass on a body that is read within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            receive = await self._guarded(scope, receive)
        except RequestProblem as refused:
            await problem(refused.error)(scope, receive, send)
            return
        except InkgroveError as error:
            await problem(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive) -> Receive:
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise BadAddress("the address contains U+0000")
        # The server refuses a head that goes on and on; one that came in a single piece is measured here.
        limit = self._settings.max_header_bytes
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) + len(scope["raw_path"]) > limit:
            raise HeadTooLarge(f"the head of a request has at most {limit:,} bytes here", limit=limit)
        headers = first_headers(scope)
        length = headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in headers:
            return receive
        body = _Body(receive, self._limit(scope["path"]), self._settings.body_seconds)
        if length is not None and int(length) > body.limit.size:
            raise body.limit.error()
        # A blob is bytes, whatever they are called: they are neither looked into nor collected.
        if scope["path"] == BLOBS or not is_json(_media_type(headers)):
            return body.receive
        content = await body.read()
        if content:
            if len(content) > _SMALL:
                await run_in_threadpool(check_json, content)
            else:
                check_json(content)
        return _Replay(content, receive).receive

    def _limit(self, path: str) -> "_Limit":
        if path == BLOBS:
            return _Limit(self._settings.max_blob_bytes, BlobTooLarge, "a blob")
        if path == FORKS:
            return _Limit(_PROOF_BYTES, RequestTooLarge, "a proof")
        return _Limit(self._settings.max_body_bytes, RequestTooLarge, "a body")


class _Limit:
    def __init__(self, size: int, kind: type[InkgroveError], what: str) -> None:
        self.size, self._kind, self._what = size, kind, what

    def error(self) -> InkgroveError:
        return self._kind(f"{self._what} has at most {self.size:,} bytes here", limit=self.size)


class _Body:
    """A body that is counted and timed while it comes in."""

    def __init__(self, receive: Receive, limit: _Limit, seconds: int) -> None:
        self._receive, self.limit, self._seconds = receive, limit, seconds
        self._size = 0
        self._start = time.monotonic()
        self._is_whole = False

    async def receive(self) -> Message:
        if self._is_whole:  # what comes now is the end of the connection
            return await self._receive()
        until = self._start + self._seconds + self._size / _LEAST_RATE
        try:
            async with asyncio.timeout(until - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise RequestProblem(RequestTooSlow("the body came too slowly")) from None
        self._size += len(message.get("body", b""))
        if self._size > self.limit.size:
            raise RequestProblem(self.limit.error())
        self._is_whole = not message.get("more_body", False)
        return message

    async def read(self) -> bytes:
        parts = []
        while not self._is_whole:
            message = await self.receive()
            parts.append(message.get("body", b""))
        return b"".join(parts)


class _Replay:
    """A body that was read already, then the rest of the connection."""

    def __init__(self, content: bytes, receive: Receive) -> None:
        self._content: bytes | None = content
        self._receive = receive

    async def receive(self) -> Message:
        if self._content is None:
            return await self._receive()
        message = {"type": "http.request", "body": self._content, "more_body": False}
        self._content = None
        return message


def first_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request as they came; of several with one name the first, as for the routes behind."""
    return dict(reversed(scope["headers"]))


def media_type_of(request: Request) -> str:
    """The media type of a body without its parameters; empty if there is none."""
    return _media_type(first_headers(request.scope))


def _media_type(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Whether a body of this type is JSON."""
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


async def check_media_type(request: Request) -> None:
    """A dependency of every route: refuse a body of a type that the route does not document."""
    route = request.scope.get("route")
    headers = request.headers
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if not has_body or not isinstance(route, APIRoute):
        return
    taken = media_types_of(route)
    given = media_type_of(request)
    if taken and "*/*" not in taken and given not in taken:
        raise UnsupportedMediaType(f"the body is {given[:80] or 'of no type'}; this takes {' or '.join(sorted(taken))}")


def media_types_of(route: APIRoute) -> set[str]:
    """The media types of the bodies that a route takes; none if it takes no body."""
    extra = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    if route.body_field is None:
        return set(extra)
    info = route.body_field.field_info
    own = info.media_type if isinstance(info, params.Body) else "application/json"
    return {own, *extra}
