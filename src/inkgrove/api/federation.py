"""Routes for other nodes: what they deliver, each request signed by the node that sends it."""

from functools import partial
from typing import cast

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from inkgrove.api.auth import get_address, get_node
from inkgrove.api.problems import responses
from inkgrove.core import errors as core
from inkgrove.federation import errors, relations
from inkgrove.federation.federation import Federation
from inkgrove.federation.fetch import Request as SignedRequest
from inkgrove.federation.inbox import take_in
from inkgrove.federation.outbox import PATH
from inkgrove.federation.senders import received_request
from inkgrove.messages.delivery import MEDIA_TYPE
from inkgrove.node.errors import LowDisk, NotRequested, RequestBoxFull
from inkgrove.store.peers import KnownIdentity

router = APIRouter(tags=["federation"])

BINARY = {"schema": {"type": "string", "format": "binary", "examples": ["(CBOR)"]}}
SIGNED = (
    errors.SignatureMissing,
    errors.SignatureIncomplete,
    errors.BadRequestSignature,
    errors.BadDigest,
    errors.StaleRequest,
    errors.FutureRequest,
    errors.ReplayedRequest,
    errors.MisdirectedRequest,
    errors.SenderUnproved,
    errors.SenderUnreachable,
    errors.QuotaUsedUp,
)


def federation_of(request: Request) -> Federation:
    """What speaks with other nodes for the application."""
    return cast(Federation, request.app.state.federation)


async def admit(request: Request, body: bytes) -> KnownIdentity:
    """The identity in whose name another node sends a request; raises unless that is proved."""
    return await federation_of(request).senders.admit(as_received(request, body), get_address(request))


def as_received(request: Request, body: bytes) -> SignedRequest:
    """A request in the form in which signatures are checked."""
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
    host = request.headers.get("host", "")
    scope = request.scope
    return received_request(request.method, host, scope["raw_path"], scope["query_string"], headers, body)


@router.post(
    PATH,
    response_class=Response,
    responses={
        200: {
            "description": "Receipts: what became of each parcel for each recipient",
            "content": {MEDIA_TYPE: BINARY},
        },
        **responses(*SIGNED, core.BadParcel, LowDisk),
    },
    openapi_extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: BINARY}}},
)
async def take_delivery(request: Request) -> Response:
    """Take in instances that another node delivers, in the name of the identity that signs the request."""
    body = await request.body()
    get_node(request).disk.require_for_delivery(len(body))
    sender = await admit(request, body)
    charge = partial(federation_of(request).senders.charge, sender, get_address(request))
    receipts = await run_in_threadpool(take_in, get_node(request), sender, body, charge)
    federation_of(request).outbox.wake()  # something may have to be sent on
    federation_of(request).replicator.wake()  # and something may name a schema that is not here
    return Response(receipts, media_type=MEDIA_TYPE)


@router.post(
    relations.PATH,
    response_class=Response,
    responses={
        200: {"description": "How the relation stands here", "content": {relations.MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, errors.BadMove, errors.UnknownRecipient, NotRequested, RequestBoxFull),
    },
    openapi_extra={"requestBody": {"required": True, "content": {relations.MEDIA_TYPE: BINARY}}},
)
async def hear_of_relation(request: Request) -> Response:
    """Take in what an identity elsewhere asks or answers about following; it signs the request."""
    body = await request.body()
    sender = await admit(request, body)
    answer = await run_in_threadpool(relations.hear, get_node(request), sender, body)
    return Response(answer, media_type=relations.MEDIA_TYPE)
