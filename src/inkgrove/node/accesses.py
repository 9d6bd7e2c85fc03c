"""The record of what services did for an identity, which the identity always sees (docs/protocol.md section 7)."""

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.ids import SchemaId
from inkgrove.node.caller import Caller
from inkgrove.node.node import Node
from inkgrove.store.node import RecordedAccess, ServiceAccess, read_accesses


def record(node: Node, caller: Caller, action: str, schema: SchemaId | None, what: Hash | None = None) -> None:
    """Note that a service used its grant; cheap, and nothing for an identity that acts itself."""
    if caller.grant is not None:
        name = str(schema) if schema is not None else None
        node.access_log.add(ServiceAccess(caller.grant, node.clock(), action, name, what))


def list_accesses(
    node: Node, identity: IdentityId, *, client: str | None = None, before: int | None = None, limit: int = 100
) -> list[RecordedAccess]:
    """What services did, newest first; `before` is the number of the last one seen."""
    node.access_log.flush()
    return node.database.read(
        lambda connection: read_accesses(connection, identity, client=client, before=before, limit=limit)
    )
