"""How rot stands, for the administrator: what is on each step, what the runs did, one copy explained.

docs/protocol.md section 9. The node only looks: planning and running are Spark's work (`inkgrove rot plan|run`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from inkgrove.core.errors import NoSuchCopy
from inkgrove.core.hashing import Hash
from inkgrove.node.caller import Caller
from inkgrove.node.node import Node
from inkgrove.store.rot import SOFT_GUARDS, Copy, RotRun, count_steps, find_copy, list_rot_runs, read_copy

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class RotState:
    """All that is shown of rot."""

    steps: Mapping[str, Mapping[str, int]]
    runs: Sequence[RotRun]

    @property
    def policy(self) -> Mapping[str, Any]:
        """What the last run went by; empty before the first."""
        return json.loads(self.runs[-1].policy) if self.runs else {}


@dataclass(frozen=True, slots=True)
class ExplainedCopy:
    """A copy, and what guards it."""

    copy: Copy
    guard: str | None
    blob_bytes: int


def read_rot_state(node: Node, caller: Caller) -> RotState:
    """The ladder and the newest runs."""
    caller.require_administrator()
    return node.database.read(lambda connection: RotState(count_steps(connection), list_rot_runs(connection, 60)))


def explain_copy(node: Node, caller: Caller, instance: Hash, policy: Mapping[str, Any]) -> ExplainedCopy:
    """How a copy stands, by the guards of a policy."""
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
