"""The route that shows what an identity has stored here, and what it may."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from inkgrove.api.auth import CallerDependency, NodeDependency
from inkgrove.api.problems import responses
from inkgrove.node.errors import NotAllowed, SignInRequired
from inkgrove.node.quotas import show_quota

router = APIRouter(tags=["identities"])


class Measure(BaseModel):
    """How much is used, and how much may be."""

    used: int
    limit: int


class UsageAnswer(BaseModel):
    """What an identity has stored on this node."""

    entries: Measure
    payload_bytes: Measure
    blob_bytes: Measure


@router.get("/me/usage", response_model=UsageAnswer, responses=responses(SignInRequired, NotAllowed))
def show_usage(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """How many entries, bytes of messages and bytes of blobs the identity has stored, and its quota of each."""
    return show_quota(node, caller.require_identity()).render()
