"""The HTTP application: every route over one node, behind the middleware that all share."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import FrameType
from typing import Final

import structlog
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from inkgrove import __version__
from inkgrove.api.http.answers import LargeAnswers
from inkgrove.api.http.auth import require_good_token
from inkgrove.api.http.bodies import BodyLimits
from inkgrove.api.http.connections import ProxyHeaders, TrustedProxies
from inkgrove.api.http.dispatch import Dispatcher
from inkgrove.api.http.middleware import AccessRecorder, CorsHeaders, HeadAndOptions
from inkgrove.api.http.openapi import set_openapi
from inkgrove.api.http.problems import on_error, on_http_error
from inkgrove.api.http.telemetry import Metrics, RequestLog
from inkgrove.api.oauth import ROUTERS as OAUTH
from inkgrove.api.routes import ROUTERS as ROUTES
from inkgrove.api.routes.changes import ViewWatch
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.federation import Federation
from inkgrove.federation.replication import ArchiveImporter
from inkgrove.node.blobs import CollectedBlobs, collect_if_alone, update_blob_references
from inkgrove.node.identity import bind_administrators
from inkgrove.node.identity import sessions as passwords
from inkgrove.node.moving import Departures
from inkgrove.node.person_file import Exports
from inkgrove.node.publishing import Writer
from inkgrove.node.runtime import Node, erase_due

ROUTERS: Final = (*ROUTES, *OAUTH)
_EXPORTS_SECONDS: Final = 60.0
log = structlog.get_logger("inkgrove.node")


def make_app(node: Node, *, closes_node: bool = False, importer: ArchiveImporter | None = None) -> FastAPI:
    """The application of a node, which the caller closes unless the application does so at its end.

    `importer` takes in archives of what peers have; without one, the node replicates in batches only.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        _tell_when_stopping(node)
        await asyncio.to_thread(passwords.prepare_password_check)
        app.state.federation = Federation(node, importer)
        work = (
            _collect_blobs(node),
            _erase(node),
            _tidy_exports(app.state.exports.tidy, app.state.departures.tidy),
            app.state.federation.run(),
        )
        tasks = [asyncio.create_task(item) for item in work]
        try:
            yield
        finally:
            # Every request has been answered by now.
            node.stopping.set()
            await app.state.watch.close()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await app.state.federation.close()
            if closes_node:
                node.close()

    app = FastAPI(
        title="Inkgrove node",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # an address is right or a 404
        telemetry={"tracing": False, "metrics": False, "logs": False},  # we log and count ourselves: see Observing
        lifespan=lifespan,
    )
    bind_administrators(node)
    app.state.node = node
    app.state.writer = Writer(node)
    node.call_at_close(app.state.writer.close)
    app.state.exports = Exports(node)
    node.call_at_close(app.state.exports.close)
    app.state.departures = Departures(node)
    node.call_at_close(app.state.departures.close)
    app.state.large_answers = LargeAnswers()
    node.call_at_close(app.state.large_answers.close)
    app.state.metrics = Metrics(node)
    app.state.watch = ViewWatch(node)
    app.add_exception_handler(InkgroveError, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    for router in ROUTERS:
        app.include_router(router)
    set_openapi(app, ROUTERS)
    # The last one added is the outermost; this one is the innermost, so whatever looks at requests sees its own too.
    app.add_middleware(Dispatcher, routers=ROUTERS)
    app.add_middleware(AccessRecorder, access_log=node.access_log)
    app.add_middleware(BodyLimits, settings=node.settings, admit=partial(require_good_token, node))
    app.add_middleware(HeadAndOptions, routes=app.router.routes)
    app.add_middleware(
        CorsHeaders,
        allow_origins=node.settings.cors_origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=["ETag", "Content-Range", "Location", "Retry-After", "X-Request-Id"],
        max_age=600,
    )
    app.add_middleware(RequestLog, metrics=app.state.metrics)
    proxies = TrustedProxies(node.settings.trusted_proxies)
    if proxies:
        app.add_middleware(ProxyHeaders, proxies=proxies)
    return app


async def _collect_blobs(node: Node) -> None:
    """Find references that an older version has not noted, then collect what is unused again and again."""
    period = node.settings.blob_collection_seconds
    work: Callable[[Node], CollectedBlobs | None] = update_blob_references
    while True:
        try:
            collected = await asyncio.to_thread(work, node)
            if collected is not None and (collected.blobs or collected.orphans):
                log.info("blobs collected", blobs=collected.blobs, orphans=collected.orphans, bytes=collected.bytes)
        except InkgroveError as error:
            log.warning("blobs could not be collected", code=error.code, reason=error.message)
        if period <= 0:
            return
        work = collect_if_alone
        await asyncio.sleep(period)


async def _erase(node: Node) -> None:
    """Erase what is due, again and again; once in a while also from the files of the database."""
    settings = node.settings
    last_compaction = node.clock()
    while settings.erase_seconds > 0:
        await asyncio.sleep(settings.erase_seconds)
        is_night = 0 < settings.compact_seconds * 1_000_000 <= node.clock() - last_compaction
        try:
            report = await asyncio.to_thread(erase_due, node, compact=is_night)
            if is_night:
                last_compaction = node.clock()
            if report is not None and (report.instances or report.is_compacted is not None):
                log.info("erased", **report.document())
        except InkgroveError as error:
            log.warning("could not erase what is due", code=error.code, reason=error.message)


async def _tidy_exports(*tidy: Callable[[], None]) -> None:
    """Go on with exports that a process left unfinished, and end what has expired, again and again."""
    while True:
        for work in tidy:
            try:
                await asyncio.to_thread(work)
            except (OSError, InkgroveError) as error:
                log.warning("exports could not be tidied", reason=str(error))
        await asyncio.sleep(_EXPORTS_SECONDS)


def _tell_when_stopping(node: Node) -> None:
    """Let endless streams know of the signal that stops the server, which waits for them to end."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(received: int, frame: FrameType | None, before: object = before) -> None:
            node.stopping.set()
            if callable(before):
                before(received, frame)

        signal.signal(number, stop)
