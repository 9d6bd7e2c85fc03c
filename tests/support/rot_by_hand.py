"""Rot without Spark: a plan of one move, worked off by the same code that works off every plan."""

from sqlalchemy import Connection, insert

from inkgrove.core import parse_hash
from inkgrove.node.runtime import Node
from inkgrove.store.db import Step, rot_victims
from inkgrove.store.rot import apply_moves, begin_rot_run, find_copy, finish_rot_run, note_copies, remove_blobs


def note(node: Node) -> None:
    """Let the node know its copies."""
    while node.database.write(lambda connection: note_copies(connection, 1, node.clock())):
        continue


def take_down(node: Node, instance: str, step: Step) -> None:
    """Take a copy to a step of the ladder."""
    note(node)
    name = parse_hash(instance)

    def work(connection: Connection) -> None:
        run = begin_rot_run(connection, 0, node.clock(), "{}")
        copy = find_copy(connection, name)
        assert copy is not None
        place = {"instance": name, "log": copy.log, "create_seq": copy.create_seq}
        connection.execute(insert(rot_victims), {**place, "step": step, "why": "a test"})
        applied = apply_moves(connection, run, ())
        assert applied.moves == 1
        remove_blobs(connection, node.blobs, applied.blobs, run.now)
        finish_rot_run(connection, run.tick, node.clock(), {})

    node.database.write(work)


def step_of(node: Node, instance: str) -> str | None:
    copy = node.database.read(lambda connection: find_copy(connection, parse_hash(instance)))
    return None if copy is None else copy.step


def fetched(node: Node, instance: str) -> int:
    copy = node.database.read(lambda connection: find_copy(connection, parse_hash(instance)))
    assert copy is not None
    return copy.fetched
