"""The HTTP application: every route over one node."""

from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from inkgrove import __version__
from inkgrove.api import entries, identities, instances, schemas
from inkgrove.api.fast_lane import FastLane
from inkgrove.api.problems import on_error, on_http_error, on_validation_error
from inkgrove.core.errors import InkgroveError
from inkgrove.node.node import Node
from inkgrove.node.schemas import Schemas
from inkgrove.node.writer import Writer

FAST: Final = (instances.create_instance, entries.publish_entries)


def make_app(node: Node) -> FastAPI:
    """The application of a node, which the caller closes."""
    app = FastAPI(title="Inkgrove node", version=__version__, docs_url=None, redoc_url=None)
    app.state.node = node
    app.state.schemas = Schemas(node)
    app.state.writer = Writer(node)
    node.at_close(app.state.writer.close)
    app.add_exception_handler(InkgroveError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    for group in (identities, schemas, instances, entries):
        app.include_router(group.router)
    # The first one added is the innermost: whatever else is to look at requests sees these too.
    app.add_middleware(FastLane, routers=(instances.router, entries.router), endpoints=FAST)
    return app
