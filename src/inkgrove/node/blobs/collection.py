"""Removes blobs that nothing refers to, after a grace period (docs/protocol.md section 8.10).

Whatever dies in the middle, the next run ends it: a file goes inside of the transaction that forgets its row, so there
may be a row of an unused blob without its file, never an instance whose blob was taken.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from inkgrove.core import Hash
from inkgrove.node.blobs.uploads import note_references
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection, in_lists
from inkgrove.store.locks import try_file_lock
from inkgrove.store.logs import follow_references
from inkgrove.store.views import claim_orphan, forget_unused, mark_unused, unknown_among, unused_blobs

_SECOND: Final = 1_000_000
_LONGEST_UPLOAD: Final = 6 * 3600


@dataclass(slots=True)
class CollectedBlobs:
    """What a run removed."""

    blobs: int = 0
    orphans: int = 0
    """Files that no row knew, and drafts whose writers died."""
    bytes: int = 0


def collect_blobs(node: Node, grace_seconds: int | None = None) -> CollectedBlobs:
    """Remove what has been unused for the grace period, which is a setting unless it is given."""
    update_blob_references(node)
    collected = CollectedBlobs()
    if node.stopping.is_set():  # perhaps before every reference was found
        return collected
    now = node.clock()
    unused_before = now - (node.settings.blob_grace_seconds if grace_seconds is None else grace_seconds) * _SECOND
    node.database.write(lambda connection: mark_unused(connection, now))
    for content in node.database.read(lambda connection: unused_blobs(connection, unused_before)):
        freed = _remove(node, content, lambda connection, unused: forget_unused(connection, unused, unused_before))
        if freed is not None:
            collected.blobs += 1
            collected.bytes += freed
    # However short the grace period: a file without a row may be that of an upload under way.
    before = min(unused_before, now - _LONGEST_UPLOAD * _SECOND)
    for some in in_lists(node.blobs.old_blobs(before)):
        for content in node.database.read(lambda connection, old=some: unknown_among(connection, old)):  # type: ignore[misc]
            freed = _remove(node, content, claim_orphan)
            if freed is not None:
                collected.orphans += 1
                collected.bytes += freed
    for draft in node.blobs.old_drafts(before):
        with suppress(FileNotFoundError):
            size = draft.stat().st_size
            draft.unlink()
            collected.orphans += 1
            collected.bytes += size
    return collected


def collect_if_alone(node: Node) -> CollectedBlobs | None:
    """Collect blobs as `collect_blobs` does; None, and nothing goes, if another process of this home is at it."""
    node.blobs.directory.mkdir(parents=True, exist_ok=True)
    lock = try_file_lock(node.blobs.directory / ".collecting")
    if lock is None:
        return None
    with lock:
        return collect_blobs(node)


def update_blob_references(node: Node) -> None:
    """Follow the logs: what authors may lend that came past the node's publishing, and what counts otherwise now."""

    def work(connection: Connection) -> bool:
        return follow_references(
            connection, lambda said: note_references(node, connection, said.instance, said.message, said.author)
        )

    while not node.stopping.is_set() and node.database.write(work):
        pass


def _remove(node: Node, content: Hash, may_go: Callable[[Connection, Hash], bool]) -> int | None:
    def work(connection: Connection) -> int | None:
        return node.blobs.remove(content) if may_go(connection, content) else None

    return node.database.write(work)
