"""The name under which this node speaks as an authorisation server (RFC 8414, RFC 9207)."""

from fastapi import Request

from inkgrove.api.auth import get_host
from inkgrove.node.node import Node
from inkgrove.store.identities import find_identity


def issuer_of(node: Node, request: Request) -> str:
    """Where the identity whose name was asked is reached here, else the address that was asked.

    Its document is not asked: one that came in from elsewhere may name another node.
    """
    fqdn = get_host(request)
    if node.database.read(lambda connection: find_identity(connection, fqdn)) is not None:
        return node.settings.endpoint.format(fqdn=fqdn).rstrip("/")
    return f"{request.url.scheme}://{request.url.netloc}"
