"""The answering side of replication: what this node has for any other (docs/protocol.md section 8)."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from inkgrove.core.entry import check_storable, decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.core.log import verify_fork_proof
from inkgrove.core.verify import verify_signed
from inkgrove.federation.peers.senders import LogOwner
from inkgrove.messages.delivery import decode_delivery
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
from inkgrove.node.errors import ViewError
from inkgrove.node.publishing.delivery_queue import queue_news
from inkgrove.node.reading.query import parse_position, render_position
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation.own_logs import list_held_logs, read_held_entries, read_waiting_parcels
from inkgrove.store.federation.public_index import (
    indexed_offset,
    is_index_behind,
    offered_logs,
    read_offered,
    update_public_index,
)
from inkgrove.store.logs.entries import LogState, find_log
from inkgrove.store.logs.positions import Offset
from inkgrove.store.logs.preparation import LogKey

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


def answer_heights(node: Node, question: AskHeights) -> Heights:
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


def answer_entries(node: Node, wants: Sequence[Want]) -> Entries:
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


# Gives somebody's entries back to the node that signs for them (docs/protocol.md section 8.12).
#
# A node whose database was put back from a copy asks how far its logs go. It alone may know: it proves that it holds
# the
# author's key, or that it serves the identity whose key a client keeps. It gets everything that is held of the
# author.


OWN_HEIGHTS_PATH: Final = "/federation/own/heights"
OWN_ENTRIES_PATH: Final = "/federation/own/entries"


def answer_own_heights(node: Node, owner: LogOwner, question: AskHeights) -> Heights:
    """A page of the owner's logs that are held here, each with the greatest place that was ever seen."""

    def work(connection: Connection) -> Heights:
        held, following = list_held_logs(connection, owner.authors, after=question.after, limit=MAX_LOGS)
        listed = {(log.author, log.log_id): LogHeight(log.author, log.log_id, log.height, log.held) for log in held}
        if following is None:
            for key, boxed in _boxed(connection, owner).items():
                log = find_log(connection, *key)
                height = max(*boxed, log.height if log is not None else 0)
                listed[key] = LogHeight(*key, height, len(boxed) + (log.held if log is not None else 0))
        return Heights(list(listed.values())[: 2 * MAX_LOGS], "", following)

    return node.database.read(work)


def answer_own_entries(node: Node, owner: LogOwner, wants: Sequence[Want]) -> Entries:
    """As much of what is wanted of the owner's logs as fits into an answer."""

    def work(connection: Connection) -> Entries:
        found: list[ReplicatedEntry] = []
        size = 0
        boxed = _boxed(connection, owner)
        for number, want in enumerate(wants):
            if want.author not in owner.authors:
                continue
            if found and (len(found) >= MAX_REPLICATION_ENTRIES or size >= MAX_REPLICATION_BYTES):
                return Entries(found, (number, want.after))
            held = read_held_entries(
                connection,
                want.author,
                want.log_id,
                want.ranges,
                after=want.after,
                most=max(1, MAX_REPLICATION_ENTRIES - len(found)),
                most_bytes=MAX_REPLICATION_BYTES - size,
            )
            waiting = _between(boxed.get((want.author, want.log_id), {}), want, held.next)
            some = sorted({*held.entries, *waiting}, key=_place)
            found += some
            size += sum(len(entry) + len(payload or b"") for entry, payload in some)
            if held.next is not None:
                return Entries(found, (number, held.next))
        return Entries(found, None)

    return node.database.read(work)


def _place(item: ReplicatedEntry) -> tuple[int, bytes]:
    return decode_entry(item[0]).seq_num, item[0]


def _boxed(connection: Connection, owner: LogOwner) -> dict[LogKey, dict[int, set[ReplicatedEntry]]]:
    """The owner's entries that wait in boxes of requests, by log and place."""
    found: dict[LogKey, dict[int, set[ReplicatedEntry]]] = {}
    for key, seq_num, item in _boxed_items(connection, owner.identity, owner.authors):
        found.setdefault(key, {}).setdefault(seq_num, set()).add(item)
    return found


def _boxed_items(
    connection: Connection, sender: IdentityId, authors: Collection[PublicKey]
) -> Iterator[tuple[LogKey, int, ReplicatedEntry]]:
    for body in read_waiting_parcels(connection, sender):
        for parcel in decode_delivery(body).parcels:
            for encoded, payload in parcel.entries:
                entry = decode_entry(encoded)
                if entry.author in authors:
                    yield (entry.author, entry.log_id), entry.seq_num, (encoded, payload)


def _between(boxed: dict[int, set[ReplicatedEntry]], want: Want, stopped_at: int | None) -> Iterator[ReplicatedEntry]:
    for seq_num, items in boxed.items():
        is_now = want.after < seq_num and (stopped_at is None or seq_num <= stopped_at)
        if is_now and any(first <= seq_num <= last for first, last in want.ranges):
            yield from items


# Fork proofs that anybody may bring, unsigned: two entries that contradict each other prove it by themselves.
#
# docs/protocol.md section 8. Only logs that are held here are of interest: else strangers could fill the store.


FORK_PROOFS_PATH: Final = "/federation/forks"


def take_fork_proof(node: Node, first: bytes, second: bytes) -> LogState:
    """Keep a proof as evidence against its log; how the log stands now. Raises unless both entries are verified."""
    entries = decode_entry(first), decode_entry(second)
    for entry in entries:
        check_storable(entry)
    signed = verify_signed(entries[0]), verify_signed(entries[1])
    proof = verify_fork_proof(*signed)
    place = proof.author, proof.log_id
    if node.store.read(find_log, *place) is None:
        raise ViewError("view.unknown-log", f"nothing of log {proof.log_id} of {proof.author} is held here")
    receipts = node.store.ingest([(item, None) for item in signed])
    log = node.store.read(find_log, *place)
    assert log is not None
    if log.standing.forked_at is None:
        # Both lie behind what is held of the log, and link to nothing of it.
        raise next(receipt.error for receipt in receipts if receipt.error is not None)
    return log
