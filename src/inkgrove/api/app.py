"""The HTTP application: every route over one node."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from inkgrove import __version__
from inkgrove.api import consent, identities, relations, services
from inkgrove.api.problems import on_error, on_http_error, on_validation_error
from inkgrove.core.errors import InkgroveError
from inkgrove.node.node import Node


def make_app(node: Node) -> FastAPI:
    """The application of a node, which the caller closes."""
    app = FastAPI(title="Inkgrove node", version=__version__, docs_url=None, redoc_url=None)
    app.state.node = node
    app.add_exception_handler(InkgroveError, on_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    for group in (identities, services, consent, relations):
        app.include_router(group.router)
    return app
