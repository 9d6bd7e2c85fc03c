"""Metrics for Prometheus, structured logs without secrets, and the middleware that logs and counts every request.

With several processes, prometheus-client keeps the counters in files of a directory that `PROMETHEUS_MULTIPROC_DIR`
names (set by `inkgrove serve`), so that whichever process is asked tells the sum.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Iterator, MutableMapping
from itertools import count
from secrets import token_hex
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.api.http.formats import first_headers
from inkgrove.api.http.problems import problem
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import ACCESS, CODE, REFRESH, SESSION, network_of
from inkgrove.node.reading import read_state
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import NETWORK

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one application."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "inkgrove_http_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "inkgrove_http_request_seconds",
            "Time until the answer began.",
            ["method", "route"],
            registry=self._registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.connections = Gauge(
            "inkgrove_http_connections", "Open connections.", registry=self._registry, multiprocess_mode="livesum"
        )
        self.ended = Counter(
            "inkgrove_http_connections_ended",
            "Connections that were dropped while idle, or refused, because there were too many.",
            ["what"],
            registry=self._registry,
        )
        self._kept: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the pattern of its address, so that there are few of them."""
        key = (method if method in _METHODS else "other", route, status)
        kept = self._kept.get(key)
        if kept is None:  # to find them by their labels takes longer than to count
            kept = self._kept[key] = (self.requests.labels(key[0], route, str(status)), self.seconds.labels(*key[:2]))
        count, times = kept
        count.inc()
        times.observe(seconds)

    def render(self) -> bytes:
        """Everything as Prometheus reads it."""
        registry = self._registry
        if os.environ.get(DIRECTORY_VARIABLE):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        asked = CollectorRegistry()
        asked.register(_StateCollector(self._node))
        return generate_latest(registry) + generate_latest(asked)


class _StateCollector(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        state = read_state(self._node)
        for name, about, value in (
            ("entries", "Entries held.", state.entries),
            ("store_position", "The newest ingest position.", state.position),
            ("view_position", "The ingest position that the views have reached.", state.view_position),
            ("view_lag", "Positions that are not in the views yet.", state.lag),
            ("blobs", "Blobs held.", state.blobs),
            ("blob_bytes", "Bytes of the blobs held.", state.blob_bytes),
        ):
            yield GaugeMetricFamily(f"inkgrove_{name}", about, value)


_SECRETS: Final = frozenset(
    {"authorization", "password", "token", "access_token", "refresh_token", "secret", "client_secret", "cookie"}
    | {"code_verifier"}
)
_ERROR_CODE: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9-]+)+")
_OWN_TOKEN: Final = re.compile(rf"({'|'.join((SESSION, ACCESS, REFRESH, CODE))})\w+", re.ASCII)
_HIDDEN: Final = "***"


def configure_logs(settings: NodeSettings) -> None:
    """Send everything that this process logs to standard error, also what libraries log."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    is_json = settings.log_format == "json"
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.log_level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    ending: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if is_json
        else [
            show_unprintable,
            # Plain tracebacks: the fancy ones print local variables, and those hold secrets.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=12
            ),
        ]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending, hide_tokens],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    # Requests are logged by us, with their id; httpx would log whole addresses.
    for name in ("uvicorn.access", "httpx", "httpcore", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def show_unprintable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Spell out what would move the cursor, begin a line or turn the text around: a path can hold any of it."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in value)
    return event


def hide_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask what is named like a secret, wherever it comes from; a `code` unless it is that of an error."""
    for name, value in event.items():
        lower = name.lower()
        if lower in _SECRETS or (lower == "code" and _ERROR_CODE.fullmatch(str(value)) is None):
            event[name] = _HIDDEN
    return event


def hide_tokens(_logger: object, _method: str, line: Any) -> str:
    """Mask tokens and codes of this node wherever they stand in a finished line, such as in a path or a traceback."""
    assert isinstance(line, str)
    return _OWN_TOKEN.sub(rf"\1{_HIDDEN}", line) if "ink_" in line else line


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


class RequestLog:
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
                    mistake = RequestError(
                        "request.internal", "something went wrong inside of the node", request_id=request_id
                    )
                    await problem(mistake)(scope, receive, answer.send)
            self._note(scope, answer)
        finally:
            structlog.contextvars.reset_contextvars(**before)

    def _note(self, scope: Scope, answer: "_Answer") -> None:
        status = answer.status or 499  # the client went away before an answer began
        route = getattr(scope.get("route"), "path_format", None) or "none"
        self._metrics.observe(scope["method"], route, status, answer.began_after())
        # The path and nothing behind it: a query can hold a code or a token. A grant moves an identity.
        client = scope["client"][0] if scope.get("client") else None
        milliseconds = round(answer.took() * 1000, 1)
        facts = {
            "method": scope["method"],
            "path": route if "{grant}" in route else scope["path"],
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
