"""Routes for nodes whose database is older than it was: they get back what was signed for their own people."""

from fastapi import APIRouter, Request, Response

from inkgrove.api.auth import get_address, get_node
from inkgrove.api.federation import BINARY, SIGNED, as_received, federation_of
from inkgrove.api.large_answers import make_large
from inkgrove.api.problems import responses
from inkgrove.core import errors as core
from inkgrove.federation.returning import (
    OWN_ENTRIES_PATH,
    OWN_HEIGHTS_PATH,
    Owner,
    tell_own_entries,
    tell_own_heights,
)
from inkgrove.messages.replication import (
    MEDIA_TYPE,
    decode_ask_heights,
    decode_wants,
    encode_entries,
    encode_heights,
)
from inkgrove.node.node import Node

router = APIRouter(tags=["federation"])

_BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: BINARY}}}


@router.post(
    OWN_HEIGHTS_PATH,
    response_class=Response,
    responses={
        200: {"description": "The logs of who asks, and their heights here", "content": {MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, core.BadReplication),
    },
    openapi_extra=_BODY,
)
async def tell_owner_of_heights(request: Request) -> Response:
    """List what is held here of the logs of an author, to who proves to be that author or to serve them."""
    body = await request.body()
    owner = await federation_of(request).senders.admit_owner(as_received(request, body), get_address(request))
    return await make_large(request, _heights, get_node(request), owner, body)


@router.post(
    OWN_ENTRIES_PATH,
    response_class=Response,
    responses={
        200: {"description": "Entries with all payloads that are held", "content": {MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, core.BadReplication),
    },
    openapi_extra=_BODY,
)
async def give_entries_back(request: Request) -> Response:
    """Send entries of an author, private ones too, to who proves to be that author or to serve them."""
    body = await request.body()
    owner = await federation_of(request).senders.admit_owner(as_received(request, body), get_address(request))
    quotas = federation_of(request).answer_quotas
    quotas.use(owner.identity, 0)
    answer = await make_large(request, _entries, get_node(request), owner, body)
    quotas.spend(owner.identity, len(answer.body))
    return answer


def _heights(node: Node, owner: Owner, body: bytes) -> Response:
    told = tell_own_heights(node, owner, decode_ask_heights(body))
    return Response(encode_heights(told), media_type=MEDIA_TYPE)


def _entries(node: Node, owner: Owner, body: bytes) -> Response:
    return Response(encode_entries(tell_own_entries(node, owner, decode_wants(body))), media_type=MEDIA_TYPE)
