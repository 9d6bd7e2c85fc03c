"""Routes of relations: who follows whom."""

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import CallerDependency, NodeDependency
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.federation import federation_of
from inkgrove.api.routes.models import StrictModel
from inkgrove.core import IdentityId
from inkgrove.federation.errors import FederationError
from inkgrove.federation.federation import Federation
from inkgrove.federation.sharing import is_final_refusal, make_unknown_identity, release_related, send_waiting_moves
from inkgrove.messages import UNSET, Timestamp, Unset
from inkgrove.node import errors
from inkgrove.node.identity import (
    RELATIONS_READ,
    Caller,
    parse_identity_name,
    record_access,
    relations,
    require_living_here,
)
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity, find_remote_identity
from inkgrove.store.node import RelationState, Side, find_relation_state

router = APIRouter(tags=["relations"])


def _is_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a group has printable characters only")
    return text


Group = Annotated[str, Field(min_length=1, max_length=64, examples=["friends"]), AfterValidator(_is_printable)]


class FollowingBody(StrictModel):
    """How to follow: the group that the follower puts it in, if any."""

    group: Group | None = None


class FollowerBody(StrictModel):
    """What becomes of a follower."""

    state: Literal["accepted", "refused", "blocked"]
    group: Group | None = None


class RelationDocument(BaseModel):
    """A relation as one of its two identities sees it."""

    side: Side
    identity: str
    fqdn: str | None
    state: RelationState
    group: str | None
    changed: str


class RelationsDocument(BaseModel):
    """Relations, ordered by side and id; `next` is the `after` of the next page."""

    relations: list[RelationDocument]
    next: str | None


class RelationStateDocument(BaseModel):
    """How a relation stands now."""

    state: RelationState


_MOVES: Final[dict[str, relations.RelationMove]] = {"accepted": "accept", "refused": "refuse", "blocked": "block"}
_REFUSALS = responses(
    "auth.required",
    "auth.not-allowed",
    "identity.unknown",
    "relation.not-requested",
    "relation.own",
    "federation.bad-answer",
    "federation.timeout",
)


class OtherIdentity:
    """The other side of a relation, on this node or elsewhere; other nodes are waited for on the loop."""

    def __init__(self, node: Node, federation: Federation, identity: IdentityId, known: RemoteIdentity | None) -> None:
        self._node, self._federation = node, federation
        self.id, self._known = identity, known

    async def tell(self, me: IdentityId) -> None:
        """Let the other node know at once if it can be reached; if not, the outbox tells it later."""
        if self._known is None:
            return
        try:
            await send_waiting_moves(self._node, self._federation.transport, me, self._known)
        except FederationError as error:
            if is_final_refusal(error):
                raise
            self._federation.outbox.wake()

    async def try_to_tell(self, me: IdentityId) -> None:
        """Let the other node know if it can be reached; the move counts whatever it answers."""
        with suppress(FederationError):
            await self.tell(me)


async def find_other(request: Request, node: Node, name: str, *, must_answer: bool) -> OtherIdentity:
    """Somebody by name or id; one elsewhere is asked for there if nothing is known of them, or if they must answer."""
    federation = federation_of(request)
    wanted = parse_identity_name(name)
    try:
        return OtherIdentity(node, federation, await run_in_threadpool(require_living_here, node, wanted), None)
    except errors.UnknownIdentity:
        known = await _find_elsewhere(node, federation, wanted, must_answer=must_answer)
        return OtherIdentity(node, federation, known.id, known)


async def _find_elsewhere(
    node: Node, federation: Federation, name: str | IdentityId, *, must_answer: bool
) -> RemoteIdentity:
    known = await run_in_threadpool(node.database.read, lambda connection: find_remote_identity(connection, name))
    if known is not None and not must_answer:
        return known
    if known is not None and known.has_moved:
        name = known.id  # asked for where its newest document leads
    discovery = federation.discovery
    try:
        return await (discovery.find(name) if isinstance(name, str) else discovery.find_by_id(name))
    except FederationError as err:
        if known is not None:
            return known  # it hears of it when it is back
        raise make_unknown_identity(name, err) from err


async def _move(
    node: Node, follower: IdentityId, followee: IdentityId, move: relations.RelationMove, **facts: Any
) -> RelationState | None:
    return await run_in_threadpool(
        partial(relations.move_relation, node, follower, followee, move, tells=True, **facts)
    )


def _group(body: StrictModel | None, group: str | None) -> str | Unset | None:
    return group if body is not None and "group" in body.model_fields_set else UNSET


@router.get(
    "/me/relations", response_model=RelationsDocument, responses=responses("auth.required", "auth.out-of-scope")
)
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
    record_access(node, caller, RELATIONS_READ, None)
    rows = [
        {
            "side": item.side,
            "identity": item.identity.hex(),
            "fqdn": item.fqdn,
            "state": relations.hide_block(item.side, item.state),
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


@router.put("/me/following/{name}", response_model=RelationStateDocument, responses=_REFUSALS)
async def follow(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    name: str,
    body: Annotated[FollowingBody | None, Body(examples=[{"group": "friends"}])] = None,
) -> dict[str, Any]:
    """Ask to follow somebody, by name or id, wherever they are; asking again brings both nodes in line."""
    me = caller.require_identity()
    group = _group(body, body.group if body is not None else None)
    other = await find_other(request, node, name, must_answer=True)
    state = await _move(node, me, other.id, "request", group=group)
    await other.tell(me)
    found = await run_in_threadpool(
        node.database.read, lambda connection: find_relation_state(connection, me, other.id)
    )
    state = found or state
    assert state is not None
    return {"state": relations.hide_block("following", state)}


@router.delete(
    "/me/following/{name}",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "relation.unknown", "relation.own"),
)
async def unfollow(request: Request, node: NodeDependency, caller: CallerDependency, name: str) -> Response:
    """Follow somebody no longer."""
    me = caller.require_identity()
    other = await find_other(request, node, name, must_answer=False)
    await _move(node, me, other.id, "end")
    await other.try_to_tell(me)
    return Response(status_code=204)


@router.put("/me/followers/{name}", response_model=RelationStateDocument, responses=_REFUSALS)
async def answer_follower(
    request: Request, node: NodeDependency, caller: CallerDependency, name: str, body: FollowerBody
) -> dict[str, Any]:
    """Accept, refuse or block somebody who asked to follow; put them into a group."""
    me = caller.require_identity()
    move = _MOVES[body.state]
    other = await find_other(request, node, name, must_answer=False)
    state = await _move(node, other.id, me, move, group=_group(body, body.group))
    await other.try_to_tell(me)
    if state == "accepted":
        await run_in_threadpool(release_related, node, me, other.id)
    return {"state": state}


@router.delete(
    "/me/followers/{name}",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "relation.unknown", "relation.own"),
)
async def remove_follower(request: Request, node: NodeDependency, caller: CallerDependency, name: str) -> Response:
    """Let somebody follow no longer, or lift a block: they can ask again."""
    me = caller.require_identity()
    other = await find_other(request, node, name, must_answer=False)
    await _move(node, other.id, me, "remove")
    await other.try_to_tell(me)
    return Response(status_code=204)
