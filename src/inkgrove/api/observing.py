"""The outermost middleware: gives each request an id, logs and counts it, and answers for what goes wrong behind it."""

import re
import time
from itertools import count
from secrets import token_hex
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.api.bodies import first_headers
from inkgrove.api.metrics import Metrics
from inkgrove.api.problems import problem
from inkgrove.node.attempts import network_of
from inkgrove.node.errors import InternalError
from inkgrove.store.query_limit import NETWORK

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    # Pages say what they need themselves; JSON needs nothing.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
log = structlog.get_logger("inkgrove.http")


class Observing:
    """Middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # To ask the system for chance lets go of the interpreter, and a thread that computes keeps it for long.
        self._prefix = token_hex(5)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; never raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = first_headers(scope).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):06x}"
        answer = _Answer(send, request_id)
        NETWORK.set(network_of(scope["client"][0]) if scope.get("client") else "")
        # Not bound_contextvars, which looks through the whole context first.
        before = structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            try:
                await self._app(scope, receive, answer.send)
            except Exception:
                log.exception("internal error", method=scope["method"], path=scope["path"])
                if answer.status is None:
                    mistake = InternalError("something went wrong inside of the node", request_id=request_id)
                    await problem(mistake)(scope, receive, answer.send)
            self._note(scope, answer)
        finally:
            structlog.contextvars.reset_contextvars(**before)

    def _note(self, scope: Scope, answer: "_Answer") -> None:
        status = answer.status or 499  # the client went away before an answer began
        route = getattr(scope.get("route"), "path_format", None) or "none"
        self._metrics.observe(scope["method"], route, status, answer.began_after())
        # The path and nothing behind it: a query can hold a code or a token.
        client = scope["client"][0] if scope.get("client") else None
        milliseconds = round(answer.took() * 1000, 1)
        facts = {
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": milliseconds,
            "client": client,
        }
        if route in ("/healthz", "/readyz", "/metrics"):
            log.debug("request", **facts)
        else:
            log.info("request", **facts)


class _Answer:
    """Adds headers to an answer and remembers how it went."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id
        self._start = time.perf_counter()
        self._began: float | None = None
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._began = self.took()
            self.status = message["status"]
            headers = message["headers"] = list(message.get("headers", ()))
            given = {name.lower() for name, _ in headers}
            headers.append((b"x-request-id", self._request_id.encode()))
            headers += [item for item in _SECURITY_HEADERS if item[0] not in given]
        await self._send(message)

    def took(self) -> float:
        return time.perf_counter() - self._start

    def began_after(self) -> float:
        return self.took() if self._began is None else self._began
