"""The answering side of replication: what this node has for any other (docs/protocol.md section 8)."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.messages.replication import (
    MAX_LOGS,
    MAX_REPLICATION_BYTES,
    MAX_REPLICATION_ENTRIES,
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    ReplicatedEntry,
    Want,
)
from inkgrove.node.publishing import queue_news
from inkgrove.node.reading import parse_position, render_position
from inkgrove.node.runtime import Node
from inkgrove.store.federation.public_index import (
    indexed_offset,
    is_index_behind,
    offered_logs,
    read_offered,
    update_public_index,
)
from inkgrove.store.logs.positions import Offset

HEIGHTS_PATH: Final = "/federation/heights"
ENTRIES_PATH: Final = "/federation/entries"
_MOST_PAGES: Final = 10
"""How much of what happened is looked at before an answer; the rest is told another time."""


def catch_up(node: Node, pages: int = _MOST_PAGES) -> bool:
    """Bring the index of what is public up to date and queue what is to be sent on; whether there is more to look at.

    Here all ways meet by which something comes: deliveries, replication and imports, also those of other processes.
    """
    if not node.database.read(is_index_behind):
        return False
    return all(node.database.write(lambda connection: _follow(connection, node.clock())) for _ in range(pages))


def _follow(connection: Connection, now: int) -> bool:
    newer = update_public_index(connection, now)
    queue_news(connection, newer or (), now)
    return newer is not None


def tell_heights(node: Node, question: AskHeights) -> Heights:
    """A page of the logs that have news for the one who asks."""
    if question.after == 0:
        catch_up(node)
    since = _offset(node, question.since)

    def work(connection: Connection) -> Heights:
        position = indexed_offset(connection)
        # A position that this store has not come to is of a store that was here before.
        start = since if since is not None and since <= position else None
        logs, following = offered_logs(connection, start, after=question.after, limit=MAX_LOGS, now=node.clock())
        listed = [LogHeight(log.author, log.log_id, log.height, log.offered, log.proof) for log in logs]
        return Heights(listed, render_position(node.vault, position), following)

    return node.database.read(work)


def _offset(node: Node, position: str | None) -> Offset | None:
    try:
        return parse_position(node.vault, position) if position is not None else None
    except InkgroveError:
        return None  # of another node that had this name: begin at the beginning


def tell_entries(node: Node, wants: Sequence[Want]) -> Entries:
    """As much of what is wanted and may be had as fits into an answer."""
    catch_up(node)

    def work(connection: Connection) -> Entries:
        found: list[ReplicatedEntry] = []
        size = 0
        for number, want in enumerate(wants):
            if number and (len(found) >= MAX_REPLICATION_ENTRIES or size >= MAX_REPLICATION_BYTES):
                return Entries(found, (number, want.after))
            offered = read_offered(
                connection,
                want.author,
                want.log_id,
                want.ranges,
                after=want.after,
                most=max(1, MAX_REPLICATION_ENTRIES - len(found)),
                most_bytes=MAX_REPLICATION_BYTES - size,
                now=node.clock(),
            )
            found += offered.entries
            size += offered.size
            if offered.next is not None:
                return Entries(found, (number, offered.next))
        return Entries(found, None)

    return node.database.read(work)
