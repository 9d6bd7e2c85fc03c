"""Answers that may be large or take long to make: few are made at a time, and few bytes of them wait to be sent.

A question of a hundred bytes may be answered by 16 MiB (`node.max_past_bytes`), which take several times as much while
they are made. So all routes with such answers share two threads and one budget of memory. Who finds them taken waits
on the event loop for a moment, the network with the least under way first, and is then refused.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from weakref import finalize

import orjson
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from inkgrove.api.http.limits import FairThreadPool, MemoryBudget, PoolLimits
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import network_of

_MIB: Final = 1024 * 1024
MOST_BYTES: Final = 128 * _MIB
MOST_OF_NETWORK: Final = 64 * _MIB
"""Of answers that were made and are not sent yet."""
THREADS: Final = 2
MOST_WAITING: Final = 64
MOST_WAITING_OF_NETWORK: Final = 32
WAIT_SECONDS: Final = 3.0
_SMALL: Final = 64 * 1024
"""Up to this size an answer is sent in one piece and not counted."""
_PIECE: Final = 256 * 1024


class LargeAnswers:
    """Makes large answers within bounds; one for each application, used on its event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, "large-answers")
        bounds = PoolLimits(
            threads=THREADS,
            waiting=MOST_WAITING,
            waiting_of_network=MOST_WAITING_OF_NETWORK,
            seconds=WAIT_SECONDS,
        )
        self._threads = FairThreadPool(self._executor, bounds, _refusal)
        self._memory = MemoryBudget(MOST_BYTES, MOST_OF_NETWORK, "sends too many large answers")

    async def make(self, request: Request, work: Callable[..., Response], *arguments: Any) -> Response:
        """Run `work`, which makes an answer, in a thread.

        Raises `request.too-much-at-once` if too much is under way, in all or for the network that asks.
        """
        network = network_of(request.client.host if request.client is not None else "")
        answer = await self._threads.run(network, work, *arguments, is_gone=request.is_disconnected)
        size = len(answer.body)
        if size <= _SMALL:
            return answer
        self._memory.take(network, size)
        return _InPieces(answer, partial(self._memory.give_back, network, size))

    def close(self) -> None:
        """Let the threads end."""
        self._executor.shutdown(wait=False)


def _refusal() -> RequestError:
    return RequestError(
        "request.too-much-at-once", "the node makes too many large answers at this moment: try again", retry_after=5
    )


class _InPieces(Response):
    """An answer that is handed to the connection piece by piece, as it is read: then it is known when it has gone."""

    def __init__(self, made: Response, at_end: Callable[[], None]) -> None:
        self.status_code, self.raw_headers, self.body = made.status_code, made.raw_headers, made.body
        self.background = made.background
        self._give_back = finalize(self, at_end)  # once: after it was sent, or when it is dropped unsent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; at the end, or if it cannot be sent, its memory is given back."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            body = bytes(self.body)
            for start in range(0, len(body), _PIECE):
                piece = body[start : start + _PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": start + _PIECE < len(body)})
        finally:
            self._give_back()


def large_answers_of(request: Request) -> LargeAnswers:
    """Those of the application."""
    found = request.app.state.large_answers
    assert isinstance(found, LargeAnswers)
    return found


async def make_large(request: Request, work: Callable[..., Response], *arguments: Any) -> Response:
    """The answer of `work`, made within the bounds of the application."""
    return await large_answers_of(request).make(request, work, *arguments)


def json_answer(document: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document that holds nothing but what JSON has."""
    try:
        return Response(orjson.dumps(document), status, headers, "application/json")
    except TypeError:  # integers of more than 64 bits, which the writer does not know
        return JSONResponse(document, status, headers)
