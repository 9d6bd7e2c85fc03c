"""Who sends a request: a bearer token, or the cookie of a page."""

from typing import Annotated

from fastapi import Depends, Request

from inkgrove.node.caller import Caller
from inkgrove.node.errors import BadToken
from inkgrove.node.identities import authenticate
from inkgrove.node.node import Node


def get_node(request: Request) -> Node:
    """The node that the application serves."""
    node = request.app.state.node
    assert isinstance(node, Node)
    return node


NodeDependency = Annotated[Node, Depends(get_node)]


def token_of(request: Request) -> str | None:
    """The bearer token of a request."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise BadToken("the Authorization header must be `Bearer TOKEN`")
    return token.strip()


def get_caller(request: Request, node: NodeDependency) -> Caller:
    """Who asks; anybody without a token."""
    return authenticate(node, token_of(request))


CallerDependency = Annotated[Caller, Depends(get_caller)]
