"""Reads all that is held of somebody's logs, for the node that signs for them, and finds out who can hold ours.

docs/protocol.md section 8.12. What waits in a request box counts as well: when its recipient accepts the sender, it is
compared with the logs.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, Table, and_, or_, select, union_all

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.store.db.connection import in_lists
from inkgrove.store.db.log_tables import branch_entries, entries, logs
from inkgrove.store.db.node_tables import (
    deliveries,
    identities,
    identity_keys,
    known_identities,
    notices,
    peers,
    relations,
    request_box,
    shares,
)
from inkgrove.store.federation.public_index import NO_OFFERED_ENTRIES, OfferedEntries, SeqNumRange
from inkgrove.store.logs.entries import LogState, find_log, log_state

_PIECE: Final = 500


def list_held_logs(
    connection: Connection, authors: Collection[PublicKey], *, after: int, limit: int
) -> tuple[list[LogState], int | None]:
    """A page of the logs of authors by the store's own number, those behind `after`, and where the next one begins."""
    query = select(logs).where(logs.c.author.in_(list(authors)), logs.c.id > after).order_by(logs.c.id).limit(limit)
    found = [log_state(row) for row in connection.execute(query)]
    return found, found[-1].id if len(found) == limit else None


def read_held_entries(
    connection: Connection,
    author: PublicKey,
    log_id: int,
    ranges: Sequence[SeqNumRange],
    *,
    after: int,
    most: int,
    most_bytes: int,
) -> OfferedEntries:
    """Every entry that is held in some ranges of a log, all evidence included, with its payload if that is held."""
    log = find_log(connection, author, log_id)
    if log is None:
        return NO_OFFERED_ENTRIES
    found: list[tuple[bytes, bytes | None]] = []
    size = last_seq = 0
    for first, last in ranges:
        for seq_num, encoded, payload in _rows(connection, log, max(first, after + 1), last):
            weight = len(encoded) + len(payload or b"")
            if found and seq_num != last_seq and (len(found) >= most or size + weight > most_bytes):
                return OfferedEntries(found, size, last_seq)
            found.append((encoded, payload))
            size, last_seq = size + weight, seq_num
    return OfferedEntries(found, size, None)


def _rows(connection: Connection, log: LogState, first: int, last: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    def select_from(table: Table) -> Select[Any]:
        columns = (table.c.seq_num, table.c.encoded, table.c.payload, table.c.hash)
        return select(*columns).where(table.c.log == log.id, table.c.seq_num.between(first, last))

    query: Any = select_from(entries).order_by(entries.c.seq_num, entries.c.hash)
    if log.aside:
        query = union_all(select_from(entries), select_from(branch_entries)).order_by("seq_num", "hash")
    with connection.execution_options(yield_per=_PIECE).execute(query) as found:
        for row in found:
            yield row[0], row[1], row[2]


def read_waiting_parcels(connection: Connection, sender: IdentityId) -> Iterator[bytes]:
    """The parcels of a sender that wait in request boxes here."""
    query = select(request_box.c.parcel).where(request_box.c.via == sender).order_by(request_box.c.id)
    with connection.execution_options(yield_per=20).execute(query) as found:
        for row in found:
            yield row[0]


class HeldShare(NamedTuple):
    """An instance of an author that was sent to somebody who lives here."""

    log: int
    """The log of its create, by the store's own number."""
    seq_num: int
    instance: Hash
    payload: bytes
    """Of the create."""
    recipients: list[IdentityId]


def list_held_shares(
    connection: Connection, authors: Collection[PublicKey], *, after: tuple[int, int], limit: int
) -> tuple[list[HeldShare], tuple[int, int] | None]:
    """A page of the creates of authors behind a place, with whom of the people here they were sent to.

    Those that were sent to nobody here are left out. Returns where the next page begins too.
    """
    own = select(logs.c.id).where(logs.c.author.in_(list(authors)), logs.c.log_id > 0)
    is_behind = or_(entries.c.log > after[0], and_(entries.c.log == after[0], entries.c.seq_num > after[1]))
    query = (
        select(entries.c.log, entries.c.seq_num, entries.c.hash, entries.c.payload)
        .where(entries.c.log.in_(own), entries.c.kind == "create", entries.c.payload.is_not(None), is_behind)
        .order_by(entries.c.log, entries.c.seq_num)
        .limit(limit)
    )
    found = connection.execute(query).all()
    sent: dict[bytes, list[IdentityId]] = {}
    here = select(identities.c.id).where(identities.c.lives_here)
    for some in in_lists([row.hash for row in found]):
        shared = select(shares.c.instance, shares.c.identity).where(
            shares.c.instance.in_(some), shares.c.identity.in_(here)
        )
        for instance, identity in connection.execute(shared.order_by(shares.c.identity)):
            sent.setdefault(bytes(instance), []).append(IdentityId(identity))
    held = [
        HeldShare(row.log, row.seq_num, Hash(row.hash), bytes(row.payload), sent[bytes(row.hash)])
        for row in found
        if bytes(row.hash) in sent
    ]
    return held, (found[-1].log, found[-1].seq_num) if len(found) == limit else None


# Who can hold ours


def kept_keys(connection: Connection) -> dict[IdentityId, list[tuple[PublicKey, bytes | None]]]:
    """The keys of every hosted identity, each with its encrypted secret if this node keeps it.

    Of who has moved away only kept ones: nobody believes this node any more when it asks in their name.
    """
    query = select(identity_keys.c.identity, identity_keys.c.author, identity_keys.c.sealed)
    query = query.join_from(identity_keys, identities, identities.c.id == identity_keys.c.identity)
    query = query.where(identities.c.lives_here | identity_keys.c.sealed.is_not(None))
    found: dict[IdentityId, list[tuple[PublicKey, bytes | None]]] = {}
    for identity, author, sealed in connection.execute(query.order_by(identity_keys.c.author)):
        found.setdefault(IdentityId(identity), []).append((PublicKey(author), sealed))
    return found


class MentionedIdentities(NamedTuple):
    """Identities elsewhere that some tables name by id."""

    names: set[str]
    """Of those whose name is known."""
    nameless: set[IdentityId]
    """Those whose name is not known."""


def find_receivers(connection: Connection) -> MentionedIdentities:
    """Identities elsewhere to whom something of ours was or is to be sent, and the peers."""
    is_accepted = relations.c.state == "accepted"
    found = _find_mentioned(
        connection,
        select(deliveries.c.recipient),
        select(shares.c.identity),
        select(relations.c.follower).where(is_accepted),
        select(relations.c.followee).where(is_accepted),
    )
    return MentionedIdentities(found.names | set(connection.scalars(select(peers.c.fqdn))), found.nameless)


def names_of_others(connection: Connection) -> set[str]:
    """Names of identities elsewhere who know of ours: they have at least looked up log 0."""
    columns = (relations.c.follower, relations.c.followee, notices.c.other, request_box.c.via)
    return _find_mentioned(connection, *(select(column) for column in columns)).names


def _find_mentioned(connection: Connection, *queries: Select[Any]) -> MentionedIdentities:
    mentioned = {found for query in queries for found in connection.scalars(query.distinct())}
    mentioned -= set(connection.scalars(select(identities.c.id)))
    known: dict[bytes, str] = {}
    for some in in_lists(sorted(mentioned)):
        query = select(known_identities.c.id, known_identities.c.fqdn).where(known_identities.c.id.in_(some))
        known |= {row.id: row.fqdn for row in connection.execute(query)}
    return MentionedIdentities(set(known.values()), {IdentityId(found) for found in mentioned - known.keys()})


def is_any_held(connection: Connection, authors: Collection[PublicKey], sender: IdentityId) -> bool:
    """Whether anything of these authors is held, in logs or in a request box."""
    in_logs = select(logs.c.id).where(logs.c.author.in_(list(authors)))
    in_boxes = select(request_box.c.id).where(request_box.c.via == sender)
    return connection.scalar(select(or_(in_logs.exists(), in_boxes.exists()))) is True
