"""How far an instance has come with those it was sent to elsewhere."""

from dataclasses import dataclass

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.node.caller import RELATIONS_READ, Caller
from inkgrove.node.errors import UnknownInstance
from inkgrove.node.held import find_held, owner_of
from inkgrove.node.node import Node
from inkgrove.node.sending import was_sent
from inkgrove.store.deliveries import DeliveryState, newest_states_via, states_of
from inkgrove.store.peers import find_known


def read_deliveries(node: Node, caller: Caller, instance: Hash) -> list[tuple[DeliveryState, str | None]]:
    """What the identity that asks has sent of an instance, as its author or as one who passed it on, with names.

    A service without `relations:read` is told only of those whom it was sent to by name: the others are followers.
    """
    unknown = UnknownInstance(f"no instance {instance.hex()[:140]} is here that you have sent")
    identity = caller.require_somebody()

    def work(connection: Connection) -> list[tuple[DeliveryState, str | None]]:
        held = find_held(connection, instance)
        if held is None:
            raise unknown
        states = [state for state in states_of(connection, instance) if state.via == identity]
        is_own = owner_of(connection, held.author) == identity
        if not states and not is_own:
            raise unknown
        # Only who has sent it learns that a service lacks the right to read it.
        caller.reader_of(held.schema, instance)
        if is_own and caller.grant is not None and RELATIONS_READ not in caller.scopes:
            states = [state for state in states if was_sent(connection, instance, state.recipient)]
        known = {state.recipient: find_known(connection, state.recipient) for state in states}
        return [(state, found.fqdn if (found := known[state.recipient]) is not None else None) for state in states]

    return node.database.read(work)


@dataclass(frozen=True, slots=True)
class Sent:
    """An instance on its way to somebody elsewhere."""

    instance: Hash
    fqdn: str | None
    state: DeliveryState


def newest_deliveries(node: Node, identity: IdentityId, limit: int = 20) -> list[Sent]:
    """What an identity has sent to other nodes, what changed last first."""

    def work(connection: Connection) -> list[Sent]:
        found = newest_states_via(connection, identity, limit)
        known = {state.recipient: find_known(connection, state.recipient) for _, state in found}
        names = {recipient: item.fqdn for recipient, item in known.items() if item is not None}
        return [Sent(instance, names.get(state.recipient), state) for instance, state in found]

    return node.database.read(work)
