"""Who sends a request: a bearer token, or the cookie of a page.

A browser sends a cookie along whoever wrote the page, so whatever changes something and comes with the cookie must come
from a page of this very host.
"""

from typing import Annotated, Final

from fastapi import Depends, Request

from inkgrove.api.bodies import first_headers
from inkgrove.node.caller import Caller
from inkgrove.node.errors import BadToken, ForeignOrigin
from inkgrove.node.node import Node
from inkgrove.node.sessions import SESSION, authenticate

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def get_node(request: Request) -> Node:
    """The node that the application serves."""
    node = request.app.state.node
    assert isinstance(node, Node)
    return node


NodeDependency = Annotated[Node, Depends(get_node)]


def cookie_name(node: Node, name: str = "inkgrove") -> str:
    """The name of a cookie; on https one that only this very host can have set."""
    return f"__Host-{name}" if is_https(node) else name


def is_https(node: Node) -> bool:
    """Whether browsers reach this node over https."""
    return node.settings.endpoint.startswith("https:")


def check_origin(request: Request) -> None:
    """Refuse what a page of another host makes a browser send; programs send no Origin."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_foreign = site not in (None, "same-origin", "none")
    if origin is not None:
        is_foreign = origin.partition("://")[2] != request.headers.get("host", "")
    if is_foreign:
        raise ForeignOrigin("a page of another host sent this")


def bearer_of(request: Request) -> str | None:
    """The bearer token of a request."""
    header = first_headers(request.scope).get(b"authorization")
    if header is None:
        return None
    scheme, _, token = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise BadToken("the Authorization header must be `Bearer TOKEN`")
    return token.strip()


def cookie_of(request: Request, node: Node) -> str | None:
    """The session token in the cookie of a page."""
    token = request.cookies.get(cookie_name(node))
    return token if token is not None and token.startswith(SESSION) else None


def token_of(request: Request, node: NodeDependency) -> str | None:
    """The token that a request brings; one in a cookie only from our own pages."""
    token = bearer_of(request)
    if token is None and (token := cookie_of(request, node)) is not None and request.method not in _SAFE_METHODS:
        check_origin(request)
    return token


TokenDependency = Annotated[str | None, Depends(token_of)]


def get_caller(node: NodeDependency, token: TokenDependency) -> Caller:
    """Who asks; anybody without a token."""
    return authenticate(node, token)


CallerDependency = Annotated[Caller, Depends(get_caller)]


def get_address(request: Request) -> str:
    """The address that a request comes from; a proxy in front tells it by X-Forwarded-For, if uvicorn trusts it."""
    return request.client.host if request.client is not None else ""


AddressDependency = Annotated[str, Depends(get_address)]


def get_host(request: Request) -> str:
    """The name that a request was sent to, without the port."""
    host = request.headers.get("host", "").lower()
    return host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host


HostDependency = Annotated[str, Depends(get_host)]
