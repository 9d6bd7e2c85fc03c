"""Calls of other nodes: to the endpoint of an identity, signed by this node (docs/protocol.md section 8.9)."""

from inkgrove.federation.fetch import Answer, Request, Transport
from inkgrove.federation.signatures import sign_request
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.federation.peers import RemoteIdentity


def signed_call(
    node: Node,
    to: RemoteIdentity,
    method: str,
    path: str,
    *,
    sender: str,
    body: bytes = b"",
    content_type: str | None = None,
) -> Request:
    """A request for the node of an identity, in the name of one of ours (its FQDN); good for one sending."""
    headers = (("Content-Type", content_type),) if content_type is not None else ()
    request = Request(method, to.endpoint.rstrip("/") + path, headers, body)
    nonce = node.random_bytes(16).hex()
    return sign_request(request, load_node_key(node), sender=sender, now=node.clock(), nonce=nonce)


async def call(
    node: Node,
    transport: Transport,
    to: RemoteIdentity,
    method: str,
    path: str,
    *,
    sender: str,
    body: bytes = b"",
    content_type: str | None = None,
) -> Answer:
    """Sign and send; the signature is made anew for each attempt, so an attempt again is no replay."""
    request = signed_call(node, to, method, path, sender=sender, body=body, content_type=content_type)
    return await transport.send(request)
