"""A move in a relation, made by a command: here at once, there now or later (docs/protocol.md section 7.6)."""

from dataclasses import dataclass

from inkgrove.core.keys import IdentityId
from inkgrove.federation.discovery import Discovery
from inkgrove.federation.errors import FederationError
from inkgrove.federation.fetch import Transport, run_with_transport
from inkgrove.federation.relations import is_final, tell_waiting
from inkgrove.federation.requests import release_related
from inkgrove.messages.value_readers import Unset
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import RelationMove, hide_block, move_relation, require_living_here
from inkgrove.node.runtime import Node
from inkgrove.store.federation.peers import RemoteIdentity, find_remote_identity
from inkgrove.store.node.relations import RelationState, find_relation_state


@dataclass(frozen=True, slots=True)
class Made:
    """How a relation stands after a move, and whether the other side knows."""

    state: RelationState | None
    is_told: bool


def move_and_tell(
    node: Node, me: IdentityId, name: str | IdentityId, move: RelationMove, group: str | Unset | None
) -> Made:
    """Make a move of an identity hosted here and tell the other side; what cannot be told waits for a running node."""
    return run_with_transport(node.settings, lambda transport: _move(node, transport, me, name, move, group))


async def _move(
    node: Node,
    transport: Transport,
    me: IdentityId,
    name: str | IdentityId,
    move: RelationMove,
    group: str | Unset | None,
) -> Made:
    known = await _find(node, transport, name)
    other = known.id if known is not None else require_living_here(node, name)
    as_follower = move in ("request", "end")
    pair = (me, other) if as_follower else (other, me)
    state = move_relation(node, *pair, move, group=group, tells=True)
    is_told = True
    if known is not None:
        try:
            await tell_waiting(node, transport, me, known)
        except FederationError as error:
            if is_final(error) and move == "request":
                raise
            is_told = is_final(error)
    if move == "accept":
        release_related(node, me, other)
    if move == "request":
        state = node.database.read(lambda connection: find_relation_state(connection, *pair)) or state
        state = hide_block("following", state) if state is not None else None
    return Made(state, is_told)


def found_nowhere(name: str | IdentityId, why: FederationError) -> UnknownIdentity:
    """Somebody is neither on this node nor, as far as it can tell, on another one."""
    text = f"{str(name)[:253]} is no identity of this node, and was not found on another: {why.message}"
    return UnknownIdentity(text, reason=why.code)


async def _find(node: Node, transport: Transport, name: str | IdentityId) -> RemoteIdentity | None:
    """The other one, if they are elsewhere."""
    try:
        require_living_here(node, name)
    except UnknownIdentity:
        known = node.database.read(lambda connection: find_remote_identity(connection, name))
        discovery = Discovery(node, transport)
        try:
            return await (discovery.find(name) if isinstance(name, str) else discovery.find_by_id(name))
        except FederationError as err:
            if known is not None:
                return known
            raise found_nowhere(name, err) from err
    return None
