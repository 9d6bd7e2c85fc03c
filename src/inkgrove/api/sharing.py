"""Routes of sharing: passing on, and how far deliveries are."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from inkgrove.api.answers import json_answer
from inkgrove.api.auth import CallerDependency, NodeDependency
from inkgrove.api.instances import ADDRESSED, IDEMPOTENCY, REFUSED, NewRecipients, Shared
from inkgrove.api.large_answers import make_large
from inkgrove.api.problems import responses
from inkgrove.api.publishing import body_of, instance_of, publish, read_body
from inkgrove.api.recipients import find_or_wait, without
from inkgrove.core.hashing import Hash
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node import errors
from inkgrove.node.caller import Caller
from inkgrove.node.deliveries import read_deliveries
from inkgrove.node.node import Node
from inkgrove.node.publish import PassOnInstance

router = APIRouter(tags=["sharing"])


class DeliveryBody(BaseModel):
    """How far an instance has come with one recipient, on this node or elsewhere."""

    recipient: Annotated[str | None, Field(description="None while nobody knows who has the name.")]
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


@router.post(
    "/instances/{instance}/pass-on",
    response_model=Shared,
    responses=responses(*REFUSED, *ADDRESSED, errors.UnknownInstance),
    openapi_extra={**body_of(NewRecipients), "parameters": [IDEMPOTENCY]},
)
async def pass_on_instance(request: Request, instance: str) -> Response:
    """Send an instance that one has received to others, unchanged; a service needs the scopes `read` and `create`."""
    body = await read_body(request, NewRecipients)
    later = await find_or_wait(request, body.recipients)
    return await publish(request, PassOnInstance(instance_of(instance), without(body.recipients, later), later))


@router.get(
    "/instances/{instance}/deliveries",
    response_class=JSONResponse,
    responses={
        200: {"model": Deliveries},
        **responses(errors.SignInRequired, errors.OutOfScope, errors.UnknownInstance, errors.TooMuchAtOnce),
    },
)
async def list_deliveries(request: Request, node: NodeDependency, caller: CallerDependency, instance: str) -> Response:
    """How far an instance has come with everyone it was sent to; followers only for services with `relations:read`."""
    return await make_large(request, _deliveries, node, caller, instance_of(instance))


def _deliveries(node: Node, caller: Caller, entry: Hash) -> Response:
    rows = [
        {
            "recipient": state.recipient.hex() or None,
            "fqdn": fqdn,
            "state": state.state,
            "wanted": state.wanted,
            "delivered": state.delivered,
            "code": state.code,
            "changed": str(Timestamp(state.changed)),
        }
        for state, fqdn in read_deliveries(node, caller, entry)
    ]
    return json_answer({"instance": entry.hex(), "deliveries": rows})
