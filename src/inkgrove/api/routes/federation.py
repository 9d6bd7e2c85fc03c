"""Routes for other nodes: deliveries, relations, replication, recovery, and proofs that a log is forked.

Every request but a fork proof is signed by the node that sends it (docs/protocol.md, section on federation); bodies and
answers are CBOR.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.answers import make_large
from inkgrove.api.http.auth import AddressDependency, NodeDependency, get_address, get_node
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.models import StrictModel, from_base64
from inkgrove.core import IdentityId
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.federation.federation import Federation
from inkgrove.federation.peers import (
    DOCUMENT_MEDIA_TYPE,
    DOCUMENTS_PATH,
    LogOwner,
    receive_document,
    received_request,
)
from inkgrove.federation.peers import PeerRequest as SignedRequest
from inkgrove.federation.replication import (
    ENTRIES_PATH,
    HEIGHTS_PATH,
    OWN_ENTRIES_PATH,
    OWN_HEIGHTS_PATH,
    OWN_RELATIONS_PATH,
    OWN_SHARES_PATH,
    answer_entries,
    answer_heights,
    answer_own_entries,
    answer_own_heights,
    answer_own_relations,
    answer_own_shares,
)
from inkgrove.federation.replication import server as fork_proofs
from inkgrove.federation.sharing import fetching as blobs
from inkgrove.federation.sharing import outbox, receive_request, relations
from inkgrove.messages import (
    REPLICATION_MEDIA_TYPE,
    decode_ask_heights,
    decode_wants,
    delivery,
    encode_entries,
    encode_heights,
    encode_told_relations,
    encode_told_shares,
)
from inkgrove.node.blobs import find_blob
from inkgrove.node.identity import Caller, count_fork_proof
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity

router = APIRouter(tags=["federation"])

BINARY = {"schema": {"type": "string", "format": "binary", "examples": ["(CBOR)"]}}
SIGNED = (
    "federation.signature-missing",
    "federation.signature-incomplete",
    "federation.bad-signature",
    "federation.bad-digest",
    "federation.stale-request",
    "federation.future-request",
    "federation.replayed-request",
    "federation.misdirected-request",
    "federation.sender-unproved",
    "federation.sender-unreachable",
    "federation.quota-used-up",
)


def federation_of(request: Request) -> Federation:
    """What speaks with other nodes for the application."""
    return cast(Federation, request.app.state.federation)


async def admit(request: Request, body: bytes) -> RemoteIdentity:
    """The identity in whose name another node sends a request; raises unless that is proved."""
    return await federation_of(request).senders.authenticate(as_received(request, body), get_address(request))


async def _admit_owner(request: Request, body: bytes) -> LogOwner:
    """The author, or the node that serves them, who asks for their own entries; raises unless that is proved."""
    return await federation_of(request).senders.authenticate_owner(as_received(request, body), get_address(request))


def as_received(request: Request, body: bytes) -> SignedRequest:
    """A request in the form in which signatures are checked."""
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
    host = request.headers.get("host", "")
    scope = request.scope
    return received_request(request.method, host, scope["raw_path"], scope["query_string"], headers, body)


async def make_within_quota(request: Request, peer: bytes, work: Callable[..., Response], *arguments: Any) -> Response:
    """Make a large answer and charge its size to the quota of a peer; raises `QuotaUsedUp` before any work."""
    quotas = federation_of(request).answer_quotas
    quotas.charge(peer, 0)
    answer = await make_large(request, work, *arguments)
    quotas.charge_answer(peer, len(answer.body))
    return answer


def _cbor(description: str, media_type: str, *refusals: str) -> dict[str, Any]:
    """How a route is documented that takes a signed CBOR body and answers CBOR of the same media type."""
    return {
        "response_class": Response,
        "responses": {
            200: {"description": description, "content": {media_type: BINARY}},
            **responses(*SIGNED, *refusals),
        },
        "openapi_extra": {"requestBody": {"required": True, "content": {media_type: BINARY}}},
    }


@router.post(
    outbox.DELIVERIES_PATH,
    **_cbor(
        "Receipts: what became of each parcel for each recipient",
        delivery.DELIVERY_MEDIA_TYPE,
        "parcel.bad",
        "storage.low-disk",
        "identity.recipient-leaving",
        "identity.moved",
    ),
)
async def take_delivery(request: Request) -> Response:
    """Take in instances that another node delivers, in the name of the identity that signs the request."""
    body = await request.body()
    get_node(request).disk.require_for_delivery(len(body))
    sender = await admit(request, body)
    charge = partial(federation_of(request).senders.charge, sender, get_address(request))
    receipts = await run_in_threadpool(receive_request, get_node(request), sender, body, charge)
    federation_of(request).outbox.wake()  # something may have to be sent on
    federation_of(request).replicator.wake()  # and something may name a schema that is not here
    return Response(receipts, media_type=delivery.DELIVERY_MEDIA_TYPE)


@router.post(
    relations.RELATIONS_PATH,
    **_cbor(
        "How the relation stands here",
        relations.RELATION_MEDIA_TYPE,
        "federation.bad-move",
        "federation.unknown-recipient",
        "identity.recipient-leaving",
        "identity.moved",
        "relation.not-requested",
        "federation.request-box-full",
    ),
)
async def hear_of_relation(request: Request) -> Response:
    """Take in what an identity elsewhere asks or answers about following; it signs the request."""
    body = await request.body()
    sender = await admit(request, body)
    answer = await run_in_threadpool(relations.receive_move, get_node(request), sender, body)
    return Response(answer, media_type=relations.RELATION_MEDIA_TYPE)


@router.post(
    DOCUMENTS_PATH,
    status_code=204,
    response_class=Response,
    responses={
        204: {"description": "Whatever came of it"},
        **responses(*SIGNED, "parcel.bad-document", "storage.low-disk"),
    },
    openapi_extra={"requestBody": {"required": True, "content": {DOCUMENT_MEDIA_TYPE: BINARY}}},
)
async def hear_of_document(request: Request) -> Response:
    """Take in the newest document of an identity, with the entries that prove it, from any node.

    Nothing is kept of an identity that nobody here knows; the answer does not say so.
    """
    body = await request.body()
    sender = await admit(request, body)
    charge = partial(federation_of(request).senders.charge, sender, get_address(request))
    await run_in_threadpool(receive_document, get_node(request), body, charge)
    federation_of(request).relocator.wake()
    return Response(status_code=204)


# Replication: what anybody may have


@router.post(
    HEIGHTS_PATH,
    **_cbor("The logs that have news, and their heights", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def tell_of_heights(request: Request) -> Response:
    """List schema logs, identities and logs with public instances that have news since a position, page by page."""
    body = await request.body()
    await admit(request, body)
    return await make_large(request, _heights, get_node(request), body)


def _heights(node: Node, body: bytes) -> Response:
    return Response(encode_heights(answer_heights(node, decode_ask_heights(body))), media_type=REPLICATION_MEDIA_TYPE)


@router.post(
    ENTRIES_PATH,
    **_cbor("Entries with payloads, and the pools that prove them", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def send_entries(request: Request) -> Response:
    """Send entries that another node lacks, as far as anybody may have them; bounded, and it says where to go on."""
    body = await request.body()
    sender = await admit(request, body)
    return await make_within_quota(request, sender.node_key, _entries, get_node(request), body, sender.fqdn)


def _entries(node: Node, body: bytes, fqdn: str) -> Response:
    node.readers.add(fqdn)
    return Response(encode_entries(answer_entries(node, decode_wants(body))), media_type=REPLICATION_MEDIA_TYPE)


_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    f"{blobs.BLOBS_PATH}/{{hash}}",
    response_class=Response,
    responses={
        200: {"description": "A part of the bytes; X-Blob-Size is how many there are", "content": _BYTES},
        **responses(*SIGNED, "blob.unknown"),
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
    quotas.charge(sender.node_key, 0)
    part, size = await run_in_threadpool(_part, get_node(request), sender.id, hash, first)
    quotas.charge_answer(sender.node_key, len(part))
    return Response(part, headers={"X-Blob-Size": str(size)}, media_type="application/octet-stream")


def _part(node: Node, identity: IdentityId, text: str, first: int) -> tuple[bytes, int]:
    blob = find_blob(node, Caller(identity), text)
    with blob.path.open("rb") as file:
        file.seek(first)
        return file.read(blobs.PART_BYTES), blob.size


# Recovery: a node whose database is older than it was gets back what was signed for its own people


@router.post(
    OWN_HEIGHTS_PATH,
    **_cbor("The logs of who asks, and their heights here", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def tell_owner_of_heights(request: Request) -> Response:
    """List what is held here of the logs of an author, to who proves to be that author or to serve them."""
    body = await request.body()
    owner = await _admit_owner(request, body)
    return await make_large(request, _own_heights, get_node(request), owner, body)


def _own_heights(node: Node, owner: LogOwner, body: bytes) -> Response:
    told = answer_own_heights(node, owner, decode_ask_heights(body))
    return Response(encode_heights(told), media_type=REPLICATION_MEDIA_TYPE)


@router.post(
    OWN_ENTRIES_PATH,
    **_cbor("Entries with all payloads that are held", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def give_entries_back(request: Request) -> Response:
    """Send entries of an author, private ones too, to who proves to be that author or to serve them."""
    body = await request.body()
    owner = await _admit_owner(request, body)
    return await make_within_quota(request, owner.identity, _own_entries, get_node(request), owner, body)


def _own_entries(node: Node, owner: LogOwner, body: bytes) -> Response:
    return Response(
        encode_entries(answer_own_entries(node, owner, decode_wants(body))), media_type=REPLICATION_MEDIA_TYPE
    )


@router.post(
    OWN_RELATIONS_PATH,
    **_cbor("Relations of who asks with people of this node", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def tell_owner_of_relations(request: Request) -> Response:
    """List whom of the people here an identity follows and who follows it, to who proves its first key."""
    body = await request.body()
    owner = await _admit_owner(request, body)
    return await make_large(request, _own_relations, get_node(request), owner, body)


def _own_relations(node: Node, owner: LogOwner, body: bytes) -> Response:
    told = answer_own_relations(node, owner, decode_ask_heights(body).since)
    return Response(encode_told_relations(told), media_type=REPLICATION_MEDIA_TYPE)


@router.post(
    OWN_SHARES_PATH,
    **_cbor("What people of this node were sent by who asks", REPLICATION_MEDIA_TYPE, "parcel.bad-replication"),
)
async def tell_owner_of_shares(request: Request) -> Response:
    """List which instances of an identity people here were sent, to who proves its first key."""
    body = await request.body()
    owner = await _admit_owner(request, body)
    return await make_within_quota(request, owner.identity, _own_shares, get_node(request), owner, body)


def _own_shares(node: Node, owner: LogOwner, body: bytes) -> Response:
    told = answer_own_shares(node, owner, decode_ask_heights(body).since)
    return Response(encode_told_shares(told), media_type=REPLICATION_MEDIA_TYPE)


# Fork proofs

EncodedEntry = Annotated[str, Field(max_length=600, examples=["AIqI4910"], json_schema_extra={"format": "byte"})]


class ForkedEntriesBody(StrictModel):
    """Two entries of one log, in base64, that contradict each other."""

    first: EncodedEntry
    second: EncodedEntry


class ForkedLogDocument(BaseModel):
    """A log that is known to be forked, and the first sequence number at which it is."""

    author: str
    log_id: int
    forked_at: int


@router.post(
    fork_proofs.FORK_PROOFS_PATH,
    response_model=ForkedLogDocument,
    responses=responses(
        "entry.bad-signature",
        "log.not-a-fork",
        "entry.no-path-to-first",
        "view.unknown-log",
        "auth.too-many-attempts",
    ),
)
def prove_fork(node: NodeDependency, address: AddressDependency, body: ForkedEntriesBody) -> ForkedLogDocument:
    """Prove that a log that is held here is forked. Needs no token and no signature: the entries prove themselves."""
    count_fork_proof(node, address)
    proof = fork_proofs.take_fork_proof(node, from_base64(body.first, "first"), from_base64(body.second, "second"))
    return ForkedLogDocument(author=proof.author.hex(), log_id=proof.log_id, forked_at=proof.seq_num)
