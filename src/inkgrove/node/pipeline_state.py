"""How the pipeline that keeps the views is doing, as far as the node can tell without asking it."""

from dataclasses import dataclass

from inkgrove.node.node import Node
from inkgrove.store.pulse import Pulse, read_pulse
from inkgrove.store.runs import Work, is_being_done
from inkgrove.store.view_store import STREAM


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Where the pipeline is, and whether it moves."""

    is_running: bool
    newest: int
    """The newest position of the store."""
    position: int
    """The position that the views have come to."""
    pulse: Pulse

    @property
    def lag(self) -> int:
        """How many positions are not in the views yet."""
        return max(0, self.newest - self.position)


def read_pipeline_state(node: Node) -> PipelineState:
    """The state of the pipeline now."""
    database = node.views.database
    pulse = database.read(lambda connection: read_pulse(connection, STREAM))
    position = node.views.progress()[1].position
    return PipelineState(is_being_done(database, Work.STREAM), node.store.newest_offset().position, position, pulse)
