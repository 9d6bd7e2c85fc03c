"""Relations across nodes: each side keeps the relation and tells the other of its moves.

docs/protocol.md section 7.6. A move that is told twice is made once. If the other side could not be told, asking to
follow again brings both in line: the answer says how the relation stands there.
"""

from typing import Any, Final

from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import IdentityId
from inkgrove.federation.calls import signed_call
from inkgrove.federation.discovery import RunBlocking, in_thread
from inkgrove.federation.errors import BadAnswer, BadMove, UnknownRecipient
from inkgrove.federation.fetch import Transport
from inkgrove.messages import cbor
from inkgrove.node.node import Node
from inkgrove.node.relations import Move, move_relation, shown_state
from inkgrove.store.identities import find_identity
from inkgrove.store.peers import KnownIdentity
from inkgrove.store.relations import State

PATH: Final = "/federation/relations"
MEDIA_TYPE: Final = "application/vnd.inkgrove.relation+cbor"
FORM: Final = "inkgrove relation 1"
_BY_FOLLOWER: Final[dict[str, Move]] = {"request": "request", "end": "end"}
_BY_FOLLOWEE: Final[dict[str, Move]] = {"accept": "accept", "refuse": "refuse", "remove": "remove"}


async def tell(
    node: Node,
    transport: Transport,
    me: IdentityId,
    other: KnownIdentity,
    move: Move,
    *,
    run_blocking: RunBlocking = in_thread,
) -> State | None:
    """Tell the other side of a move of ours; how the relation stands there, None if there is none.

    Who is blocked is told that they are refused.
    """
    told = "refuse" if move == "block" else move
    body = cbor.encode({"form": FORM, "to": bytes(other.id), "move": told})
    own = await run_blocking(lambda: node.database.read(lambda connection: find_identity(connection, me)))
    assert own is not None
    request = await run_blocking(
        lambda: signed_call(node, other, "POST", PATH, sender=own.fqdn, body=body, content_type=MEDIA_TYPE)
    )
    answer = await transport.send(request)
    if answer.status != 200:
        raise BadAnswer(f"the node of {other.fqdn} answers with status {answer.status}", status=answer.status)
    try:
        value = _decode(answer.body)
    except BadMove as err:
        raise BadAnswer(f"the node of {other.fqdn} answers something else") from err
    state: State | None = value.get("state")
    if state not in (None, "requested", "accepted", "refused"):
        raise BadAnswer(f"the node of {other.fqdn} answers something else")
    return state


def hear(node: Node, sender: KnownIdentity, body: bytes) -> bytes:
    """Make a move of somebody elsewhere, who must be the one that may make it; the answer."""
    value = _decode(body)
    to = value.get("to")
    if value.keys() != {"form", "to", "move"} or type(to) is not bytes or len(to) != 32:
        raise BadMove("a move has form, to and move")
    mine = IdentityId(to)
    if node.database.read(lambda connection: find_identity(connection, mine)) is None:
        raise UnknownRecipient(f"{mine} is not hosted here")
    name = value["move"]
    if name in _BY_FOLLOWER:
        state = _move(node, sender.id, mine, _BY_FOLLOWER[name])
        shown = shown_state("following", state) if state is not None else None
    elif name in _BY_FOLLOWEE:
        shown = _move(node, mine, sender.id, _BY_FOLLOWEE[name])
    else:
        raise BadMove("the move is request, end, accept, refuse or remove")
    return cbor.encode({"form": FORM, "state": shown})


def _move(node: Node, follower: IdentityId, followee: IdentityId, move: Move) -> State | None:
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
    if type(value) is not dict or value.get("form") != FORM:
        raise BadMove(f"the move is not of the form {FORM!r}")
    return value
