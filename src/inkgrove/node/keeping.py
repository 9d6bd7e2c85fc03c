"""Copies of others' instances that an identity keeps, whatever the budget (docs/protocol.md section 9)."""

from inkgrove.core.hashing import Hash
from inkgrove.node.caller import Caller
from inkgrove.node.node import Node
from inkgrove.node.query import show_instance
from inkgrove.store.rot import drop_pin, put_pin


def keep(node: Node, caller: Caller, instance: Hash) -> None:
    """Pin an instance that the caller may see; rot does not touch it."""
    identity = caller.require_identity()
    show_instance(node, caller, instance)
    node.database.write(lambda connection: put_pin(connection, instance, identity, node.clock()))


def let_go(node: Node, caller: Caller, instance: Hash) -> None:
    """Pin it no longer."""
    identity = caller.require_identity()
    node.database.write(lambda connection: drop_pin(connection, instance, identity))
