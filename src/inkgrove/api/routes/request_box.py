"""Routes of the box of requests: what waits and its content, taking or forgetting it, senders that were accepted."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import CallerDependency, NodeDependency
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.models import StrictModel
from inkgrove.api.routes.relations import find_other
from inkgrove.core import Hash, IdentityId, parse_hash
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.sharing import DeliveryReceipt, accept_sender, accept_waiting, discard_waiting, drop_sender
from inkgrove.messages import Create, Delete, InstanceMessage, Timestamp, Unset, value_to_json
from inkgrove.node import errors
from inkgrove.node.identity import name_of_identity
from inkgrove.node.publishing import (
    BoxedRequest,
    DeliveryDecision,
    list_waiting_requests,
    read_waiting_request,
    render_access,
)
from inkgrove.store.federation import list_senders

router = APIRouter(tags=["sharing"])


class WaitingInstanceDocument(BaseModel):
    """Something that waits: what it is, since when and how large, without its content."""

    instance: str
    schema_: Annotated[str | None, Field(alias="schema", description="`AUTHOR/LOG`")]
    schema_name: Annotated[str | None, Field(description="What the schema calls itself, if it is held here.")]
    arrived: str
    size: Annotated[int, Field(description="How many bytes were sent.")]


class WaitingRequestDocument(BaseModel):
    """A stranger who sent something, and what."""

    via: str
    fqdn: str | None
    asks_to_follow: Annotated[bool, Field(description="Whether they asked to follow too: PUT /me/followers/{name}.")]
    instances: list[WaitingInstanceDocument]
    arrived: str


class WaitingRequestsDocument(BaseModel):
    """Strangers who sent something, in the order of their first."""

    requests: list[WaitingRequestDocument]


class WaitingMessageDocument(BaseModel):
    """A message as its author signed it; nothing is migrated or looked up."""

    kind: Literal["create", "update", "delete"]
    schema_: Annotated[str | None, Field(alias="schema", description="`AUTHOR/LOG@VERSION`")]
    fields: dict[str, Any] | None
    access: dict[str, Any] | None
    expires: str | None


class WaitingContentDocument(WaitingInstanceDocument):
    """Something that waits, with its content."""

    via: str
    fqdn: str | None
    messages: list[WaitingMessageDocument]


class DecisionBody(StrictModel):
    """What becomes of what waits."""

    decision: Annotated[Literal["accept", "refuse"], Field(examples=["accept"])]


class TakenDocument(BaseModel):
    """What was taken in of it."""

    instances: list[str]


class SenderDocument(BaseModel):
    """Somebody whose deliveries are taken in without being asked."""

    identity: str
    fqdn: str | None
    since: str


class SendersDocument(BaseModel):
    """Senders that were accepted, ordered by id; `next` is the `after` of the next page."""

    senders: list[SenderDocument]
    next: str | None


_SIGNED_IN = responses("auth.required", "auth.not-allowed")
_REFUSALS = responses("auth.required", "auth.not-allowed", "federation.no-such-request", "federation.sender-blocked")


@router.get(
    "/me/requests",
    response_model=WaitingRequestsDocument,
    responses=_SIGNED_IN,
)
def show_requests(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """What strangers have sent: from whom, of which schema, when and how large; nobody sees it until it is accepted."""
    found: dict[IdentityId, dict[str, Any]] = {}
    for item in list_waiting_requests(node, caller.require_identity()):
        request = found.setdefault(
            item.via,
            {
                "via": item.via.hex(),
                "fqdn": item.fqdn,
                "asks_to_follow": item.asks_to_follow,
                "instances": [],
                "arrived": str(Timestamp(item.arrived)),
            },
        )
        request["instances"].append(_facts(item))
    return {"requests": list(found.values())}


def _facts(item: BoxedRequest) -> dict[str, Any]:
    return {
        "instance": item.instance.hex(),
        "schema": None if item.schema is None else str(item.schema),
        "schema_name": item.schema_name,
        "arrived": str(Timestamp(item.arrived)),
        "size": item.size,
    }


@router.get("/me/requests/{via}/{instance}", response_model=WaitingContentDocument, responses=_REFUSALS)
def show_request(node: NodeDependency, caller: CallerDependency, via: str, instance: str) -> dict[str, Any]:
    """The content of something that waits; looking at it accepts nothing, and nobody is told."""
    me = caller.require_identity()
    item, messages = read_waiting_request(node, me, sender_of(via), named_instance(instance))
    shown = [_render(message) for message in messages]
    return {**_facts(item), "via": item.via.hex(), "fqdn": item.fqdn, "messages": shown}


def _render(message: InstanceMessage) -> dict[str, Any]:
    facts = {"schema": None if message.schema is None else str(message.schema)}
    if isinstance(message, Delete):
        return {"kind": "delete", **facts, "fields": None, "access": None, "expires": None}
    return {
        "kind": "create" if isinstance(message, Create) else "update",
        **facts,
        "fields": None if isinstance(message.fields, Unset) else value_to_json(message.fields),
        "access": render_access(message.access),
        "expires": None if isinstance(message.expires, Unset) else value_to_json(message.expires),
    }


@router.post("/me/requests/{via}/{instance}", response_model=TakenDocument, responses=_REFUSALS)
def answer_one_request(
    node: NodeDependency, caller: CallerDependency, via: str, instance: str, body: DecisionBody
) -> dict[str, Any]:
    """Take in one thing that waits, or forget it; what else its sender sends waits as before, and they are not told."""
    me, sender, named = caller.require_identity(), sender_of(via), named_instance(instance)
    if body.decision == "refuse":
        discard_waiting(node, me, sender, named)
        return {"instances": []}
    return {"instances": _taken(accept_waiting(node, me, sender, named))}


@router.post("/me/requests/{via}", response_model=TakenDocument, responses=_REFUSALS)
def answer_request(node: NodeDependency, caller: CallerDependency, via: str, body: DecisionBody) -> dict[str, Any]:
    """Take in all that waits of a sender now, or forget it; they are not accepted from now on, and do not follow."""
    me, sender = caller.require_identity(), sender_of(via)
    if body.decision == "refuse":
        discard_waiting(node, me, sender)
        return {"instances": []}
    return {"instances": _taken(accept_waiting(node, me, sender))}


@router.get("/me/senders", response_model=SendersDocument, responses=_SIGNED_IN)
def show_senders(
    node: NodeDependency,
    caller: CallerDependency,
    after: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Those whose deliveries are taken in from now on; followers and those one follows are in /me/relations."""
    me = caller.require_identity()
    start = IdentityId.fromhex(after) if after is not None else None
    found = node.database.read(lambda connection: list_senders(connection, me, after=start, limit=limit))
    rows = [
        {
            "identity": item.sender.hex(),
            "fqdn": name_of_identity(node, item.sender),
            "since": str(Timestamp(item.since)),
        }
        for item in found
    ]
    return {"senders": rows, "next": found[-1].sender.hex() if len(found) == limit else None}


@router.put(
    "/me/senders/{name}",
    response_model=TakenDocument,
    responses=responses(
        "auth.required", "auth.not-allowed", "identity.unknown", "federation.sender-blocked", "relation.own"
    ),
)
async def take_from_now_on(
    request: Request, node: NodeDependency, caller: CallerDependency, name: str
) -> dict[str, Any]:
    """Take in what somebody sends from now on, and what waits of them; they do not follow by it, and are not told."""
    me = caller.require_identity()
    other = await find_other(request, node, name, must_answer=False)
    return {"instances": _taken(await run_in_threadpool(accept_sender, node, me, other.id))}


@router.delete(
    "/me/senders/{name}",
    status_code=204,
    responses=responses(
        "auth.required", "auth.not-allowed", "identity.unknown", "federation.unknown-sender", "identity.bad-name"
    ),
)
async def ask_again(request: Request, node: NodeDependency, caller: CallerDependency, name: str) -> Response:
    """Let what somebody sends wait for one's word again."""
    me = caller.require_identity()
    other = await find_other(request, node, name, must_answer=False)
    await run_in_threadpool(drop_sender, node, me, other.id)
    return Response(status_code=204)


def sender_of(text: str) -> IdentityId:
    """The sender in an address; what is no id has sent nothing."""
    try:
        sender = IdentityId.fromhex(text)
    except ValueError as err:
        raise errors.DeliveryError("federation.no-such-request", f"{text[:80]!r} is no id of an identity") from err
    return sender


def named_instance(text: str) -> Hash:
    """The instance in an address; what is no id does not wait."""
    try:
        return parse_hash(text)
    except InkgroveError as err:
        raise errors.DeliveryError("federation.no-such-request", f"{text[:80]!r} is no id of an instance") from err


def _taken(receipts: Sequence[DeliveryReceipt]) -> list[str]:
    return [receipt.instance.hex() for receipt in receipts if receipt.decision is DeliveryDecision.ACCEPTED]
