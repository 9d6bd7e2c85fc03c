"""Routes of relations: who follows whom."""

from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from anyio import from_thread
from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from inkgrove.api.auth import CallerDependency, NodeDependency
from inkgrove.api.federation import federation_of
from inkgrove.api.models import Strict
from inkgrove.api.problems import responses
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import BadAnswer, FederationError, PeerTimeout
from inkgrove.federation.relating import found_nowhere
from inkgrove.federation.relations import is_final, tell_waiting
from inkgrove.federation.requests import release_held
from inkgrove.messages.reading import UNSET, Unset
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node import errors, relations
from inkgrove.node.accesses import record
from inkgrove.node.caller import RELATIONS_READ, Caller
from inkgrove.node.identities import parse_identity_name, show_identity
from inkgrove.node.node import Node
from inkgrove.store.peers import KnownIdentity, find_known
from inkgrove.store.relations import Side, State, find_state

router = APIRouter(tags=["relations"])


def _is_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a group has printable characters only")
    return text


Group = Annotated[str, Field(min_length=1, max_length=64, examples=["friends"]), AfterValidator(_is_printable)]


class Following(Strict):
    """How to follow: the group that the follower puts it in, if any."""

    group: Group | None = None


class Follower(Strict):
    """What becomes of a follower."""

    state: Literal["accepted", "refused", "blocked"]
    group: Group | None = None


class Relation(BaseModel):
    """A relation as one of its two identities sees it."""

    side: Side
    identity: str
    fqdn: str | None
    state: State
    group: str | None
    changed: str


class Relations(BaseModel):
    """Relations, ordered by side and id; `next` is the `after` of the next page."""

    relations: list[Relation]
    next: str | None


class StateAnswer(BaseModel):
    """How a relation stands now."""

    state: State


_MOVES: Final[dict[str, relations.Move]] = {"accepted": "accept", "refused": "refuse", "blocked": "block"}
_REFUSALS = responses(
    errors.SignInRequired,
    errors.NotAllowed,
    errors.UnknownIdentity,
    errors.NotRequested,
    errors.OwnRelation,
    BadAnswer,
    PeerTimeout,
)


class _Other:
    """The other side of a relation, on this node or elsewhere."""

    def __init__(self, request: Request, node: Node, name: str, *, must_answer: bool) -> None:
        self._node = node
        self._federation = federation_of(request)
        self._known: KnownIdentity | None = None
        wanted = parse_identity_name(name)
        try:
            self.id = show_identity(node, wanted).id
        except errors.UnknownIdentity:
            self._known = self._find(wanted, must_answer=must_answer)
            self.id = self._known.id

    def _find(self, name: str | IdentityId, *, must_answer: bool) -> KnownIdentity:
        known = self._node.database.read(lambda connection: find_known(connection, name))
        if known is not None and not must_answer:
            return known
        discovery = self._federation.discovery
        try:
            if isinstance(name, str):
                return from_thread.run(discovery.find, name)
            return from_thread.run(discovery.find_by_id, name)
        except FederationError as err:
            if known is not None:
                return known  # it hears of it when it is back
            raise found_nowhere(name, err) from err

    def tell(self, me: IdentityId) -> None:
        """Let the other node know at once if it can be reached; if not, the outbox tells it later."""
        if self._known is None:
            return
        try:
            from_thread.run(tell_waiting, self._node, self._federation.transport, me, self._known)
        except FederationError as error:
            if is_final(error):
                raise
            from_thread.run_sync(self._federation.outbox.wake)

    def try_to_tell(self, me: IdentityId) -> None:
        """The same where the move counts whatever the other says."""
        with suppress(FederationError):
            self.tell(me)


def _group(body: Strict | None, group: str | None) -> str | Unset | None:
    return group if body is not None and "group" in body.model_fields_set else UNSET


@router.get("/me/relations", response_model=Relations, responses=responses(errors.SignInRequired, errors.OutOfScope))
def list_relations(
    node: NodeDependency,
    caller: CallerDependency,
    after: Annotated[str | None, Query(pattern="^(followers|following):[0-9a-f]{64}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Whom the identity follows, and who follows it; a service needs the scope `relations:read`."""
    identity = _reader(caller)
    start: tuple[Side, IdentityId] | None = None
    if after is not None:
        side, _, text = after.partition(":")
        start = ("followers" if side == "followers" else "following"), IdentityId.fromhex(text)
    found = relations.list_relations(node, identity, after=start, limit=limit)
    record(node, caller, RELATIONS_READ, None)
    rows = [
        {
            "side": item.side,
            "identity": item.identity.hex(),
            "fqdn": item.fqdn,
            "state": relations.shown_state(item.side, item.state),
            "group": item.group,
            "changed": str(Timestamp(item.changed)),
        }
        for item in found
    ]
    return {"relations": rows, "next": f"{found[-1].side}:{found[-1].identity.hex()}" if len(found) == limit else None}


def _reader(caller: Caller) -> IdentityId:
    if caller.identity is None:
        raise errors.SignInRequired(f"this needs the scope {RELATIONS_READ}")
    if caller.grant is not None and RELATIONS_READ not in caller.scopes:
        raise errors.OutOfScope(f"the service was not granted {RELATIONS_READ}")
    return caller.identity


@router.put("/me/following/{name}", response_model=StateAnswer, responses=_REFUSALS)
def follow(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    name: str,
    body: Annotated[Following | None, Body(examples=[{"group": "friends"}])] = None,
) -> dict[str, Any]:
    """Ask to follow somebody, by name or id, wherever they are; asking again brings both nodes in line."""
    me = caller.require_identity()
    group = _group(body, body.group if body is not None else None)
    other = _Other(request, node, name, must_answer=True)
    state = relations.move_relation(node, me, other.id, "request", group=group, tells=True)
    other.tell(me)
    state = node.database.read(lambda connection: find_state(connection, me, other.id)) or state
    assert state is not None
    return {"state": relations.shown_state("following", state)}


@router.delete(
    "/me/following/{name}",
    status_code=204,
    responses=responses(errors.SignInRequired, errors.NotAllowed, errors.UnknownRelation, errors.OwnRelation),
)
def unfollow(request: Request, node: NodeDependency, caller: CallerDependency, name: str) -> Response:
    """Follow somebody no longer."""
    me = caller.require_identity()
    other = _Other(request, node, name, must_answer=False)
    relations.move_relation(node, me, other.id, "end", tells=True)
    other.try_to_tell(me)
    return Response(status_code=204)


@router.put("/me/followers/{name}", response_model=StateAnswer, responses=_REFUSALS)
def answer_follower(
    request: Request, node: NodeDependency, caller: CallerDependency, name: str, body: Follower
) -> dict[str, Any]:
    """Accept, refuse or block somebody who asked to follow; put them into a group."""
    me = caller.require_identity()
    move = _MOVES[body.state]
    other = _Other(request, node, name, must_answer=False)
    state = relations.move_relation(node, other.id, me, move, group=_group(body, body.group), tells=True)
    other.try_to_tell(me)
    if state == "accepted":
        release_held(node, me, other.id)
    return {"state": state}


@router.delete(
    "/me/followers/{name}",
    status_code=204,
    responses=responses(errors.SignInRequired, errors.NotAllowed, errors.UnknownRelation, errors.OwnRelation),
)
def remove_follower(request: Request, node: NodeDependency, caller: CallerDependency, name: str) -> Response:
    """Let somebody follow no longer, or lift a block: they can ask again."""
    me = caller.require_identity()
    other = _Other(request, node, name, must_answer=False)
    relations.move_relation(node, other.id, me, "remove", tells=True)
    other.try_to_tell(me)
    return Response(status_code=204)
