"""Routes of identities and sign-ins."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from inkgrove.api.auth import CallerDependency, NodeDependency, token_of
from inkgrove.api.problems import responses
from inkgrove.core.keys import IdentityId
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node import identities
from inkgrove.node.errors import (
    BadName,
    BadPassword,
    IdentityExists,
    NotAllowed,
    SignInRequired,
    TooManyAttempts,
    UnknownIdentity,
    WeakPassword,
)

router = APIRouter(tags=["identities"])


class Strict(BaseModel):
    """A body with the listed keys only."""

    model_config = ConfigDict(extra="forbid")


class NewIdentity(Strict):
    """An identity to be hosted."""

    fqdn: Annotated[str, Field(max_length=253, examples=["jane.haiku.ink"])]
    password: Annotated[str, Field(max_length=1024, examples=["correct horse battery"])]
    name: Annotated[str, Field(max_length=255, examples=["Jane"])] | None = None
    profile: dict[str, str] = {}


class SignIn(Strict):
    """Name and password."""

    fqdn: Annotated[str, Field(max_length=253, examples=["jane.haiku.ink"])]
    password: Annotated[str, Field(max_length=1024)]


def _render(identity: identities.Identity) -> dict[str, Any]:
    document = identity.document
    return {
        "id": identity.id.hex(),
        "fqdn": document.fqdn,
        "endpoint": document.endpoint,
        "name": document.name,
        "profile": dict(document.profile),
        "key": identity.key.hex(),
        "revision": identity.revision,
    }


@router.post(
    "/identities",
    status_code=201,
    responses=responses(SignInRequired, NotAllowed, IdentityExists, BadName, WeakPassword),
)
def create_identity(node: NodeDependency, caller: CallerDependency, body: NewIdentity) -> dict[str, Any]:
    """Host a new identity; the node keeps its key."""
    if node.settings.registration != "open":
        caller.require_administrator()
    return _render(identities.create_identity(node, body.fqdn, body.password, name=body.name, profile=body.profile))


@router.get("/identities/{name}", responses=responses(UnknownIdentity))
def show_identity(node: NodeDependency, name: str) -> dict[str, Any]:
    """The document of a hosted identity, by name or id."""
    is_id = len(name) == 64 and all(character in "0123456789abcdef" for character in name)
    return _render(identities.show_identity(node, IdentityId.fromhex(name) if is_id else name))


@router.post("/sessions", status_code=201, responses=responses(BadPassword, TooManyAttempts))
def sign_in(node: NodeDependency, body: Annotated[SignIn, Body()]) -> dict[str, Any]:
    """Sign in with a password; the token is that of the identity itself."""
    token, expires = identities.sign_in(node, body.fqdn, body.password)
    return {"token": token, "expires": str(Timestamp(expires))}


@router.delete("/sessions/current", status_code=204, responses=responses(SignInRequired, NotAllowed))
def sign_out(request: Request, node: NodeDependency, caller: CallerDependency) -> Response:
    """End this sign-in."""
    caller.require_identity()
    token = token_of(request)
    if token is None:
        raise SignInRequired("nobody is signed in")
    identities.sign_out(node, token)
    return Response(status_code=204)
