"""Identities that come to this node from another one (docs/protocol.md section 7.10).

`arrivals` has the states of an arrival, and `settle`: the one transaction after which the identity lives here. `files`
takes the file that a person brings, `told` what friends have told of somebody who has the words alone.
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
from inkgrove.node.moving.files import (
    PartWriter,
    file_request,
    give_up,
    resume_file,
    take_in_file,
    tidy_arrivals,
)
from inkgrove.node.moving.told import MOST_TOLD, check_mandate, put_told_shares, render_told

__all__ = [
    "ARRIVAL",
    "MOST_TOLD",
    "ArrivalProgress",
    "PartWriter",
    "begin_arrival",
    "check_mandate",
    "file_request",
    "finish_arrival",
    "finish_rows",
    "give_up",
    "part_path",
    "put_told_shares",
    "read_progress",
    "render_told",
    "require_arrival",
    "resume_file",
    "set_state",
    "settle",
    "take_in_file",
    "tidy_arrivals",
]
