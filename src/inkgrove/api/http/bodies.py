"""Reads bodies within limits of size, time and form, before any route sees them."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fastapi import params
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.api.http.formats import MAX_VALUES, first_headers, is_json, media_type_in, parse_json
from inkgrove.api.http.limits import MemoryBudget, TransferTimeout
from inkgrove.api.http.problems import RequestProblem, problem
from inkgrove.core.errors import InkgroveError, make_error
from inkgrove.federation.peers import DOCUMENTS_PATH, MAX_NOTICE_BYTES
from inkgrove.federation.replication import ENTRIES_PATH, OWN_ENTRIES_PATH
from inkgrove.federation.replication import FORK_PROOFS_PATH as FORKS
from inkgrove.federation.sharing import DELIVERIES_PATH as DELIVERIES
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import network_of
from inkgrove.node.settings import NodeSettings

BLOBS: Final = "/blobs"
_FILE: Final = re.compile("/identities/arrivals/[^/]+/file")
_FROM_NODES: Final = "/federation/"
_MIB: Final = 1024 * 1024
_OF_NODES: Final = 4096
"""The size of a body below `/federation/`, where nothing else is said: anybody may send one."""
_LARGER: Final = {ENTRIES_PATH: _MIB, OWN_ENTRIES_PATH: _MIB, DOCUMENTS_PATH: MAX_NOTICE_BYTES}
_SMALL: Final = 64 * 1024
"""Up to this size a body is read for anybody, and JSON checked where we are: a thread costs more."""
_MOST_ADMITTED: Final = 256 * _MIB
_MOST_ADMITTED_OF_NETWORK: Final = 96 * _MIB
_MOST_OF_NODES: Final = 192 * _MIB
_MOST_OF_NODES_OF_NETWORK: Final = 64 * _MIB
_VALUE_BYTES: Final = 128
"""About what a value of a JSON body takes in memory."""
_CHARACTER_BYTES: Final = 4
"""What a character takes if one of its text is beyond U+FFFF."""
VALUES: Final = "inkgrove.json_values"
"""Under this key the scope of a request has the number of values in its JSON body, about."""
_PARSED: Final = "inkgrove.json"
_BODY: Final = "inkgrove.body"
_PARSERS: Final = ThreadPoolExecutor(1, "parsing")
"""Reads large JSON bodies one after another: several at once take no less time, and the interpreter from all others."""


class BodyLimits:
    """Middleware: refuses bodies that are too large, too slow or, if they are JSON and no blob, not strict.

    More than 64 KiB is read only for those whom `admit` does not refuse. Blobs, and parts of the file of somebody who
    comes here, are none of this, as they are not kept in memory, and their routes ask for a token themselves; requests
    of other nodes neither, whose signature is over the body: these are small but for deliveries, and JSON is not read
    where no route takes it. What is in memory at a time is bounded for those who are admitted and, apart from them, for
    other nodes, and for each network.
    """

    def __init__(self, app: ASGIApp, settings: NodeSettings, admit: Callable[[Scope], Awaitable[None]]) -> None:
        self._app = app
        self._settings = settings
        self._admit = admit
        what = "reads too many large bodies"
        self._of_admitted = MemoryBudget(_MOST_ADMITTED, _MOST_ADMITTED_OF_NETWORK, what)
        self._of_nodes = MemoryBudget(_MOST_OF_NODES, _MOST_OF_NODES_OF_NETWORK, what)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a problem, or pass on a body that is read within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            receive = await self._guarded(scope, receive)
        except (RequestProblem, InkgroveError) as refused:
            if (body := scope.pop(_BODY, None)) is not None:
                body.forget()
            await problem(refused.error if isinstance(refused, RequestProblem) else refused)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if (body := scope.pop(_BODY, None)) is not None:
                body.forget()

    async def _guarded(self, scope: Scope, receive: Receive) -> Receive:
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise RequestError("request.bad-address", "the address contains U+0000")
        # The server refuses a head that goes on and on; one that came in a single piece is measured here.
        limit = self._settings.max_header_bytes
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) + len(scope["raw_path"]) > limit:
            raise RequestError(
                "request.head-too-large", f"the head of a request has at most {limit:,} bytes here", limit=limit
            )
        headers = first_headers(scope)
        length = headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in headers:
            return receive
        path, media_type = scope["path"], media_type_in(headers)
        is_from_node = path.startswith(_FROM_NODES)
        if is_from_node and is_json(media_type) and path != FORKS:
            raise RequestError(
                "request.unsupported-media-type", f"the body is {media_type[:80]}, which nothing at this address takes"
            )
        body = _Body(receive, self._limit(path), self._settings.body_seconds)
        if length is not None and int(length) > body.limit.size:
            raise body.limit.error()
        # A blob is bytes, whatever they are called: they are neither looked into nor collected. So are parts of files.
        if path == BLOBS or _FILE.fullmatch(path) is not None:
            return body.receive
        scope[_BODY] = body
        body.memory = self._of_nodes if is_from_node else self._of_admitted
        body.host = scope["client"][0] if scope.get("client") else ""
        if not is_from_node:
            if length is not None and int(length) > _SMALL:
                await self._admit(scope)
            else:
                body.admit = lambda: self._admit(scope)
        if not is_json(media_type):
            return body.receive
        content = await body.read()
        if content:
            if len(content) <= _SMALL:
                parsed, scope[VALUES] = parse_json(content)
            else:
                body.hold_parsed(content)
                loop = asyncio.get_running_loop()
                parsed, scope[VALUES] = await loop.run_in_executor(_PARSERS, parse_json, content)
            if media_type.endswith("+json"):  # a patch; what is of another type is read by a model
                scope[_PARSED] = parsed
        return _Replay(content, receive).receive

    def _limit(self, path: str) -> "_Limit":
        if path == BLOBS:
            return _Limit(self._settings.max_blob_bytes, "blob.too-large", "a blob")
        if path.startswith(_FROM_NODES) and path != DELIVERIES:
            return _Limit(_LARGER.get(path, _OF_NODES), "request.too-large", "a body at this address")
        return _Limit(self._settings.max_body_bytes, "request.too-large", "a body")


class _Limit:
    def __init__(self, size: int, code: str, what: str) -> None:
        self.size, self._code, self._what = size, code, what

    def error(self) -> InkgroveError:
        return make_error(self._code, f"{self._what} has at most {self.size:,} bytes here", limit=self.size)


class _Body:
    """A body that is counted and timed while it comes in."""

    def __init__(self, receive: Receive, limit: _Limit, seconds: int) -> None:
        self._receive, self.limit, self._timeout = receive, limit, TransferTimeout(seconds)
        self.memory: MemoryBudget | None = None
        self.host = ""
        self.admit: Callable[[], Awaitable[None]] | None = None
        """Called before more than a little is read; raises if that is not for whoever sends it."""
        self._held = 0
        self._size = 0
        self._is_whole = False

    async def receive(self) -> Message:
        if self._is_whole:  # what comes now is the end of the connection
            return await self._receive()
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout.left):
                message = await self._receive()
        except TimeoutError:
            raise RequestProblem(RequestError("request.too-slow", "the body came too slowly")) from None
        size = len(message.get("body", b""))
        self._timeout.advance(time.monotonic() - began, size)
        self._size += size
        if self._size > self.limit.size:
            raise RequestProblem(self.limit.error())
        if self._size > _SMALL:
            await self._look_who_sends_so_much()
        self._is_whole = not message.get("more_body", False)
        return message

    async def _look_who_sends_so_much(self) -> None:
        try:
            if self.admit is not None:
                admit, self.admit = self.admit, None
                await admit()
            if self.memory is not None:
                self.memory.take(network_of(self.host), self._size - self._held)
                self._held = self._size
        except InkgroveError as error:
            raise RequestProblem(error) from error

    def hold_parsed(self, content: bytes) -> None:
        """Count what the body will take beside itself once it is read as JSON: its values, and wide characters."""
        if self.memory is not None:
            size = min(MAX_VALUES, content.count(b",")) * _VALUE_BYTES
            if not content.isascii() or b"\\u" in content:
                size += len(content) * _CHARACTER_BYTES
            self.memory.take(network_of(self.host), size)
            self._held += size

    async def read(self) -> bytes:
        parts = []
        while not self._is_whole:
            message = await self.receive()
            parts.append(message.get("body", b""))
        return b"".join(parts)

    def forget(self) -> None:
        """The request has been answered: what was read of it is not in memory any more."""
        if self.memory is not None and self._held:
            self.memory.give_back(network_of(self.host), self._held)
            self._held = 0


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


async def take_body(request: Request) -> bytes:
    """Return a body that nothing else keeps: `request.body()` keeps it in memory as long as the request."""
    return b"".join([chunk async for chunk in request.stream()])


def parsed_body(request: Request) -> Any:
    """Return the JSON value of a body whose media type ends with `+json`, which was read already; None if it is empty.

    It can be taken once: whoever does not need it any longer lets go of it.
    """
    return request.scope.pop(_PARSED, None)


def media_types_of(route: APIRoute) -> set[str]:
    """The media types of the bodies that a route takes; none if it takes no body."""
    extra = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    if route.body_field is None:
        return set(extra)
    info = route.body_field.field_info
    own = info.media_type if isinstance(info, params.Body) else "application/json"
    return {own, *extra}
