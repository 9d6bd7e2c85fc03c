"""Relations: A -> B accepted means that A follows B (docs/protocol.md section 7).

The moves are pure over (follower, followee), whichever of the two is hosted here. A blocked follower sees a refusal and
cannot ask again; a refused one can.
"""

from typing import Final, Literal

from inkgrove.core import IdentityId
from inkgrove.messages import UNSET, Unset
from inkgrove.node.errors import IdentityError, RelationError
from inkgrove.node.identity.identity_log import find_owner
from inkgrove.node.identity.leaving import require_receiving, require_staying
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import queue_move, remove_requests, remove_sender, retry_unapproved
from inkgrove.store.node import ListedRelation, RelationState, Side, authors_shared_with, lives_here, remove_shares
from inkgrove.store.node import relations as store

RelationMove = Literal["request", "end", "accept", "refuse", "block", "remove"]
"""`request` and `end` are the follower's, the others the followee's."""

_MOVES: Final[dict[RelationMove, dict[RelationState | None, RelationState | None]]] = {
    # before -> after; what is not listed is refused
    "request": {
        None: "requested",
        "requested": "requested",
        "accepted": "accepted",
        "refused": "requested",
        "blocked": "blocked",
    },
    "end": {"requested": None, "accepted": None, "refused": None, "blocked": "blocked"},
    "accept": {"requested": "accepted", "accepted": "accepted", "refused": "accepted"},
    "refuse": {"requested": "refused", "accepted": "refused", "refused": "refused"},
    "block": {
        None: "blocked",
        "requested": "blocked",
        "accepted": "blocked",
        "refused": "blocked",
        "blocked": "blocked",
    },
    "remove": {"requested": None, "accepted": None, "refused": None, "blocked": None},
}


def decide_relation(before: RelationState | None, move: RelationMove) -> RelationState | None:
    """Return the state after a move, None if the relation ends; raises `RelationError` if there is no such move."""
    after = _MOVES[move]
    if before in after:
        return after[before]
    if move in ("accept", "refuse"):
        raise RelationError(
            "relation.not-requested", "they have not asked to follow you" if before is None else "you have blocked them"
        )
    raise RelationError("relation.unknown", "there is no such relation")


def move_relation(
    node: Node,
    follower: IdentityId,
    followee: IdentityId,
    move: RelationMove,
    *,
    group: str | Unset | None = UNSET,
    tells: bool = False,
) -> RelationState | None:
    """Make a move, and put the relation into a group of the one who makes it; how it stands then.

    `tells`: the move is queued for the node of the other side, if that is another one.
    """
    if follower == followee:
        raise RelationError("relation.own", "you cannot follow yourself")

    def work(connection: Connection) -> RelationState | None:
        if tells:
            require_staying(connection, follower if move in ("request", "end") else followee)
        else:
            require_receiving(connection, [follower, followee])
        if tells and not lives_here(connection, follower if move in ("request", "end") else followee):
            raise IdentityError(
                "identity.lives-elsewhere",
                "you have moved to another node: what you decide about others, you decide there",
            )
        before = store.lock_relation_state(connection, follower, followee)
        after = decide_relation(before, move)
        if tells:
            _queue_move(connection, follower, followee, move, node.clock())
        if move == "block":
            _shut_out(connection, followee, follower, node.clock(), tells=tells)
        if after is None:
            store.remove_relation(connection, follower, followee)
            return None
        if before is None:
            store.begin_relation(connection, follower, followee, after, node.clock())
        elif after != before:
            store.put_relation_state(connection, follower, followee, after, node.clock())
        if not isinstance(group, Unset):
            side: Side = "following" if move in ("request", "end") else "followers"
            store.put_relation_group(connection, follower, followee, side, group)
        return after

    return node.database.write(work)


def _shut_out(connection: Connection, me: IdentityId, other: IdentityId, now: int, *, tells: bool) -> None:
    """Let nothing else of somebody who is being blocked come in: neither as a sender, nor as one who is followed.

    What they own and was sent to the one who blocks is seen by them no longer: its changes would be, too, if they are
    stored here for others, or since the owner is of this node.
    """
    remove_sender(connection, me, other)
    remove_requests(connection, me, other)
    authors = authors_shared_with(connection, me)
    remove_shares(connection, me, [author for author in authors if find_owner(connection, author) == other])
    own = store.find_relation_state(connection, me, other)
    if own is not None and decide_relation(own, "end") is None:
        store.remove_relation(connection, me, other)
        if tells:
            _queue_move(connection, me, other, "end", now)


def apply_remote_state(
    node: Node, follower: IdentityId, followee: IdentityId, before: RelationState, there: RelationState
) -> bool:
    """Let a relation stand as the followee's node says when it was asked: they decide, and may have done so unheard.

    Whether it does: if it stands otherwise than before the question, what changed it may be newer than the answer.
    """

    def work(connection: Connection) -> bool:
        if store.lock_relation_state(connection, follower, followee) != before:
            return False
        store.put_relation_state(connection, follower, followee, there, node.clock())
        return True

    return node.database.write(work)


def _queue_move(
    connection: Connection, follower: IdentityId, followee: IdentityId, move: RelationMove, now: int
) -> None:
    as_follower = move in ("request", "end")
    me, other = (follower, followee) if as_follower else (followee, follower)
    if not lives_here(connection, other):
        queue_move(connection, me, other, move, as_follower=as_follower, now=now)
    if move == "accept":
        retry_unapproved(connection, me, other, now)


def hide_block(side: Side, state: RelationState) -> RelationState:
    """Return a state as one side sees it: the follower does not learn of a block."""
    return "refused" if side == "following" and state == "blocked" else state


def list_relations(
    node: Node, identity: IdentityId, *, after: tuple[Side, IdentityId] | None = None, limit: int = 100
) -> list[ListedRelation]:
    """Followers and those followed, ordered by side and the other's id."""
    return node.database.read(lambda connection: store.read_relations(connection, identity, after=after, limit=limit))
