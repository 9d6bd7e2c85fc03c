"""The stream of a view's changes as server-sent events; each is a JSON Patch on `{"rows": {...}}`."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from inkgrove.api.auth import CallerDependency, NodeDependency, get_address, get_caller, token_of
from inkgrove.api.problems import responses
from inkgrove.api.views import READING, AuthorPath, LogPath, SchemaPath, get_watch
from inkgrove.api.watch import Watch
from inkgrove.core.errors import InkgroveError
from inkgrove.node.caller import Caller
from inkgrove.node.changes import ChangeEvent, Followed, Newest, event_id, follow, read_changes
from inkgrove.node.errors import TooManyListeners
from inkgrove.node.node import Node

router = APIRouter(tags=["views"])

_STREAM: Final[dict[str, Any]] = {
    "response_class": Response,
    "responses": {
        200: {
            "description": "`event: change` with a JSON Patch, or `event: reset`: read the view again.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **READING,
        **responses(TooManyListeners),
    },
}
LastEventId = Annotated[str | None, Header(max_length=1000, description="The last event that was taken in.")]


@router.get("/views/{schema}/changes", **_STREAM)
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
        followed = await run_in_threadpool(follow, node, caller, schema, last_event_id)
    except BaseException:
        watch.leave(address)
        raise
    return _Stream(_events(request, node, watch, followed), lambda: watch.leave(address))


@router.get("/views/{author}/{log_id:int}/changes", **_STREAM)
async def follow_view_of_schema(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    author: AuthorPath,
    log_id: LogPath,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow the rows that the caller may see, from now on or from behind an event."""
    return await follow_view(request, node, caller, f"{author}/{log_id}", last_event_id)


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


async def _events(request: Request, node: Node, watch: Watch, followed: Followed) -> AsyncIterator[str]:
    def look_again() -> tuple[list[ChangeEvent], Followed]:
        # A token that was revoked meanwhile opens nothing more.
        caller: Caller = get_caller(node, token_of(request, node))
        return read_changes(node, caller, followed)

    if followed.place is not None:
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


def _position(node: Node, followed: Followed) -> str:
    """An id without data: the client notes it, and no event is dispatched."""
    return "" if followed.place is None else f"id: {event_id(node, followed.place)}\n\n"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _has_news(node: Node, followed: Followed) -> Any:
    place, expiry = followed.place, followed.expiry

    def wanted(newest: Newest) -> bool:
        if place is None or newest.seen > place.seen:
            return True
        if newest.changes.get(place.view) != (place.generation, place.change):
            return place.generation > 0 or place.view in newest.changes
        return expiry is not None and node.clock() >= expiry

    return wanted
