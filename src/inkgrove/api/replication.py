"""Routes for other nodes that replicate: heights of logs, the entries that they lack, bytes of blobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from inkgrove.api.auth import get_node
from inkgrove.api.federation import BINARY, SIGNED, admit, federation_of
from inkgrove.api.large_answers import make_large
from inkgrove.api.problems import responses
from inkgrove.core import errors as core
from inkgrove.core.keys import IdentityId
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.federation.blobs import PART_BYTES, PATH
from inkgrove.federation.offering import ENTRIES_PATH, HEIGHTS_PATH, tell_entries, tell_heights
from inkgrove.messages.replication import (
    MEDIA_TYPE,
    decode_ask_heights,
    decode_wants,
    encode_entries,
    encode_heights,
)
from inkgrove.node.blobs import find_blob
from inkgrove.node.caller import Caller
from inkgrove.node.errors import UnknownBlob
from inkgrove.node.node import Node

router = APIRouter(tags=["federation"])

_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: BINARY}}}


@router.post(
    HEIGHTS_PATH,
    response_class=Response,
    responses={
        200: {"description": "The logs that have news, and their heights", "content": {MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, core.BadReplication),
    },
    openapi_extra=_BODY,
)
async def tell_of_heights(request: Request) -> Response:
    """List schema logs, identities and logs with public instances that have news since a position, page by page."""
    body = await request.body()
    await admit(request, body)
    return await make_large(request, _heights, get_node(request), body)


def _heights(node: Node, body: bytes) -> Response:
    return Response(encode_heights(tell_heights(node, decode_ask_heights(body))), media_type=MEDIA_TYPE)


@router.post(
    ENTRIES_PATH,
    response_class=Response,
    responses={
        200: {"description": "Entries with payloads, and the pools that prove them", "content": {MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, core.BadReplication),
    },
    openapi_extra=_BODY,
)
async def send_entries(request: Request) -> Response:
    """Send entries that another node lacks, as far as anybody may have them; bounded, and it says where to go on."""
    body = await request.body()
    sender = await admit(request, body)
    quotas = federation_of(request).answer_quotas
    quotas.use(sender.node_key, 0)  # who has had enough causes no work
    answer = await make_large(request, _entries, get_node(request), body, sender.fqdn)
    quotas.spend(sender.node_key, len(answer.body))
    return answer


@router.get(
    f"{PATH}/{{hash}}",
    response_class=Response,
    responses={
        200: {"description": "A part of the bytes; X-Blob-Size is how many there are", "content": _BYTES},
        **responses(*SIGNED, UnknownBlob),
    },
)
async def send_blob(
    request: Request,
    hash: str,  # noqa: A002  the name in the address
    first: Annotated[int, Query(alias="from", ge=0, le=MAX_STORED_INTEGER)] = 0,
) -> Response:
    """Send a part of a blob to the node of an identity that may read it: that sees an instance here that lends it."""
    sender = await admit(request, b"")
    quotas = federation_of(request).answer_quotas
    quotas.use(sender.node_key, 0)
    part, size = await run_in_threadpool(_part, get_node(request), sender.id, hash, first)
    quotas.spend(sender.node_key, len(part))
    return Response(part, headers={"X-Blob-Size": str(size)}, media_type="application/octet-stream")


def _part(node: Node, identity: IdentityId, text: str, first: int) -> tuple[bytes, int]:
    blob = find_blob(node, Caller(identity), text)
    with blob.path.open("rb") as file:
        file.seek(first)
        return file.read(PART_BYTES), blob.size


def _entries(node: Node, body: bytes, fqdn: str) -> Response:
    node.readers.note(fqdn)
    return Response(encode_entries(tell_entries(node, decode_wants(body))), media_type=MEDIA_TYPE)
