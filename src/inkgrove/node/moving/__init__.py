"""Identities that move from one node to another (docs/protocol.md section 7.10).

`departures` is what the old node does if it helps. On the new node, `arrivals` has the states of an arrival, and
`settle`: the one transaction after which the identity lives here. `files` takes the file that a person brings, `told`
what friends have told of somebody who has the words alone, `helped` is for a grant of the old node.
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
from inkgrove.node.moving.departures import Departure, Departures, GivenGrant
from inkgrove.node.moving.files import (
    PartWriter,
    file_request,
    give_up,
    resume_file,
    take_in_file,
    tidy_arrivals,
)
from inkgrove.node.moving.helped import (
    append_part,
    begin_helped_arrival,
    begin_part,
    note_lost_words,
    open_grant,
    reserve_name,
)
from inkgrove.node.moving.told import MOST_TOLD, check_mandate, put_told_shares, render_told

__all__ = [
    "ARRIVAL",
    "MOST_TOLD",
    "ArrivalProgress",
    "Departure",
    "Departures",
    "GivenGrant",
    "PartWriter",
    "append_part",
    "begin_arrival",
    "begin_helped_arrival",
    "begin_part",
    "check_mandate",
    "file_request",
    "finish_arrival",
    "finish_rows",
    "give_up",
    "note_lost_words",
    "open_grant",
    "part_path",
    "put_told_shares",
    "read_progress",
    "render_told",
    "require_arrival",
    "reserve_name",
    "resume_file",
    "set_state",
    "settle",
    "take_in_file",
    "tidy_arrivals",
]
