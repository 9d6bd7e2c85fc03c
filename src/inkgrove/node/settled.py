"""What the writer knows from one transaction to the next."""

from collections.abc import Mapping
from typing import Final

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.node.instance_states import InstanceState
from inkgrove.node.node import Node
from inkgrove.node.schemas import Schemas
from inkgrove.store.logs import LogRole

_KEPT: Final = 20_000
_KEPT_INSTANCES: Final = 200


class Settled:
    """What does not change once it is committed, kept from one transaction to the next."""

    def __init__(self, node: Node) -> None:
        self.schemas = Schemas(node)
        self.logs: dict[tuple[PublicKey, SchemaId], int] = {}
        """The log that an author writes a schema to."""
        self.roles: dict[int, LogRole] = {}
        """By the store's own number: what a log of instances is for."""
        self.instances: dict[Hash, InstanceState] = {}
        """Those that have many messages."""

    def keep(self, instances: Mapping[Hash, InstanceState]) -> None:
        """Remember instances as they were at some time, if they cost much to read again; the newest stay longest."""
        for instance, state in instances.items():
            if state.is_costly:
                self.instances.pop(instance, None)
                self.instances[instance] = state
        for oldest in list(self.instances)[: max(0, len(self.instances) - _KEPT_INSTANCES)]:
            del self.instances[oldest]

    def trim(self) -> None:
        """Forget logs before they become too many."""
        if len(self.logs) + len(self.roles) > _KEPT:
            self.logs.clear()
            self.roles.clear()
