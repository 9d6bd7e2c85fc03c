"""Who sends a request: a bearer token, or the cookie of a page; and the dependencies that hand it to routes.

A browser sends a cookie along whoever wrote the page, so whatever changes something and comes with the cookie must come
from a page of this very host. A dependency that is a plain function runs in a thread; those that only look at the
request are coroutines (`give_*`), which run on the event loop.
"""

from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from inkgrove.api.http.formats import first_headers
from inkgrove.node.errors import BadToken, ForeignOrigin, SignInRequired
from inkgrove.node.identity import SESSION, Caller, authenticate, require_staying
from inkgrove.node.runtime import Node

_STAYS_HERE: Final = ("/me/move", "/me/export", "/me/password", "/me/words", "/me/services", "/sessions", "/oauth")
"""What an identity may change while it is about to leave for another node."""
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def get_node(request: Request) -> Node:
    """The node that the application serves."""
    node = request.app.state.node
    assert isinstance(node, Node)
    return node


async def give_node(request: Request) -> Node:
    """`get_node` as a dependency."""
    return get_node(request)


NodeDependency = Annotated[Node, Depends(give_node)]


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


def token_of(request: Request, node: Node) -> str | None:
    """The token that a request brings; one in a cookie only from our own pages."""
    token = bearer_of(request)
    if token is None and (token := cookie_of(request, node)) is not None and request.method not in _SAFE_METHODS:
        check_origin(request)
    return token


async def require_good_token(node: Node, scope: Scope) -> None:
    """Raise unless the request brings a token that holds; for what is not done at all for strangers."""
    token = token_of(Request(scope), node)
    if token is None:
        raise SignInRequired("so large a body needs a token: sign in first (POST /sessions)")
    await run_in_threadpool(authenticate, node, token)


async def give_token(request: Request) -> str | None:
    """`token_of` as a dependency."""
    return token_of(request, get_node(request))


TokenDependency = Annotated[str | None, Depends(give_token)]


async def give_reader(request: Request) -> str | None:
    """The token of who reads: the transaction that reads looks it up, which spares a second one."""
    return token_of(request, get_node(request))


ReaderDependency = Annotated[str | None, Depends(give_reader)]


def changes_what_moves(method: str, path: str) -> bool:
    """Whether a request can change something that goes along when its sender moves to another node."""
    return method not in _SAFE_METHODS and not path.startswith(_STAYS_HERE)


def get_caller(request: Request, node: NodeDependency, token: TokenDependency) -> Caller:
    """Who asks; anybody without a token.

    Raises `identity.leaving` if they would change something that goes to another node with them.
    """
    caller = authenticate(node, token)
    identity = caller.identity
    if identity is not None and changes_what_moves(request.method, request.scope["path"]):
        node.database.read(lambda connection: require_staying(connection, identity))
    return caller


CallerDependency = Annotated[Caller, Depends(get_caller)]


def get_address(request: Request) -> str:
    """The address that a request comes from; one of `node.trusted_proxies` says whom it speaks for."""
    return request.client.host if request.client is not None else ""


async def give_address(request: Request) -> str:
    """`get_address` as a dependency."""
    return get_address(request)


AddressDependency = Annotated[str, Depends(give_address)]


def get_user_agent(request: Request) -> str:
    """What the program that sends a request says of itself; empty if it says nothing."""
    return first_headers(request.scope).get(b"user-agent", b"").decode("latin-1")


async def give_user_agent(request: Request) -> str:
    """`get_user_agent` as a dependency."""
    return get_user_agent(request)


UserAgentDependency = Annotated[str, Depends(give_user_agent)]


def get_host(request: Request) -> str:
    """The name that a request was sent to, without the port."""
    host = request.headers.get("host", "").lower()
    return host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host


async def give_host(request: Request) -> str:
    """`get_host` as a dependency."""
    return get_host(request)


HostDependency = Annotated[str, Depends(give_host)]
