"""Relations across nodes: each side keeps the relation and sends its moves to the other (docs/protocol.md section 7.6).

A move is queued in the transaction that makes it, so that a node that is away gets it later. A move that arrives twice
is made once; the answer to a request holds the state of the relation there.
"""

from dataclasses import dataclass
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import BadAnswer, BadMove, FederationError
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.documents import MOVED_STATUS, take_moved
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import Transport, run_with_transport
from inkgrove.federation.sharing.recipients import read_leaving, require_recipients
from inkgrove.federation.sharing.request_box import release_related, release_waiting
from inkgrove.messages import Unset, cbor
from inkgrove.node.errors import DeliveryError, UnknownIdentity
from inkgrove.node.identity import RelationMove, apply_remote_state, hide_block, move_relation, require_living_here
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    Backlog,
    QueuedMove,
    RemoteIdentity,
    add_backlog,
    find_queued_moves,
    find_remote_identity,
    remove_queued_moves,
    retry_refused,
    retry_unapproved,
)
from inkgrove.store.node import RelationState, count_requested, find_identity, find_relation_state, lives_here

RELATIONS_PATH: Final = "/federation/relations"
RELATION_MEDIA_TYPE: Final = "application/vnd.inkgrove.relation+cbor"
RELATION_FORMAT: Final = "inkgrove relation 1"
_BY_FOLLOWER: Final[dict[str, RelationMove]] = {"request": "request", "end": "end"}
_BY_FOLLOWEE: Final[dict[str, RelationMove]] = {"accept": "accept", "refuse": "refuse", "remove": "remove"}
_MOVES: Final[dict[str, RelationMove]] = {**_BY_FOLLOWER, **_BY_FOLLOWEE, "block": "block"}
MAX_OPEN_REQUESTS: Final = 1_000
"""How many may ask to follow one identity and have no answer yet."""
_FOR_GOOD: Final = (400, 403, 404, 409, 413, 415, 422)


async def send_move(
    node: Node,
    transport: Transport,
    me: IdentityId,
    other: RemoteIdentity,
    move: RelationMove,
    *,
    run_blocking: RunBlocking = in_thread,
) -> RelationState | None:
    """Send a move of ours to the other side; returns the state of the relation there, None if there is none.

    A block is sent as a refusal. Raises a `FederationError`; `IdentityRelocated` if the other side has moved, which was
    proved, and is looked up there.
    """
    sent = "refuse" if move == "block" else move
    body = cbor.encode({"form": RELATION_FORMAT, "to": bytes(other.id), "move": sent})
    own = await run_blocking(lambda: node.database.read(lambda connection: find_identity(connection, me)))
    assert own is not None
    request = await run_blocking(
        lambda: make_signed_request(
            node, other, "POST", RELATIONS_PATH, sender=own.fqdn, body=body, content_type=RELATION_MEDIA_TYPE
        )
    )
    answer = await transport.send(request)
    if answer.status == MOVED_STATUS:
        raise await run_blocking(lambda: take_moved(node, answer, [other]))
    if answer.status != 200:
        text = f"the node of {other.fqdn} answers with status {answer.status}"
        raise BadAnswer(text, status=answer.status, retry_after=answer.retry_after, **read_leaving(answer))
    try:
        value = _decode(answer.body)
    except BadMove as err:
        raise BadAnswer(f"the node of {other.fqdn} answers something else") from err
    state: RelationState | None = value.get("state")
    if state not in (None, "requested", "accepted", "refused"):
        raise BadAnswer(f"the node of {other.fqdn} answers something else")
    return state


def is_final_refusal(error: FederationError) -> bool:
    """Whether the other node understood a move and will never accept it."""
    return error.data.get("status") in _FOR_GOOD


def apply_answer(node: Node, me: IdentityId, other: IdentityId, before: RelationState, there: RelationState) -> None:
    """Bring a relation that was requested in line with its state at the other node."""
    if there != before and apply_remote_state(node, me, other, before, there) and there == "accepted":
        release_waiting(node, me, other)


async def send_waiting_moves(
    node: Node, transport: Transport, me: IdentityId, other: RemoteIdentity, *, run_blocking: RunBlocking = in_thread
) -> RelationState | None:
    """Send all queued moves of an identity to another; returns the state of the relation there after the last.

    Raises a `FederationError`; a move that the other node will never accept is removed from the queue before.
    """
    there: RelationState | None = None
    waiting = await run_blocking(lambda: node.database.write(lambda c: _find_queued(c, me, other.id)))
    for queued in waiting:
        move = _MOVES[queued.move]
        before = await run_blocking(lambda: node.database.read(lambda c: find_relation_state(c, me, other.id)))
        try:
            there = await send_move(node, transport, me, other, move, run_blocking=run_blocking)
        except FederationError as error:
            if is_final_refusal(error):
                await run_blocking(lambda: node.database.write(lambda c: remove_queued_moves(c, [queued])))  # noqa: B023
            raise
        await run_blocking(lambda: _finish_move(node, queued, before, there))  # noqa: B023
    return there


def _find_queued(connection: Connection, me: IdentityId, other: IdentityId) -> list[QueuedMove]:
    """The queued moves of an identity to another; they are removed if it has moved to another node since."""
    waiting = find_queued_moves(connection, me, other)
    if waiting and not lives_here(connection, me):
        remove_queued_moves(connection, waiting)
        return []
    return waiting


def _finish_move(node: Node, queued: QueuedMove, before: RelationState | None, there: RelationState | None) -> None:
    if queued.move == "request" and before is not None and there is not None:
        apply_answer(node, queued.me, queued.other, before, there)

    def work(connection: Connection) -> None:
        remove_queued_moves(connection, [queued])
        if queued.move == "accept":  # what was published before goes to them now that their node takes it
            add_backlog(connection, Backlog(queued.me, queued.other), node.clock())

    node.database.write(work)


def receive_move(node: Node, sender: RemoteIdentity, body: bytes) -> bytes:
    """Make the move of an identity elsewhere that a request holds; returns the answer.

    Raises `BadMove`, `federation.unknown-recipient`, `identity.recipient-leaving`, `identity.moved`,
    `federation.request-box-full` or an error of the move.
    """
    value = _decode(body)
    to = value.get("to")
    name = value.get("move")
    if value.keys() != {"form", "to", "move"} or type(to) is not bytes or len(to) != 32 or type(name) is not str:
        raise BadMove("a move has form, to and move")
    mine = IdentityId(to)
    require_recipients(node, [mine])
    if not node.database.read(lambda connection: lives_here(connection, mine)):
        raise FederationError("federation.unknown-recipient", f"{mine} does not live here")
    if name == "accept":
        # Whether or not the move is made: what waited for their approval can be sent now.
        node.database.write(lambda connection: retry_unapproved(connection, mine, sender.id, node.clock()))
    if name == "request":
        node.database.read(lambda connection: _check_room(connection, sender.id, mine))
    if name in _BY_FOLLOWER:
        state = _move(node, sender.id, mine, _BY_FOLLOWER[name])
        shown = hide_block("following", state) if state is not None else None
        if state == "accepted":  # their node may not have known so far
            node.database.write(lambda c: retry_refused(c, mine, sender.id, "federation.not-following", node.clock()))
    elif name in _BY_FOLLOWEE:
        shown = _move(node, mine, sender.id, _BY_FOLLOWEE[name])
        if name == "accept":
            release_waiting(node, mine, sender.id)
    else:
        raise BadMove("the move is request, end, accept, refuse or remove")
    return cbor.encode({"form": RELATION_FORMAT, "state": shown})


def _check_room(connection: Connection, follower: IdentityId, followee: IdentityId) -> None:
    is_new = find_relation_state(connection, follower, followee) is None
    if is_new and count_requested(connection, followee) >= MAX_OPEN_REQUESTS:
        raise DeliveryError(
            "federation.request-box-full", "as many wait for an answer as the node keeps: try again later"
        )


def _move(node: Node, follower: IdentityId, followee: IdentityId, move: RelationMove) -> RelationState | None:
    try:
        return move_relation(node, follower, followee, move)
    except InkgroveError:
        if move in ("end", "remove"):
            return None  # there is none: it has been made before
        raise


def _decode(body: bytes) -> dict[str, Any]:
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise BadMove(f"the move is no CBOR of ours: {err.message}") from err
    if type(value) is not dict or value.get("form") != RELATION_FORMAT:
        raise BadMove(f"the move is not of the form {RELATION_FORMAT!r}")
    return value


# Moves made by commands


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The state of a relation after a move, and whether the other side has got the move."""

    state: RelationState | None
    is_delivered: bool


def move_and_tell(
    node: Node, me: IdentityId, name: str | IdentityId, move: RelationMove, group: str | Unset | None
) -> MoveResult:
    """Make a move of an identity hosted here and send it; what cannot be sent now is sent by the running node.

    Raises `UnknownIdentity`, an error of the move, or a `FederationError` if a request is refused for good.
    """
    return run_with_transport(node.settings, lambda transport: _move_and_send(node, transport, me, name, move, group))


async def _move_and_send(
    node: Node,
    transport: Transport,
    me: IdentityId,
    name: str | IdentityId,
    move: RelationMove,
    group: str | Unset | None,
) -> MoveResult:
    known = await _find(node, transport, name)
    other = known.id if known is not None else require_living_here(node, name)
    as_follower = move in ("request", "end")
    pair = (me, other) if as_follower else (other, me)
    state = move_relation(node, *pair, move, group=group, tells=True)
    is_delivered = True
    if known is not None:
        try:
            await send_waiting_moves(node, transport, me, known)
        except FederationError as error:
            if is_final_refusal(error) and move == "request":
                raise
            is_delivered = is_final_refusal(error)
    if move == "accept":
        release_related(node, me, other)
    if move == "request":
        state = node.database.read(lambda connection: find_relation_state(connection, *pair)) or state
        state = hide_block("following", state) if state is not None else None
    return MoveResult(state, is_delivered)


def make_unknown_identity(name: str | IdentityId, why: FederationError) -> UnknownIdentity:
    """Return the error for a name that is neither on this node nor, as far as it can tell, on another one."""
    text = f"{str(name)[:253]} is no identity of this node, and was not found on another: {why.message}"
    return UnknownIdentity(text, reason=why.code)


async def _find(node: Node, transport: Transport, name: str | IdentityId) -> RemoteIdentity | None:
    """Find the other identity if it is elsewhere; None if it lives here."""
    try:
        require_living_here(node, name)
    except UnknownIdentity:
        known = node.database.read(lambda connection: find_remote_identity(connection, name))
        if known is not None and known.has_moved:
            name = known.id  # whoever is under the name now
        discovery = Discovery(node, transport)
        try:
            return await (discovery.find(name) if isinstance(name, str) else discovery.find_by_id(name))
        except FederationError as err:
            if known is not None:
                return known
            raise make_unknown_identity(name, err) from err
    return None
