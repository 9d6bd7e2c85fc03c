"""The runs of rot: begun, planned, done; one that was interrupted goes on where it was (docs/protocol.md section 9).

Nothing is dropped before the whole plan, with the summaries of what is to go, is committed in one transaction. From
then on the plan is applied in chunks, each a transaction, and it does not matter how often the process dies.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, not_, or_, select, update

from inkgrove.core import Hash
from inkgrove.store.db.connection import execute_many, in_lists, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import blob_references, blobs, shares
from inkgrove.store.db.rot_tables import SHOWN, copies, copy_reads, rot_runs, rot_victims, summaries
from inkgrove.store.files import BlobFiles
from inkgrove.store.logs.entries import drop_payloads
from inkgrove.store.rot.copies import guarded_among, read_expiry
from inkgrove.store.views.blob_index import forget_unused
from inkgrove.store.views.stages import read_contents, stage_table

CHUNK: Final = 1_000
EXPIRED: Final = "expired"
"""The reason of a copy that goes because its owner let it expire, whatever the budget."""
_MOVE = (
    update(copies)
    .where(copies.c.instance == bindparam("of_instance"))
    .values({name: bindparam(f"new_{name}") for name in ("step", "changed", "run", "why")})
)


@dataclass(frozen=True, slots=True)
class RotRun:
    """A run, with all that its result depends on besides the copies."""

    tick: int
    seed: int
    now: int
    policy: str
    state: str
    report: Mapping[str, Any]


def next_tick(connection: Connection) -> int:
    """The number of the run that is under way, or of the next one."""
    row = connection.execute(
        select(rot_runs.c.tick, rot_runs.c.state).order_by(rot_runs.c.tick.desc()).limit(1)
    ).first()
    if row is None:
        return 1
    return int(row.tick) if row.state != "done" else int(row.tick) + 1


def begin_rot_run(connection: Connection, seed: int, now: int, policy: str) -> RotRun:
    """Begin a run, or return the one that was begun and not finished, with the seed, clock and policy that it had."""
    tick = next_tick(connection)
    found = find_rot_run(connection, tick)
    if found is not None:
        return found
    row = {"tick": tick, "seed": seed, "now": now, "policy": policy, "state": "begun"}
    connection.execute(insert(rot_runs), row)
    return RotRun(tick, seed, now, policy, "begun", {})


def find_rot_run(connection: Connection, tick: int) -> RotRun | None:
    """The run of a number."""
    row = connection.execute(select(rot_runs).where(rot_runs.c.tick == tick)).first()
    return None if row is None else _run(row)


def list_rot_runs(connection: Connection, limit: int = 200) -> list[RotRun]:
    """The newest runs, oldest first."""
    newest = connection.execute(select(rot_runs).order_by(rot_runs.c.tick.desc()).limit(limit)).all()
    return [_run(row) for row in reversed(newest)]


def _run(row: Any) -> RotRun:
    return RotRun(row.tick, row.seed, row.now, row.policy, row.state, json.loads(row.report or "{}"))


def put_report(connection: Connection, tick: int, values: Mapping[str, Any]) -> None:
    """Add values to the report of a run."""
    found = find_rot_run(connection, tick)
    report = {**(found.report if found is not None else {}), **values}
    connection.execute(update(rot_runs).where(rot_runs.c.tick == tick).values(report=json.dumps(report)))


# The plan


def commit_plan(connection: Connection, stages: Sequence[str], tick: int, report: Mapping[str, Any]) -> None:
    """Store what the tasks staged, freshness, summaries and victims, and mark the run as planned."""
    connection.execute(delete(rot_victims))
    connection.execute(delete(summaries).where(summaries.c.run == tick))
    for stage in stages:
        for name in read_contents(connection, stage):
            if name in _STORE:
                _STORE[name](connection, stage_table(name, (), stage), tick)
    is_of_a_copy = exists().where(copies.c.instance == copy_reads.c.instance)
    connection.execute(delete(copy_reads).where(or_(copy_reads.c.count <= 0, not_(is_of_a_copy))))
    put_report(connection, tick, report)
    connection.execute(update(rot_runs).where(rot_runs.c.tick == tick).values(state="planned"))


def _store_freshness(connection: Connection, staged: Any, _tick: int) -> None:
    values = {name: staged.c[name] for name in ("freshness", "reads", "last_read")}
    connection.execute(update(copies).where(copies.c.instance == staged.c.instance).values(values))
    left = copy_reads.c.count - staged.c.new_reads
    is_read = (copy_reads.c.instance == staged.c.instance, staged.c.new_reads > 0)
    connection.execute(update(copy_reads).where(*is_read).values(count=left))


def _store_moves(connection: Connection, staged: Any, tick: int) -> None:
    names = ("instance", "log", "create_seq", "step", "why")
    connection.execute(insert(rot_victims).from_select(names, select(*(staged.c[name] for name in names))))
    cooked = select(staged.c.instance).where(staged.c.is_cooked == 1)
    connection.execute(update(copies).where(copies.c.instance.in_(cooked)).values(cooked=tick))


def _store_summaries(connection: Connection, staged: Any, tick: int) -> None:
    names = [column.name for column in staged.columns]
    rows = select(bindparam("tick", tick, summaries.c.run.type), *staged.columns)
    connection.execute(insert(summaries).from_select(["run", *names], rows))


_STORE: Final[dict[str, Any]] = {
    "rot_fresh": _store_freshness,
    "rot_moves": _store_moves,
    "rot_summaries": _store_summaries,
}


# Applying it


@dataclass(frozen=True, slots=True)
class Applied:
    """Moves of a plan that are done once their transaction is committed."""

    moves: int
    """With those that were spared after all."""
    blobs: Sequence[Hash] = ()
    """Those of the copies that moved, for `remove_blobs`."""


def apply_moves(connection: Connection, run: RotRun, guards: Collection[str], limit: int = CHUNK) -> Applied:
    """Do the next few moves of a planned run."""
    query = select(rot_victims).order_by(rot_victims.c.instance).limit(limit)
    found = connection.execute(query).all()
    if not found:
        return Applied(0)
    # In the order of all who lock logs: transactions that bring something of these copies, or pin one, end first.
    of_them = select(logs.c.id).where(logs.c.id.in_({row.log for row in found})).order_by(logs.c.name)
    connection.execute(of_them.with_for_update())
    spared = _find_spared(connection, found, run, guards)
    moves = [row for row in found if row.instance not in spared]
    dropped = [row for row in moves if row.step not in SHOWN]
    drop_payloads(connection, _payloads_of(connection, [(row.log, row.create_seq) for row in dropped]))
    if moves:
        execute_many(connection, _MOVE, [
            {
                "of_instance": row.instance,
                "new_step": row.step,
                "new_changed": run.now,
                "new_run": run.tick,
                "new_why": row.why,
            }
            for row in moves
        ])  # fmt: skip
    if dropped:
        emptied = copies.c.instance.in_([row.instance for row in dropped])
        connection.execute(update(copies).where(emptied).values(bytes=0))
    named = _blobs_of(connection, [row.instance for row in moves])
    gone = [row.instance for row in moves if row.step == "gone"]
    if gone:
        connection.execute(delete(shares).where(shares.c.instance.in_(gone)))
        connection.execute(delete(blob_references).where(blob_references.c.instance.in_(gone)))
    done = [row.instance for row in found]
    connection.execute(delete(rot_victims).where(rot_victims.c.instance.in_(done)))
    return Applied(len(found), named)


def _find_spared(connection: Connection, found: Sequence[Any], run: RotRun, guards: Collection[str]) -> set[Hash]:
    """The instances that must stay by now: under a guard since the plan, or given a later expiry by their owner."""
    expired = [row for row in found if row.why == EXPIRED]
    postponed = set()
    for row in expired:
        expires = read_expiry(connection, row.log, row.create_seq)
        if expires is None or expires > run.now:
            postponed.add(Hash(row.instance))
    in_budget = [row.instance for row in found if row.why != EXPIRED]
    needed = guarded_among(connection, [row.instance for row in expired], (), run.now)
    return postponed | needed | guarded_among(connection, in_budget, guards, run.now)


def _payloads_of(connection: Connection, groups: Sequence[tuple[int, int]]) -> list[Hash]:
    """The entries of instances whose payloads are held."""
    if not groups:
        return []
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_of = (entries.c.log == wanted.c.first) & (entries.c.create_seq == wanted.c.second)
    query = select(entries.c.hash).join_from(wanted, entries, is_of).where(entries.c.payload.is_not(None))
    return [Hash(name) for name in connection.scalars(query, pairs_as_parameters(dialect, groups))]


def _blobs_of(connection: Connection, instances: Collection[bytes]) -> list[Hash]:
    named = select(blobs.c.hash).join_from(blob_references, blobs, blobs.c.hash == blob_references.c.hash).distinct()
    return [
        Hash(name)
        for some in in_lists(instances)
        for name in connection.scalars(named.where(blob_references.c.instance.in_(some)))
    ]


def blobs_left_by(connection: Connection, run: RotRun) -> list[Hash]:
    """The blobs of what a run has moved so far: of one that was interrupted, some may not be removed yet."""
    query = (
        select(blobs.c.hash)
        .join_from(blob_references, blobs, blobs.c.hash == blob_references.c.hash)
        .join(copies, copies.c.instance == blob_references.c.instance)
        .where(copies.c.run == run.tick, copies.c.step != "full")
        .distinct()
    )
    return [Hash(name) for name in connection.scalars(query)]


def remove_blobs(connection: Connection, files: BlobFiles, contents: Collection[Hash], now: int) -> None:
    """Remove those of the blobs that nobody but rotted copies refers to.

    In a transaction after that of the moves: a file cannot be rolled back, and a copy that is whole must have its own.
    """
    for content in contents:
        is_free = or_(blobs.c.unused_since.is_(None), blobs.c.unused_since >= now)
        connection.execute(update(blobs).where(blobs.c.hash == content, is_free).values(unused_since=now))
        if forget_unused(connection, content, now + 1):
            files.remove(content)


def find_victim(connection: Connection, instance: Hash) -> Any:
    """The move of a copy that a planned run has not made yet: (step, why), or None."""
    query = select(rot_victims.c.step, rot_victims.c.why).where(rot_victims.c.instance == instance)
    return connection.execute(query).first()


def finish_rot_run(connection: Connection, tick: int, now: int, report: Mapping[str, Any]) -> None:
    """Mark a run as done."""
    put_report(connection, tick, report)
    connection.execute(update(rot_runs).where(rot_runs.c.tick == tick).values(state="done", finished=now))


def count_steps(connection: Connection) -> dict[str, dict[str, int]]:
    """How many copies are on each step, with the bytes of payloads and blobs that they hold."""
    held_blobs = (
        select(blob_references.c.instance, func.sum(blobs.c.size).label("size"))
        .join_from(blob_references, blobs, blobs.c.hash == blob_references.c.hash)
        .group_by(blob_references.c.instance)
        .subquery()
    )
    query = (
        select(
            copies.c.step,
            func.count(),
            func.coalesce(func.sum(copies.c.bytes), 0),
            func.coalesce(func.sum(held_blobs.c.size), 0),
            func.coalesce(func.sum(copies.c.fetched), 0),
        )
        .select_from(copies.outerjoin(held_blobs, held_blobs.c.instance == copies.c.instance))
        .group_by(copies.c.step)
    )
    return {
        step: {
            "copies": int(count),
            "bytes": int(size),
            "blob_bytes": int(blob_size) if step == "full" else 0,
            "fetched": int(fetched),
        }
        for step, count, size, blob_size, fetched in connection.execute(query)
    }
