"""Routes of an account that only its owner uses: their sign-ins.

Every one needs the sign-in of the identity itself; the token of a service opens none of them.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, Field

from inkgrove.api.http.auth import CallerDependency, NodeDependency, TokenDependency
from inkgrove.api.http.problems import responses
from inkgrove.messages import Timestamp
from inkgrove.node.identity import OwnSession, end_other_sessions, end_own_session, list_own_sessions

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
