"""How the pipeline that keeps the views is doing, as far as the node can tell without asking it."""

from dataclasses import dataclass

from inkgrove.node.node import Node
from inkgrove.store.db import ExclusiveWork, is_work_running
from inkgrove.store.views import STREAM, StreamStatus, read_stream_status


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Where the pipeline is, and whether it moves."""

    is_running: bool
    newest: int
    """The newest position of the store."""
    position: int
    """The position that the views have come to."""
    pulse: StreamStatus

    @property
    def lag(self) -> int:
        """How many positions are not in the views yet."""
        return max(0, self.newest - self.position)


def read_pipeline_state(node: Node) -> PipelineState:
    """The state of the pipeline now."""
    database = node.views.database
    pulse = database.read(lambda connection: read_stream_status(connection, STREAM))
    position = node.views.progress()[1].position
    return PipelineState(
        is_work_running(database, ExclusiveWork.STREAM), node.store.newest_offset().position, position, pulse
    )
