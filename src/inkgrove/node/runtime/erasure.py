"""Erases what was deleted or has expired, after its grace (docs/protocol.md section 9.5).

The journal of the home comes first, then the node's tables and blobs, then the views. Whatever dies in the middle, the
next run ends it: what is in the journal is erased again when the node starts.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any, Final

from inkgrove.core import Hash
from inkgrove.node.runtime.erasure_journal import CHUNK, ErasureJournal, erase_content, remove_erased_blobs
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection, hold_merge_lock
from inkgrove.store.locks import try_file_lock
from inkgrove.store.rot import (
    ask_for_erasure,
    compact_files,
    count_waiting,
    erase_from_views,
    forget_undue,
    has_erased_since,
    list_due,
    list_erased_messages,
    list_erased_since,
    note_erasures,
    read_applied,
    write_applied,
)

_LOCK: Final = ".erasing"
_SECOND: Final = 1_000_000
_AGAIN: Final = 2 * 86_400 * _SECOND
"""For so long views are cleared again of what was erased: a pipeline may have read it just before."""

OnErasing = Callable[[str, int, int | None], None]
"""Hears what is being done, how much of it, and of how much if that is known."""


@dataclass(slots=True)
class ErasureReport:
    """What a run did."""

    instances: int = 0
    payloads: int = 0
    waiting: int = 0
    """Instances whose grace is not over."""
    is_compacted: bool | None = None
    """Whether the files were rewritten without what was erased; None if nothing was to be done about them."""

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self)


def note_ended(node: Node) -> None:
    """Look through what happened since the last time, and note what was deleted or will expire."""
    while not node.stopping.is_set() and node.database.write(
        lambda connection: note_erasures(connection, node.clock())
    ):
        pass


def count_due(node: Node) -> tuple[int, int]:
    """Note what has ended, and count the instances that are due, and all that wait."""
    note_ended(node)
    return node.database.read(lambda connection: count_waiting(connection, _due_before(node)))


def erase_due(
    node: Node, *, compact: bool, on_progress: OnErasing = lambda _what, _done, _total: None
) -> ErasureReport | None:
    """Erase everything that is due; None, and nothing is done, if another process of this home is at it.

    `compact`: rewrite the files of the database afterwards, if anything was erased since that was last done.
    """
    lock = try_file_lock(node.home / _LOCK)
    if lock is None:
        return None
    with lock:
        due, waiting = count_due(node)
        report = ErasureReport(waiting=waiting)
        before = _due_before(node)
        while not node.stopping.is_set():
            forgotten = node.database.write(lambda connection: forget_undue(connection, before, CHUNK))
            some = node.database.read(lambda connection: list_due(connection, before, CHUNK))
            if not some and not forgotten:
                break
            report.payloads += _erase(node, some)
            report.instances += len(some)
            on_progress("erasing", report.instances, max(due, report.instances))
        report.waiting -= report.instances
        remove_erased_blobs(node.database, node.blobs)
        again = node.database.read(lambda connection: list_erased_since(connection, node.clock() - _AGAIN))
        for start in range(0, len(again), CHUNK):
            _clear_views(node, again[start : start + CHUNK])
        if compact:
            report.is_compacted = _compact(node, on_progress)
        return report


def erase_at_once(node: Node, *instances: Hash) -> bool:
    """Erase instances that were deleted, whatever is left of their grace; their owner has asked for that.

    False if another process is erasing just now: they are then due, and go with what that process finds next.
    """

    def ask(connection: Connection) -> None:
        for instance in instances:
            ask_for_erasure(connection, instance)

    node.database.write(ask, durable=True)
    lock = try_file_lock(node.home / _LOCK)
    if lock is None:
        return False
    with lock:
        _erase(node, instances)
    return True


def _due_before(node: Node) -> int:
    return node.clock() - node.settings.erase_grace_seconds * _SECOND


def _erase(node: Node, instances: Collection[Hash]) -> int:
    journal = ErasureJournal(node.home)
    journal.append(instances)
    erased = erase_content(node.database, node.blobs, instances, node.clock())
    _clear_views(node, instances)
    node.database.write(lambda connection: _record(connection, journal.size, None))
    return erased.payloads


def _clear_views(node: Node, instances: Collection[Hash]) -> None:
    if not instances:
        return
    messages = node.database.read(lambda connection: list_erased_messages(connection, instances))
    database = node.views.database
    with hold_merge_lock(database):
        database.write(lambda connection: erase_from_views(connection, instances, messages))


def _record(connection: Connection, applied: int | None, compacted: int | None) -> None:
    before = read_applied(connection)
    write_applied(
        connection,
        applied if applied is not None else before[0],
        compacted if compacted is not None else before[1],
    )


def _compact(node: Node, on_progress: OnErasing) -> bool | None:
    began = node.clock()
    since = node.database.read(read_applied)[1]
    if not node.database.read(lambda connection: has_erased_since(connection, since)):
        return None
    on_progress("rewriting the database", 0, None)
    is_done = compact_files(node.database)
    if not node.database.is_postgresql:
        on_progress("rewriting the views", 0, None)
        is_done &= compact_files(node.views.database)
    if is_done:
        node.database.write(lambda connection: _record(connection, None, began))
    return is_done
