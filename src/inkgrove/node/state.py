"""How a node is doing: what its stores hold and how far the views are."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from inkgrove.node.node import Node
from inkgrove.store.db import logs
from inkgrove.store.logs import newest_offset
from inkgrove.store.views import count_blobs


@dataclass(frozen=True, slots=True)
class NodeState:
    """Numbers at one moment."""

    entries: int
    position: int
    view_position: int
    blobs: int
    blob_bytes: int

    @property
    def lag(self) -> int:
        """How many positions are not in the views yet."""
        return max(0, self.position - self.view_position)


def read_state(node: Node) -> NodeState:
    """The state of a node; raises if a store cannot be reached."""

    def look(connection: Connection) -> tuple[int, int, int, int]:
        entries = connection.scalar(select(func.coalesce(func.sum(logs.c.held), 0)))
        return int(entries or 0), newest_offset(connection).position, *count_blobs(connection)

    entries, position, blobs, blob_bytes = node.database.read(look)
    _, reached = node.views.progress()
    return NodeState(entries, position, reached.position, blobs, blob_bytes)


def read_lag(node: Node) -> int:
    """How many positions are not in the views yet; raises if a store cannot be reached."""
    position = node.store.newest_offset().position
    return max(0, position - node.views.progress()[1].position)
