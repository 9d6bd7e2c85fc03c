"""Routes of an account that only its owner uses: their sign-ins and keys, and the end of the account.

Every one needs the sign-in of the identity itself, the last one the token of the closing; that of a service opens none
of them.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, Field

from inkgrove.api.http.auth import AddressDependency, CallerDependency, NodeDependency, TokenDependency, bearer_of
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.federation import federation_of
from inkgrove.api.routes.models import Password, StrictModel
from inkgrove.core import IdentityId, parse_public_key
from inkgrove.messages import Timestamp
from inkgrove.node.errors import SignInRequired
from inkgrove.node.identity import (
    MAX_SESSION_LABEL,
    DeviceKey,
    OwnSession,
    check_own_password,
    clean_label,
    end_other_sessions,
    end_own_session,
    label_key,
    list_device_keys,
    list_own_sessions,
)
from inkgrove.node.publishing import begin_closing, show_closing
from inkgrove.node.runtime import Node

router = APIRouter(tags=["account"])
_OWN = ("auth.required", "auth.not-allowed")
_SESSION = "7ac3" * 8
SessionPath = Annotated[
    str, PathParameter(description="The id of a sign-in, as `GET /sessions` shows it.", examples=[_SESSION])
]


class ListedSessionDocument(BaseModel):
    """A sign-in of the identity that asks."""

    id: Annotated[str, Field(description="To end it with; nobody can sign in with it.", examples=[_SESSION])]
    label: Annotated[str, Field(description="What began it; empty if it did not say.", examples=["Firefox on Linux"])]
    created: Annotated[str | None, Field(description="Null if it began before this was recorded.")]
    last_used: Annotated[str | None, Field(description="Within five minutes.")]
    expires: str
    is_current: Annotated[bool, Field(description="Whether it is the one that asks.")]


class SessionsDocument(BaseModel):
    """The sign-ins of an identity that last."""

    sessions: list[ListedSessionDocument]


class EndedSessionsDocument(BaseModel):
    """How many sign-ins have ended."""

    ended: int


def _render(session: OwnSession) -> dict[str, Any]:
    stored = session.stored
    times = {"created": stored.created or None, "last_used": stored.last_used or None, "expires": stored.expires}
    shown = {name: None if at is None else str(Timestamp(at)) for name, at in times.items()}
    return {"id": session.id, "label": stored.label, **shown, "is_current": session.is_current}


@router.get("/sessions", response_model=SessionsDocument, responses=responses(*_OWN))
def list_sessions(node: NodeDependency, caller: CallerDependency, token: TokenDependency) -> dict[str, Any]:
    """The sign-ins of the identity that last, the one that was used last first; no tokens."""
    found = list_own_sessions(node, caller.require_identity(), token)
    return {"sessions": [_render(session) for session in found]}


@router.delete("/sessions/others", response_model=EndedSessionsDocument, responses=responses(*_OWN))
def end_others(node: NodeDependency, caller: CallerDependency, token: TokenDependency) -> dict[str, Any]:
    """End every sign-in of the identity but this one."""
    return {"ended": end_other_sessions(node, caller.require_identity(), token)}


@router.delete("/sessions/{session}", status_code=204, responses=responses(*_OWN, "auth.unknown-session"))
def end_session(node: NodeDependency, caller: CallerDependency, session: SessionPath) -> Response:
    """End one sign-in of the identity, by its id; it may be this one."""
    end_own_session(node, caller.require_identity(), session)
    return Response(status_code=204)


# Keys: those of devices, and those that the node keeps

_KEY = "88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
KeyPath = Annotated[str, PathParameter(description="A key of the identity, in hex.", examples=[_KEY])]


class OwnKeyDocument(BaseModel):
    """A key of the identity that asks."""

    key: Annotated[str, Field(examples=[_KEY])]
    label: Annotated[str | None, Field(description="What the document, which is public, calls it.", examples=["phone"])]
    is_first: Annotated[bool, Field(description="Whether the id of the identity is the thumbprint of this key.")]
    is_controller: Annotated[bool, Field(description="Whether it speaks for the first key, day by day.")]
    kept_by: Annotated[Literal["node", "client"], Field(description="Who has the secret and signs with it.")]
    state: Annotated[
        Literal["counts", "ended", "unclaimed", "contested"],
        Field(
            description="`ended`: revoked. `unclaimed`: listed, and it has not said itself whose it is."
            " `contested`: it says that it is the key of several identities."
        ),
    ]
    revoked: Annotated[
        list[tuple[int, int] | tuple[int, int, str]] | None,
        Field(description="For a revoked key: log, last entry that counts, and its hash, of each log that counts."),
    ]
    logs: Annotated[int, Field(description="How many logs it has written to, besides log 0.")]
    entries: Annotated[int, Field(description="How many entries these have.")]


class OwnKeysDocument(BaseModel):
    """The keys of an identity, the first one first."""

    keys: list[OwnKeyDocument]


class KeyLabelBody(StrictModel):
    """What a key is called from now on; null or empty: nothing."""

    label: Annotated[str | None, Field(max_length=MAX_SESSION_LABEL, examples=["phone"])]


def _render_key(item: DeviceKey) -> dict[str, Any]:
    ends = [
        (end.log_id, end.last) if end.hash is None else (end.log_id, end.last, end.hash.hex())
        for end in item.revoked or ()
    ]
    return {
        "key": item.key.hex(),
        "label": item.label,
        "is_first": item.is_first,
        "is_controller": item.is_controller,
        "kept_by": "node" if item.is_kept_here else "client",
        "state": item.state.removeprefix("key."),
        "revoked": None if item.revoked is None else ends,
        "logs": item.logs,
        "entries": item.entries,
    }


@router.get("/me/keys", response_model=OwnKeysDocument, responses=responses(*_OWN))
def list_keys(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """The keys of the identity: which there are, what they are called, who signs with them, which still count."""
    return {"keys": [_render_key(item) for item in list_device_keys(node, caller.require_identity())]}


@router.patch(
    "/me/keys/{key}",
    status_code=204,
    responses=responses(*_OWN, "identity.unknown", "key.bad-key", "log.stale", "identity.no-key-here"),
)
def rename_key(node: NodeDependency, caller: CallerDependency, key: KeyPath, body: KeyLabelBody) -> Response:
    """Publish a document that calls a further key by another label; everybody can read it."""
    label_key(node, caller.require_identity(), parse_public_key(key), clean_label(body.label or "") or None)
    return Response(status_code=204)


# The end of an account


class ClosingBody(StrictModel):
    """The password of the identity that closes its account."""

    password: Password


class ClosingTokenDocument(BaseModel):
    """What shows how far the closing of an account has come; it is given once, and nobody can sign in with it."""

    token: str


class RecipientAnswersDocument(BaseModel):
    """What the node of a recipient answered to the deletes of what they were sent."""

    identity: str
    fqdn: str | None
    instances: int
    erased: Annotated[int, Field(description="Their node says that the content is gone.")]
    accepted: Annotated[int, Field(description="Their node took the delete; that proves no more.")]
    waits_for_them: Annotated[int, Field(description="Their node holds it until they have decided about the sender.")]
    refused: int
    not_answered: int


class ClosedDocumentDocument(BaseModel):
    """The newest identity document when the account was closed."""

    revision: int
    closed: bool


class CertificateDocument(BaseModel):
    """What was removed here, who has answered, and what stays."""

    format: str
    identity: str
    fqdn: str
    endpoint: str
    begun: str
    closed: str
    lived_here: Annotated[bool, Field(description="Whether it lived here; else nothing was to be signed.")]
    document: ClosedDocumentDocument | None
    instances_deleted: int
    instances_not_deleted: Annotated[
        int, Field(description="Those of keys that this node does not sign with, and those in logs that take no more.")
    ]
    instances_erased: Annotated[int, Field(description="How many have no content on this node any more.")]
    recipients_confirmed: Annotated[int, Field(description="Of whom everything they were sent was erased.")]
    recipients: list[RecipientAnswersDocument]
    removed_here: Annotated[dict[str, int], Field(examples=[{"keys": 1, "sign_ins": 2, "relations": 5}])]
    stays: list[str]


class ClosingDocument(BaseModel):
    """How far the closing of an account has come."""

    state: Annotated[
        Literal["deleting", "delivering", "parting", "closed"],
        Field(description="Deletes are signed; others answer them; relations end; all is over."),
    ]
    total: Annotated[int, Field(description="How many instances there were to delete.")]
    deleted: int
    undeleted: Annotated[int, Field(description="How many could not be deleted.")]
    unanswered: Annotated[int, Field(description="How many deliveries wait for the answer of another node.")]
    certificate: CertificateDocument | None


@router.delete(
    "/me",
    status_code=202,
    response_model=ClosingTokenDocument,
    responses=responses(
        *_OWN,
        "auth.bad-password",
        "auth.too-many-attempts",
        "auth.busy",
        "identity.administers",
        "identity.no-key-here",
    ),
)
async def close_account(
    request: Request, node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: ClosingBody
) -> dict[str, Any]:
    """Close the account for good: everything it published is deleted, everybody who has it is told.

    Every sign-in and grant ends at once. The token shows at `GET /closing` how far it has come, and the certificate.
    """
    token = await PASSWORDS.run(address, _begin_closing, node, caller.require_identity(), body.password, address)
    federation_of(request).closer.wake()
    return {"token": token}


def _begin_closing(node: Node, identity: IdentityId, password: str, address: str) -> str:
    return begin_closing(node, check_own_password(node, identity, password, address))


@router.get("/closing", response_model=ClosingDocument, responses=responses("auth.required", "auth.bad-token"))
def show_own_closing(request: Request, node: NodeDependency) -> dict[str, Any]:
    """How far the closing of an account has come, and its certificate for 90 days after the end.

    The bearer token is the one that `DELETE /me` gave.
    """
    token = bearer_of(request)
    if token is None:
        raise SignInRequired("send the token that DELETE /me gave as Authorization: Bearer")
    return show_closing(node, token).render()
