"""The stream of a view's changes as server-sent events, and waiting until views have seen a write.

Each event is a JSON Patch on `{"rows": {...}}`. One look at the database serves all who wait in this process; while
nobody waits there is none.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import CallerDependency, NodeDependency, get_address, get_caller, token_of
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.models import READING, SchemaPath, view_routes
from inkgrove.core.errors import InkgroveError
from inkgrove.node.errors import ViewError
from inkgrove.node.identity import Caller, authenticate
from inkgrove.node.reading import (
    ChangeEvent,
    NewestChanges,
    ViewSubscription,
    event_id,
    parse_position,
    read_changes,
    read_newest,
    subscribe_to_view,
)
from inkgrove.node.runtime import Node

Wanted = Callable[[NewestChanges], bool]
log = structlog.get_logger("inkgrove.node")


class ViewWatch:
    """Tells those who wait when what they wait for has happened."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[asyncio.Future[bool], Wanted] = {}
        self._task: asyncio.Task[None] | None = None
        self._listeners: Counter[str | None] = Counter()

    def enter(self, address: str | None) -> None:
        """One more follows changes, without a token from an address; raises if there are too many.

        Without a token one address has a tenth of the places and all together have half: nobody locks out others.
        """
        most, all_of_them = self._node.settings.max_listeners, self._listeners.total()
        if all_of_them >= most:
            raise ViewError(
                "view.too-many-listeners", "too many follow changes on this node: try again later", retry_after=5
            )
        unknown = all_of_them - self._listeners[None]
        if address is not None and (self._listeners[address] >= max(most // 10, 1) or unknown >= max(most // 2, 1)):
            raise ViewError(
                "view.too-many-listeners", "too many follow changes here without a token: sign in", retry_after=5
            )
        self._listeners[address] += 1

    def leave(self, address: str | None) -> None:
        """One less follows changes."""
        self._listeners[address] -= 1
        if not self._listeners[address]:
            del self._listeners[address]

    async def until(self, wanted: Wanted, seconds: float) -> bool:
        """Wait until something has happened; False if the time ran out or the node stops."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = wanted
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]

    async def _look(self) -> None:
        while self._waiting:
            newest: NewestChanges | None = None
            try:
                newest = await run_in_threadpool(read_newest, self._node)
            except InkgroveError as error:
                log.warning("the views cannot be read", code=error.code, reason=error.message)
            is_stopping = self._node.stopping.is_set()
            for future, wanted in list(self._waiting.items()):
                if not future.done() and (is_stopping or (newest is not None and wanted(newest))):
                    future.set_result(not is_stopping)
            await asyncio.sleep(self._node.settings.poll_seconds)

    async def catch_up(self, token: str | None) -> None:
        """Wait until the views have seen a write; raises if they do not in time."""
        if token is None:
            return
        offset = parse_position(self._node.vault, token)
        seconds = self._node.settings.at_least_seconds
        if not await self.until(lambda newest: newest.progress >= offset, seconds):
            raise ViewError(
                "view.behind",
                f"the views have not seen this write within {seconds:g} seconds: ask again; if it stays so, no pipeline"
                " runs here: `inkgrove up` or `inkgrove materialise --follow` starts one",
                retry_after=1,
            )

    async def close(self) -> None:
        """Let nobody wait any longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def get_watch(request: Request) -> ViewWatch:
    """The one watch of the process."""
    watch = request.app.state.watch
    assert isinstance(watch, ViewWatch)
    return watch


async def catch_up(request: Request, node: Node, token: str | None, at_least: str | None) -> None:
    """Wait until the views have seen the write at a position, if one is given; a bad token is refused before."""
    if at_least is not None:
        await run_in_threadpool(authenticate, node, token)
        await get_watch(request).catch_up(at_least)


router = APIRouter(tags=["views"])

_EVENT: Final = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["change", "reset"]},
        "id": {"type": "string", "description": "What a client that reconnects sends as `Last-Event-ID`."},
        "data": {"type": "string", "description": 'A JSON Patch (RFC 6902) on `{"rows": {...}}`.'},
    },
}
_STREAM: Final[dict[str, Any]] = {
    "response_class": Response,
    "responses": {
        200: {
            "description": "`event: change` with a JSON Patch, or `event: reset`: read the view again.",
            "content": {"text/event-stream": {"schema": _EVENT}},
        },
        **READING,
        **responses("view.too-many-listeners"),
    },
}
LastEventId = Annotated[str | None, Header(max_length=1000, description="The last event that was taken in.")]


@view_routes(router, "/changes", **_STREAM)
async def follow_view(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    schema: SchemaPath,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow the rows that the caller may see, from now on or from behind an event."""
    watch = get_watch(request)
    address = get_address(request) if caller.identity is None else None
    watch.enter(address)
    try:
        followed = await run_in_threadpool(subscribe_to_view, node, caller, schema, last_event_id)
    except BaseException:
        watch.leave(address)
        raise
    return _Stream(_events(request, node, watch, followed), lambda: watch.leave(address))


class _Stream(StreamingResponse):
    """Gives its place free however it ends, also if nobody ever read it."""

    def __init__(self, content: AsyncIterator[str], leave: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, 200, headers, "text/event-stream")
        self._leave = leave

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _events(request: Request, node: Node, watch: ViewWatch, followed: ViewSubscription) -> AsyncIterator[str]:
    def look_again() -> tuple[list[ChangeEvent], ViewSubscription]:
        # A token that was revoked meanwhile opens nothing more.
        caller: Caller = get_caller(request, node, token_of(request, node))
        return read_changes(node, caller, followed)

    if followed.cursor is not None:
        yield _position(node, followed)
    while not node.stopping.is_set():
        try:
            events, followed = await run_in_threadpool(look_again)
        except InkgroveError:
            return
        for event in events:
            yield f"event: {event.name}\nid: {event.id}\ndata: {_compact(event.patch)}\n\n"
        if not await watch.until(_has_news(node, followed), node.settings.heartbeat_seconds):
            yield f": still here\n{_position(node, followed)}"


def _position(node: Node, followed: ViewSubscription) -> str:
    """An id without data: the client notes it, and no event is dispatched."""
    return "" if followed.cursor is None else f"id: {event_id(node, followed.cursor)}\n\n"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _has_news(node: Node, followed: ViewSubscription) -> Any:
    place, expiry = followed.cursor, followed.expiry

    def wanted(newest: NewestChanges) -> bool:
        if place is None or newest.seen > place.seen:
            return True
        if newest.changes.get(place.view) != (place.generation, place.change):
            return place.generation > 0 or place.view in newest.changes
        return expiry is not None and node.clock() >= expiry

    return wanted
