"""Gives somebody's entries back to the node that signs for them (docs/protocol.md section 8.12).

A node whose database was put back from a copy asks how far its logs go. It alone may know: it proves that it holds the
author's key, or that it serves the identity whose key a client keeps. It gets everything that is held of the author.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.entry import decode_entry
from inkgrove.core.keys import IdentityId, PublicKey
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
from inkgrove.node.runtime import Node
from inkgrove.store.federation.own_logs import list_held_logs, read_held_entries, read_waiting_parcels
from inkgrove.store.logs.entries import find_log
from inkgrove.store.logs.preparation import LogKey

OWN_HEIGHTS_PATH: Final = "/federation/own/heights"
OWN_ENTRIES_PATH: Final = "/federation/own/entries"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who asks: an identity, and the keys whose logs they may have back."""

    identity: IdentityId
    authors: frozenset[PublicKey]


def tell_own_heights(node: Node, owner: Owner, question: AskHeights) -> Heights:
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


def tell_own_entries(node: Node, owner: Owner, wants: Sequence[Want]) -> Entries:
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


def _boxed(connection: Connection, owner: Owner) -> dict[LogKey, dict[int, set[ReplicatedEntry]]]:
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
