"""Routes of sharing: passing on, how far deliveries are, and what strangers have sent."""

from typing import Annotated, Any, Literal

from anyio import from_thread
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from inkgrove.api.auth import CallerDependency, NodeDependency
from inkgrove.api.federation import federation_of
from inkgrove.api.instances import ADDRESSED, IDEMPOTENCY, REFUSED, NewRecipients, Shared
from inkgrove.api.models import Strict
from inkgrove.api.problems import responses
from inkgrove.api.publishing import body_of, instance_of, publish, read_body
from inkgrove.api.recipients import find_elsewhere
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import NoSuchRequest
from inkgrove.federation.requests import decide_request
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node import errors
from inkgrove.node.deliveries import read_deliveries
from inkgrove.node.node import Node
from inkgrove.node.publish import PassOnInstance
from inkgrove.store.peers import find_known
from inkgrove.store.requests import list_requests

router = APIRouter(tags=["sharing"])


class DeliveryBody(BaseModel):
    """How far an instance has come with one recipient elsewhere."""

    recipient: str
    fqdn: str | None
    state: Literal["waiting", "delivered", "held", "refused", "given-up"]
    wanted: Annotated[int, Field(description="The newest message that the recipient is to have.")]
    delivered: Annotated[int, Field(description="The newest that they have, as their node said; 0: none.")]
    code: Annotated[
        str | None,
        Field(
            description="Why it was refused or given up: an error code, or `http.STATUS` of a refused request.",
            examples=["federation.blocked"],
        ),
    ]
    changed: str


class Deliveries(BaseModel):
    """What has been sent of an instance by who asks."""

    instance: str
    deliveries: list[DeliveryBody]


class WaitingRequest(BaseModel):
    """A stranger who sent something, and what."""

    via: str
    fqdn: str | None
    instances: list[str]
    arrived: str


class WaitingRequests(BaseModel):
    """Strangers who sent something, in the order of their first."""

    requests: list[WaitingRequest]


class DecisionBody(Strict):
    """What becomes of a stranger's request."""

    decision: Annotated[Literal["accept", "refuse"], Field(examples=["accept"])]


class Taken(BaseModel):
    """What was taken in of it."""

    instances: list[str]


@router.post(
    "/instances/{instance}/pass-on",
    response_model=Shared,
    responses=responses(*REFUSED, *ADDRESSED, errors.UnknownInstance),
    openapi_extra={**body_of(NewRecipients), "parameters": [IDEMPOTENCY]},
)
async def pass_on_instance(request: Request, instance: str) -> Response:
    """Send an instance that one has received to others, unchanged; a service needs the scopes `read` and `create`."""
    body = await read_body(request, NewRecipients)
    await find_elsewhere(request, body.recipients)
    return await publish(request, PassOnInstance(instance_of(instance), body.recipients))


@router.get(
    "/instances/{instance}/deliveries",
    response_model=Deliveries,
    responses=responses(errors.SignInRequired, errors.OutOfScope, errors.UnknownInstance),
)
def list_deliveries(node: NodeDependency, caller: CallerDependency, instance: str) -> dict[str, Any]:
    """How far an instance has come with everyone elsewhere; followers only for services with `relations:read`."""
    entry = instance_of(instance)
    rows = [
        {
            "recipient": state.recipient.hex(),
            "fqdn": fqdn,
            "state": state.state,
            "wanted": state.wanted,
            "delivered": state.delivered,
            "code": state.code,
            "changed": str(Timestamp(state.changed)),
        }
        for state, fqdn in read_deliveries(node, caller, entry)
    ]
    return {"instance": entry.hex(), "deliveries": rows}


@router.get(
    "/me/requests", response_model=WaitingRequests, responses=responses(errors.SignInRequired, errors.NotAllowed)
)
def show_requests(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """What strangers have sent, which nobody sees until they are accepted."""
    me = caller.require_identity()
    found: dict[IdentityId, dict[str, Any]] = {}
    for item in node.database.read(lambda connection: list_requests(connection, me)):
        request = found.get(item.via)
        if request is None:
            arrived = str(Timestamp(item.arrived))
            request = {"via": item.via.hex(), "fqdn": _name(node, item.via), "instances": [], "arrived": arrived}
            found[item.via] = request
        request["instances"].append(item.instance.hex())
    return {"requests": list(found.values())}


def _name(node: Node, identity: IdentityId) -> str | None:
    known = node.database.read(lambda connection: find_known(connection, identity))
    return known.fqdn if known is not None else None


@router.post(
    "/me/requests/{via}",
    response_model=Taken,
    responses=responses(errors.SignInRequired, errors.NotAllowed, NoSuchRequest),
)
def answer_request(
    request: Request, node: NodeDependency, caller: CallerDependency, via: str, body: DecisionBody
) -> dict[str, Any]:
    """Accept a stranger, who follows one from then on, with what they sent; or refuse them and forget it."""
    me = caller.require_identity()
    try:
        sender = IdentityId.fromhex(via)
    except ValueError as err:
        raise NoSuchRequest(f"{via[:80]!r} is no id of an identity") from err
    receipts = decide_request(node, me, sender, body.decision)
    from_thread.run_sync(federation_of(request).outbox.wake)  # the sender is told
    return {"instances": [receipt.instance.hex() for receipt in receipts if receipt.fate == "accepted"]}
