"""Serves a node: one process, or several that share a socket; stops without cutting a request off."""

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from inkgrove.api.http.connections import Connections, StallTimer, raise_file_limit
from inkgrove.api.http.problems import problem
from inkgrove.api.http.telemetry import DIRECTORY_VARIABLE, configure_logs
from inkgrove.core.errors import InkgroveError
from inkgrove.node.errors import RequestError, ServeError
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings


class MakeApp(Protocol):
    """Makes the application of a node: the API alone, or with whatever stands on it."""

    def __call__(self, node: Node, *, closes_node: bool) -> FastAPI:
        """The application, which closes the node at its end if told so."""


def serve(
    place: Path | str,
    settings: NodeSettings,
    home: Path,
    make: MakeApp,
    has_port: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal; returns when every request under way has been answered and the stores are closed.

    `has_port` is called once the port is ours: whatever answers there from now on is this node.
    """
    configure_logs(settings)
    raise_file_limit()
    # uvicorn raises the signal that stopped it once more at its end: it has done its work by then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with _listen(settings) as listener:
        has_port()
        if settings.workers <= 1:
            uvicorn.Server(make_config(open_app(place, settings, home, make), settings)).run(sockets=[listener])
            return
        # Opened once here: an error that no process could get over ends the command with its code.
        Node(place, settings, home=home).close()
        open_one = partial(open_app, place, settings, home, make)
        with tempfile.TemporaryDirectory(prefix="inkgrove-metrics-") as directory:
            os.environ[DIRECTORY_VARIABLE] = directory  # the processes inherit it, before they load the library
            Multiprocess(make_config(open_one, settings), sockets=[listener]).run()


def open_app(place: Path | str, settings: NodeSettings, home: Path, make: MakeApp) -> FastAPI:
    """The application of a node of its own, as each serving process makes it."""
    configure_logs(settings)
    app = make(Node(place, settings, home=home), closes_node=True)
    tune_garbage_collection()
    sys.setswitchinterval(_SWITCH_SECONDS)
    return app


def make_config(app: FastAPI | Callable[[], FastAPI], settings: NodeSettings) -> uvicorn.Config:
    """How uvicorn is to serve the application, or what a function makes."""
    connections = Connections(settings)
    return uvicorn.Config(
        app,
        factory=not isinstance(app, FastAPI),
        host=settings.host,
        port=settings.port,
        workers=max(1, settings.workers),
        http=partial(_Protocol, settings, connections),  # type: ignore[arg-type]
        backlog=connections.queue,
        proxy_headers=False,  # it would believe whatever runs on this machine: see ProxyHeaders
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_START_SECONDS,
    )


_START_SECONDS: Final = 60
"""How long a process may take to start or to answer its parent; a busy machine takes more than uvicorn's five."""
_SWITCH_SECONDS: Final = 0.001
"""How long a thread that computes keeps the interpreter when another one wants it; Python's default is five times that.

The event loop gives it away with every piece that it reads from a connection, and waits that long to get it back.
"""
_GATHERED_BYTES: Final = 16 * 1024
_LAST_SECONDS: Final = 30.0
"""How long the end of an answer may wait to be read once the connection is to be closed."""
_ADVICE_ON_PORT: Final = "end what listens there, or choose another with --port or the setting node.port"
_ADVICE_ON_HOST: Final = "choose an address of this machine with --host or the setting node.host"


def _listen(settings: NodeSettings) -> socket.socket:
    where = f"{settings.host} port {settings.port}"
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as err:
        raise ServeError(
            "serve.port-taken", f"the node cannot listen on {where} ({err.strerror}): {_ADVICE_ON_HOST}"
        ) from err
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.set_inheritable(True)
    except OSError as err:
        listener.close()
        advice = _ADVICE_ON_PORT if err.errno in (errno.EADDRINUSE, errno.EACCES) else _ADVICE_ON_HOST
        raise ServeError("serve.port-taken", f"the node cannot listen on {where} ({err.strerror}): {advice}") from err
    return listener


class _Gathering:
    """A transport that sends what is written in one turn of the loop at once: uvicorn writes head and body apart."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _GATHERED_BYTES:  # the transport must be able to say that the client does not keep up
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():  # it would stay open for as long as nobody reads
            self._loop.call_later(_LAST_SECONDS, self._transport.abort)

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(b"".join(parts))


class _Protocol(HttpToolsProtocol):
    """uvicorn's, with bounds that it does not have: on connections, on size and time of a head, on unread answers."""

    def __init__(self, settings: NodeSettings, connections: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings = settings
        self._connections = connections
        self._stall = StallTimer(settings.body_seconds, self._unsent, self.drop)
        if connections.metrics is None:
            connections.metrics = cast(Any, self.app).state.metrics
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathering(transport, self.loop)))
        if self._connections.add(self, self.client[0] if self.client is not None else "", self.loop):
            self._wait_for_head()
        else:
            self._refuse(
                RequestError(
                    "request.too-many-connections", "there are too many connections: try again later", retry_after=5
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._stall.stop(self.loop)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._is_between_requests():
            self._wait_for_head()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self._settings.max_header_bytes:
                limit = self._settings.max_header_bytes
                self._refuse(
                    RequestError(
                        "request.head-too-large", f"the head of a request has at most {limit:,} bytes here", limit=limit
                    )
                )

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._connections.begin_request(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete:
            self._connections.end_request(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.loop)

    def resume_writing(self) -> None:
        self._stall.stop(self.loop)
        super().resume_writing()

    def drop(self) -> None:
        """End the connection at once, whatever waits to be sent."""
        self.transport.abort()

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def _is_between_requests(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete and not self.cycle.more_body

    def _wait_for_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._settings.body_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if self._head_bytes:
            self._refuse(RequestError("request.too-slow", "the head of the request came too slowly"))
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what uvicorn cannot read as HTTP, such as an address of 70,000 letters, in our own form."""
        self._refuse(RequestError("request.invalid", msg))

    def _refuse(self, error: InkgroveError) -> None:
        self._stop_waiting()
        answer = problem(error)
        if not self.transport.is_closing():
            head = [f"HTTP/1.1 {answer.status_code} Refused", "connection: close"]
            head += [f"{name.decode()}: {value.decode()}" for name, value in answer.raw_headers]
            self.transport.write("\r\n".join([*head, "", ""]).encode() + bytes(answer.body))
            self.transport.close()


_ALLOCATIONS: Final = 50_000
"""A batch of 1,000 entries makes about as many objects; the default of 700 looks through them dozens of times."""


def tune_garbage_collection() -> None:
    """Leave alone what was there at the start, and look through the rest less often; once, when a node serves."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)
