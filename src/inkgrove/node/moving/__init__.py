"""Identities that come to this node from another one (docs/protocol.md section 7.10).

`arrivals` has the states of an arrival, and `settle`: the one transaction after which the identity lives here.
"""

from inkgrove.node.moving.arrivals import (
    ARRIVAL,
    ArrivalProgress,
    begin_arrival,
    finish_arrival,
    finish_rows,
    part_path,
    read_progress,
    require_arrival,
    set_state,
    settle,
)

__all__ = [
    "ARRIVAL",
    "ArrivalProgress",
    "begin_arrival",
    "finish_arrival",
    "finish_rows",
    "part_path",
    "read_progress",
    "require_arrival",
    "set_state",
    "settle",
]
