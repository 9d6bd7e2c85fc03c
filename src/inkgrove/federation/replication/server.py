"""The answering side of replication (docs/protocol.md sections 8 and 8.12).

Any node is told of and given what is offered: schemas, log 0 of identities, public instances. The node that signs for
an author gets everything that is held of the author's logs, also what waits in request boxes: it asks after its
database was restored from a backup. Anybody may bring a fork proof, unsigned: it proves itself.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from inkgrove.core import ForkProof, IdentityId, check_storable, decode_entry, verify_fork_proof, verify_signed
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.federation.peers.senders import LogOwner
from inkgrove.messages import (
    MAX_LOGS,
    MAX_RELATIONS,
    MAX_REPLICATION_BYTES,
    MAX_REPLICATION_ENTRIES,
    MAX_SHARES,
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    ReplicatedEntry,
    ToldRelation,
    ToldRelations,
    ToldShare,
    ToldShares,
    Want,
    decode_delivery,
    share_proof,
)
from inkgrove.node.errors import ViewError
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log
from inkgrove.node.publishing import queue_news
from inkgrove.node.reading import parse_position, render_position
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    OfferedEntries,
    indexed_offset,
    is_index_behind,
    list_held_logs,
    list_held_shares,
    offered_logs,
    read_held_entries,
    read_offered,
    read_waiting_parcels,
    update_public_index,
)
from inkgrove.store.logs import LogKey, Offset, find_fork_proof, find_log
from inkgrove.store.node import Side, living_among, read_relations

HEIGHTS_PATH: Final = "/federation/heights"
ENTRIES_PATH: Final = "/federation/entries"
OWN_HEIGHTS_PATH: Final = "/federation/own/heights"
OWN_ENTRIES_PATH: Final = "/federation/own/entries"
OWN_RELATIONS_PATH: Final = "/federation/own/relations"
OWN_SHARES_PATH: Final = "/federation/own/shares"
_SHARES_PAGE: Final = 500
"""How many instances are looked at for a page of shares."""
FORK_PROOFS_PATH: Final = "/federation/forks"
_MOST_PAGES: Final = 10
"""How many pages of new ingests are indexed before an answer; the rest is answered another time."""


def catch_up(node: Node, pages: int = _MOST_PAGES) -> bool:
    """Bring the public index up to date and queue what is to be sent on; returns whether there is more to index.

    It follows everything that comes in: deliveries, replication and imports, also those of other processes.
    """
    if not node.database.read(is_index_behind):
        return False
    return all(node.database.write(lambda connection: _index_page(connection, node.clock())) for _ in range(pages))


def _index_page(connection: Connection, now: int) -> bool:
    newer = update_public_index(connection, now)
    queue_news(connection, newer or (), now)
    return newer is not None


def answer_heights(node: Node, question: AskHeights) -> Heights:
    """Return a page of the offered logs that have changed since the position that the question names."""
    if question.after == 0:
        catch_up(node)
    since = _offset(node, question.since)

    def work(connection: Connection) -> Heights:
        position = indexed_offset(connection)
        # A position that this store has not reached is of a store that was here before.
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


def _fill(wants: Sequence[tuple[int, Want]], read: Callable[[Want, int, int], OfferedEntries]) -> Entries:
    """Answer wants, each given with its number in the question, until the answer is full.

    `read` returns what there is for a want, at most about as many entries and bytes as it is told.
    """
    found: list[ReplicatedEntry] = []
    size = 0
    for number, want in wants:
        if len(found) >= MAX_REPLICATION_ENTRIES or size >= MAX_REPLICATION_BYTES:
            return Entries(found, (number, want.after))
        some = read(want, MAX_REPLICATION_ENTRIES - len(found), MAX_REPLICATION_BYTES - size)
        found += some.entries
        size += some.size
        if some.next is not None:
            return Entries(found, (number, some.next))
    return Entries(found, None)


def answer_entries(node: Node, wants: Sequence[Want]) -> Entries:
    """Return as much of what is wanted and offered as fits into an answer."""
    catch_up(node)

    def work(connection: Connection) -> Entries:
        def read(want: Want, most: int, most_bytes: int) -> OfferedEntries:
            return read_offered(
                connection,
                want.author,
                want.log_id,
                want.ranges,
                after=want.after,
                most=most,
                most_bytes=most_bytes,
                now=node.clock(),
            )

        return _fill(list(enumerate(wants)), read)

    return node.database.read(work)


# An author's own logs


def answer_own_heights(node: Node, owner: LogOwner, question: AskHeights) -> Heights:
    """Return a page of the owner's logs that are held here, each with the highest sequence number ever seen."""

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
    """Return as much of what is wanted of the owner's logs as fits into an answer; wants for other logs get nothing."""

    def work(connection: Connection) -> Entries:
        boxed = _boxed(connection, owner)

        def read(want: Want, most: int, most_bytes: int) -> OfferedEntries:
            held = read_held_entries(
                connection,
                want.author,
                want.log_id,
                want.ranges,
                after=want.after,
                most=most,
                most_bytes=most_bytes,
            )
            waiting = _between(boxed.get((want.author, want.log_id), {}), want, held.next)
            some = sorted({*held.entries, *waiting}, key=lambda item: (decode_entry(item[0]).seq_num, item[0]))
            return OfferedEntries(some, sum(len(entry) + len(payload or b"") for entry, payload in some), held.next)

        return _fill([(number, want) for number, want in enumerate(wants) if want.author in owner.authors], read)

    return node.database.read(work)


def answer_own_relations(node: Node, owner: LogOwner, since: str | None) -> ToldRelations:
    """Return a page of the relations between the owner and people who live here; blocks and refusals are not told."""
    after: tuple[Side, IdentityId] | None = None
    if since is not None:
        side, _, other = since.partition(" ")
        if side not in ("followers", "following") or len(other) != 64 or not set(other) <= set("0123456789abcdef"):
            raise ParcelError("parcel.bad-replication", "a position is a text that this node gave out")
        after = ("followers" if side == "followers" else "following"), IdentityId.fromhex(other)

    def work(connection: Connection) -> ToldRelations:
        found = read_relations(connection, owner.identity, after=after, limit=MAX_RELATIONS)
        here = living_among(connection, {item.identity for item in found})
        told = [
            ToldRelation(item.identity, item.fqdn, item.side, item.state, item.changed)
            for item in found
            if item.identity in here and item.fqdn is not None and item.state in ("accepted", "requested")
        ]
        last = found[-1] if len(found) == MAX_RELATIONS else None
        return ToldRelations(told, None if last is None else f"{last.side} {last.identity.hex()}")

    return node.database.read(work)


def answer_own_shares(node: Node, owner: LogOwner, since: str | None) -> ToldShares:
    """Return a page of the owner's instances that were sent to people who live here, each with the proof of holding."""
    after = (0, 0)
    if since is not None:
        log, _, seq_num = since.partition(" ")
        if not (log.isascii() and log.isdecimal() and seq_num.isascii() and seq_num.isdecimal()):
            raise ParcelError("parcel.bad-replication", "a position is a text that this node gave out")
        after = min(int(log), MAX_STORED_INTEGER), min(int(seq_num), MAX_STORED_INTEGER)

    def work(connection: Connection) -> ToldShares:
        found, following = list_held_shares(connection, owner.authors, after=after, limit=_SHARES_PAGE)
        told = [
            ToldShare(item.instance, to, share_proof(item.payload, owner.asks))
            for item in found
            for to in item.recipients[: MAX_SHARES // _SHARES_PAGE]
        ]
        return ToldShares(told, None if following is None else f"{following[0]} {following[1]}")

    return node.database.read(work)


def _boxed(connection: Connection, owner: LogOwner) -> dict[LogKey, dict[int, set[ReplicatedEntry]]]:
    """The owner's entries that wait in request boxes, by log and sequence number."""
    found: dict[LogKey, dict[int, set[ReplicatedEntry]]] = {}
    for body in read_waiting_parcels(connection, owner.identity):
        for parcel in decode_delivery(body).parcels:
            for item in parcel.entries:
                entry = decode_entry(item[0])
                if entry.author in owner.authors:
                    log = found.setdefault((entry.author, entry.log_id), {})
                    log.setdefault(entry.seq_num, set()).add(item)
    return found


def _between(boxed: dict[int, set[ReplicatedEntry]], want: Want, stopped_at: int | None) -> Iterator[ReplicatedEntry]:
    for seq_num, items in boxed.items():
        is_now = want.after < seq_num and (stopped_at is None or seq_num <= stopped_at)
        if is_now and any(first <= seq_num <= last for first, last in want.ranges):
            yield from items


# Fork proofs


def take_fork_proof(node: Node, first: bytes, second: bytes) -> ForkProof:
    """Keep a proof as evidence against its log and return the proof of the earliest fork that is known of it.

    Raises an error of the entries if one of them is not verified, `log.not-a-fork`, or `view.unknown-log` if nothing
    of the log is held: else strangers could fill the store.
    """
    entries = decode_entry(first), decode_entry(second)
    for entry in entries:
        check_storable(entry)
    signed = verify_signed(entries[0]), verify_signed(entries[1])
    proof = verify_fork_proof(*signed)
    if node.store.read(find_log, proof.author, proof.log_id) is None:
        raise ViewError("view.unknown-log", f"nothing of log {proof.log_id} of {proof.author} is held here")
    receipts = node.store.ingest([(item, None) for item in signed])
    if proof.log_id == IDENTITY_LOG:
        node.database.write(lambda connection: apply_identity_log(connection, proof.author))
    found = node.store.read(find_fork_proof, proof.author, proof.log_id)
    if found is None:
        # Both lie behind what is held of the log, and link to nothing of it.
        raise next(receipt.error for receipt in receipts if receipt.error is not None)
    return found
