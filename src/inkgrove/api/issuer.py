"""The name under which this node speaks as an authorisation server (RFC 8414, RFC 9207)."""

from fastapi import Request

from inkgrove.api.auth import get_host
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identities import show_identity
from inkgrove.node.node import Node


def issuer_of(node: Node, request: Request) -> str:
    """The endpoint of the identity whose name was asked, else the address that was."""
    try:
        return show_identity(node, get_host(request)).document.endpoint.rstrip("/")
    except UnknownIdentity:
        return f"{request.url.scheme}://{request.url.netloc}"
