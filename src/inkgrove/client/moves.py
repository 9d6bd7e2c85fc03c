"""Moving to another node with the help of the old one: asked for there, taken over by the new one.

docs/protocol.md section 7.10.1.
"""

from secrets import token_bytes

from inkgrove.client.connection import Flow, ask
from inkgrove.client.identities import ask_challenge
from inkgrove.client.models import Arrival, MoveGrant, MoveState, read_arrival
from inkgrove.core import SecretKey


def endpoint_for(fqdn: str) -> Flow[str]:
    """Return where this node says that it is reached for somebody with a name on it."""
    endpoint: str = (yield from ask_challenge(SecretKey.from_seed(token_bytes(32))))["endpoint"]
    return endpoint.format(fqdn=fqdn)


def begin_move(
    endpoint: str, password: str, *, fqdn: str | None = None, without_words: bool = False
) -> Flow[MoveGrant]:
    """Leave this node for the one at an endpoint, which takes the identity over with the grant within a day.

    `fqdn` is the name there, the host of the endpoint unless it is given. `without_words`: let this node destroy the
    first key although nobody has its words. Until the move is done, or `cancel_move`, this node signs nothing.
    """
    body = {"endpoint": endpoint, "password": password, "fqdn": fqdn, "without_words": without_words}
    return MoveGrant(**(yield from ask("POST", "/me/move", body=body)).json())


def move_state() -> Flow[MoveState]:
    """Return whether the identity is about to leave this node, or has left it."""
    return MoveState(**(yield from ask("GET", "/me/move")).json())


def cancel_move(password: str) -> Flow[None]:
    """Stay: the grant is good for nothing any more. Raises `NotFound` if no move is under way."""
    yield from ask("DELETE", "/me/move", body={"password": password})


def take_over(grant: MoveGrant, password: str) -> Flow[Arrival]:
    """Let this node take an identity over from its old one, with a new password; `arrival_state` shows how far."""
    body = {"lives_at": grant.lives_at, "grant": grant.grant, "fqdn": grant.fqdn, "password": password}
    return read_arrival((yield from ask("POST", "/identities/arrivals/helped", body=body)).json())
