"""The state of a node: what its stores hold, how far the views are, rot and pins (docs/protocol.md section 9)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inkgrove.core import Hash
from inkgrove.core.errors import NoSuchCopy
from inkgrove.node.identity.caller import Caller
from inkgrove.node.reading.query import show_instance
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection, ExclusiveWork, is_work_running
from inkgrove.store.logs import count_entries, newest_offset
from inkgrove.store.rot import (
    SOFT_GUARDS,
    Copy,
    RotRun,
    count_steps,
    drop_pin,
    find_copy,
    list_rot_runs,
    put_pin,
    read_copy,
)
from inkgrove.store.views import STREAM, StreamStatus, count_blobs, read_stream_status


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
    """Return the state of a node; raises if a store cannot be reached."""

    def work(connection: Connection) -> tuple[int, int, int, int]:
        return count_entries(connection), newest_offset(connection).position, *count_blobs(connection)

    entries, position, blobs, blob_bytes = node.database.read(work)
    _, reached = node.views.progress()
    return NodeState(entries, position, reached.position, blobs, blob_bytes)


def read_lag(node: Node) -> int:
    """Return how many positions are not in the views yet; raises if a store cannot be reached."""
    position = node.store.read(newest_offset).position
    return max(0, position - node.views.progress()[1].position)


@dataclass(frozen=True, slots=True)
class PipelineState:
    """How far the pipeline is, and whether it runs, as the stores show it."""

    is_running: bool
    newest: int
    """The newest position of the store."""
    position: int
    """The position that the views have come to."""
    stream: StreamStatus

    @property
    def lag(self) -> int:
        """How many positions are not in the views yet."""
        return max(0, self.newest - self.position)


def read_pipeline_state(node: Node) -> PipelineState:
    """Return the state of the pipeline now."""
    database = node.views.database
    stream = database.read(lambda connection: read_stream_status(connection, STREAM))
    position = node.views.progress()[1].position
    return PipelineState(
        is_work_running(database, ExclusiveWork.STREAM), node.store.read(newest_offset).position, position, stream
    )


# Rot, for the administrator. The node only reads: Spark plans and runs (`inkgrove rot plan|run`).

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class RotState:
    """How many copies are on each step of the ladder, and the newest runs."""

    steps: Mapping[str, Mapping[str, int]]
    runs: Sequence[RotRun]

    @property
    def policy(self) -> Mapping[str, Any]:
        """The policy of the last run; empty before the first."""
        return json.loads(self.runs[-1].policy) if self.runs else {}


@dataclass(frozen=True, slots=True)
class ExplainedCopy:
    """A copy, and what guards it."""

    copy: Copy
    guard: str | None
    blob_bytes: int


def read_rot_state(node: Node, caller: Caller) -> RotState:
    """Return the state of rot; raises unless the caller is an administrator."""
    caller.require_administrator()
    return node.database.read(lambda connection: RotState(count_steps(connection), list_rot_runs(connection, 60)))


def explain_copy(node: Node, caller: Caller, instance: Hash, policy: Mapping[str, Any]) -> ExplainedCopy:
    """Return a copy and what guards it by a policy; raises `NoSuchCopy`, or if the caller is no administrator."""
    caller.require_administrator()
    guards = tuple(policy.get("guards", SOFT_GUARDS))
    absence = int(policy.get("absence_seconds", 30 * 86_400)) * _SECOND

    def work(connection: Connection) -> ExplainedCopy:
        copy = find_copy(connection, instance)
        row = read_copy(connection, instance, guards, node.clock(), absence)
        if copy is None or row is None:
            raise NoSuchCopy(f"{instance.hex()[:20]}… is no copy of somebody else's that a run has seen")
        return ExplainedCopy(copy, row.guard, row.blob_bytes)

    return node.database.read(work)


def pin_instance(node: Node, caller: Caller, instance: Hash) -> None:
    """Guard the copy of an instance that the caller may see from rot, whatever the budget."""
    identity = caller.require_identity()
    show_instance(node, caller, instance)
    node.database.write(lambda connection: put_pin(connection, instance, identity, node.clock()))


def unpin_instance(node: Node, caller: Caller, instance: Hash) -> None:
    """Stop guarding the copy of an instance."""
    identity = caller.require_identity()
    node.database.write(lambda connection: drop_pin(connection, instance, identity))
