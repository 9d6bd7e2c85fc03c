"""How far an instance has come with those it was sent to elsewhere."""

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.node.caller import Caller
from inkgrove.node.errors import UnknownInstance
from inkgrove.node.held import find_held, owner_of
from inkgrove.node.node import Node
from inkgrove.store.deliveries import DeliveryState, states_of
from inkgrove.store.peers import find_known


def read_deliveries(node: Node, caller: Caller, instance: Hash) -> list[tuple[DeliveryState, str | None]]:
    """What the identity that asks has sent of an instance, as its author or as one who passed it on, with names."""
    unknown = UnknownInstance(f"no instance {instance.hex()[:140]} is here that you have sent")

    def work(connection: Connection) -> list[tuple[DeliveryState, str | None]]:
        held = find_held(connection, instance)
        if held is None:
            raise unknown
        identity = caller.require(held.schema, "read")
        states = [state for state in states_of(connection, instance) if state.via == identity]
        if not states and owner_of(connection, held.author) != identity:
            raise unknown
        known = {state.recipient: find_known(connection, state.recipient) for state in states}
        return [(state, found.fqdn if (found := known[state.recipient]) is not None else None) for state in states]

    return node.database.read(work)
