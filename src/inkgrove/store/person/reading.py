"""Pages of what one identity has on this node, for its file; each page begins behind the last key of the one before."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, exists, or_, select, tuple_, union

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import in_lists
from inkgrove.store.db.log_tables import FOR_FOLLOWERS, encode_log_key, entries, log_schemas, logs, schemas
from inkgrove.store.db.node_tables import (
    accepted_senders,
    backlogs,
    blob_references,
    blob_rights,
    blobs,
    deliveries,
    identities,
    identity_keys,
    known_identities,
    notices,
    pending_recipients,
    relations,
    request_box,
    shares,
)
from inkgrove.store.db.rot_tables import pins
from inkgrove.store.logs.entries import LogState, log_state

_PAGE: Final = 1_000


def find_own_logs_of(connection: Connection, authors: Collection[PublicKey]) -> list[LogState]:
    """Return every log of these keys: log 0 of each first, in the order of the keys given, then the others by id."""
    found = []
    for author in authors:
        is_theirs = logs.c.name.between(encode_log_key(author, 0), author + b"\xff" * 8)
        found += [log_state(row) for row in connection.execute(select(logs).where(is_theirs).order_by(logs.c.name))]
    return sorted(found, key=lambda log: log.log_id != 0)  # stable: otherwise as they are


def schemas_named_in(connection: Connection, numbers: Collection[int]) -> set[SchemaId]:
    """Return the schemas that messages of these logs, given by the store's own numbers, name."""
    query = select(schemas.c.author, schemas.c.log_id).join_from(log_schemas, schemas).distinct()
    return {
        SchemaId(PublicKey(author), log_id)
        for some in in_lists(numbers)
        for author, log_id in connection.execute(query.where(log_schemas.c.log.in_(some)))
    }


# Copies


def _own_keys(identity: IdentityId) -> Select[tuple[bytes]]:
    return select(identity_keys.c.author).where(identity_keys.c.identity == identity)


def list_received(
    connection: Connection, identity: IdentityId, after: Hash | None, limit: int = _PAGE
) -> list[tuple[Hash, int]]:
    """Return instances of others that were sent to an identity, by hash, each with the time at which it was."""
    query = (
        select(shares.c.instance, shares.c.shared)
        .join_from(shares, entries, entries.c.hash == shares.c.instance)
        .join(logs, logs.c.id == entries.c.log)
        .where(shares.c.identity == identity, logs.c.author.not_in(_own_keys(identity)))
        .order_by(shares.c.instance)
        .limit(limit)
    )
    if after is not None:
        query = query.where(shares.c.instance > after)
    return [(Hash(instance), shared) for instance, shared in connection.execute(query)]


def find_followed_logs(connection: Connection, identity: IdentityId) -> list[LogState]:
    """Return the logs of those whom an identity follows, log 0 of each left out."""
    followed = select(identity_keys.c.author).join_from(
        relations, identity_keys, identity_keys.c.identity == relations.c.followee
    )
    is_followed = and_(relations.c.follower == identity, relations.c.state == "accepted")
    authors = [PublicKey(author) for author in connection.scalars(followed.where(is_followed).distinct())]
    return [log for log in find_own_logs_of(connection, sorted(authors)) if log.log_id != 0]


def list_creates_for_followers(
    connection: Connection, log: int, identity: IdentityId, after: int, limit: int = _PAGE
) -> list[tuple[int, Hash]]:
    """Return creates for followers in a log, by sequence number; not those that were sent to the identity besides."""
    was_sent = exists().where(shares.c.instance == entries.c.hash, shares.c.identity == identity)
    query = (
        select(entries.c.seq_num, entries.c.hash)
        .where(FOR_FOLLOWERS, entries.c.log == log, entries.c.seq_num > after)
        .where(entries.c.kind == "create", ~was_sent)
        .order_by(entries.c.seq_num)
        .limit(limit)
    )
    return [(seq_num, Hash(found)) for seq_num, found in connection.execute(query)]


# Blobs


class BlobInFile(NamedTuple):
    """A blob that belongs into the file of an identity."""

    hash: Hash
    size: int
    media_type: str | None
    """What the identity uploaded it as; None if it came with somebody else's instance."""


def list_file_blobs(
    connection: Connection, identity: IdentityId, after: Hash | None, limit: int = _PAGE
) -> list[BlobInFile]:
    """Return blobs that an identity has a right to, or that its own or received instances name, by hash."""
    own_right = and_(blob_rights.c.hash == blobs.c.hash, blob_rights.c.identity == identity)
    refers = blob_references.c
    was_sent = exists().where(shares.c.instance == refers.instance, shares.c.identity == identity)
    is_own = refers.author.in_(_own_keys(identity))
    is_named = exists().where(refers.hash == blobs.c.hash, or_(is_own, and_(was_sent, refers.is_lent)))
    query = (
        select(blobs.c.hash, blobs.c.size, blob_rights.c.media_type)
        .join_from(blobs, blob_rights, own_right, isouter=True)
        .where(or_(blob_rights.c.hash.is_not(None), is_named.correlate(blobs)))
        .order_by(blobs.c.hash)
        .limit(limit)
    )
    if after is not None:
        query = query.where(blobs.c.hash > after)
    return [BlobInFile(Hash(content), size, media_type) for content, size, media_type in connection.execute(query)]


# Rows


def read_person_rows(connection: Connection, identity: IdentityId, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table in a file, by the columns that `messages.person_file.ROWS` has for it."""
    queries = {
        "relations": _relations,
        "shares": _shares,
        "senders": _senders,
        "requests": _requests,
        "deliveries": _deliveries,
        "pending": _pending,
        "moves": _moves,
        "backlogs": _backlogs,
        "pins": _pins,
        "withheld": _withheld,
        "people": _people,
    }
    query, keys = queries[table](identity)
    after: Sequence[Any] | None = None
    # Large parcels are read one at a time.
    limit = 1 if table == "requests" else _PAGE
    while page := _read_page(connection, query, keys, after, limit):
        for row in page:
            yield tuple(row[: len(row) - len(keys)])
        after = page[-1][len(page[-1]) - len(keys) :]


_Query = tuple[Select[Any], list[ColumnElement[Any]]]
"""A query without its key columns, and these."""


def _read_page(
    connection: Connection,
    query: Select[Any],
    keys: list[ColumnElement[Any]],
    after: Sequence[Any] | None,
    limit: int,
) -> Sequence[Row[Any]]:
    page = query.add_columns(*(key.label(f"key_{number}") for number, key in enumerate(keys)))
    if after is not None:
        page = page.where(tuple_(*keys) > tuple(after))
    return connection.execute(page.order_by(*keys).limit(limit)).all()


def _relations(identity: IdentityId) -> _Query:
    r = relations.c
    # Groups are one's own: that of the other side is not in one's file.
    is_follower = r.follower == identity
    group = case((is_follower, r.follower_group), else_=r.followee_group)
    query = select(r.follower, r.followee, r.state, group, r.changed).where(or_(is_follower, r.followee == identity))
    return query, [r.follower, r.followee]


def _shares(identity: IdentityId) -> _Query:
    is_own = logs.c.author.in_(_own_keys(identity))
    query = (
        select(shares.c.instance, shares.c.identity, shares.c.shared)
        .join_from(shares, entries, entries.c.hash == shares.c.instance)
        .join(logs, logs.c.id == entries.c.log)
        .where(is_own)
    )
    return query, [shares.c.instance, shares.c.identity]


def _senders(identity: IdentityId) -> _Query:
    s = accepted_senders.c
    return select(s.sender, s.since).where(s.identity == identity), [s.sender]


def _requests(identity: IdentityId) -> _Query:
    r = request_box.c
    return select(r.via, r.instance, r.parcel, r.arrived, r.schema).where(r.recipient == identity), [r.id]


def _deliveries(identity: IdentityId) -> _Query:
    d = deliveries.c
    columns = (d.instance, d.recipient, d.wanted, d.delivered, d.state, d.code, d.queued, d.changed)
    return select(*columns).where(d.via == identity), [d.place]


def _pending(identity: IdentityId) -> _Query:
    p = pending_recipients.c
    return select(p.name, p.instance, p.state, p.code, p.queued, p.changed).where(p.via == identity), [p.id]


def _moves(identity: IdentityId) -> _Query:
    n = notices.c
    return select(n.other, n.as_follower, n.move, n.queued).where(n.me == identity), [n.id]


def _backlogs(identity: IdentityId) -> _Query:
    b = backlogs.c
    return select(b.follower, b.queued).where(b.followee == identity), [b.follower]


def _pins(identity: IdentityId) -> _Query:
    return select(pins.c.instance, pins.c.pinned).where(pins.c.identity == identity), [pins.c.instance]


def _withheld(identity: IdentityId) -> _Query:
    b = blob_references.c
    query = select(b.hash, b.instance, b.author).where(b.is_withheld, b.author.in_(_own_keys(identity)))
    return query, [b.hash, b.instance, b.author]


def _people(identity: IdentityId) -> _Query:
    """The names of everybody whom the other rows are about, as far as this node knows them."""
    own = logs.c.author.in_(_own_keys(identity))
    shared = select(shares.c.identity).join_from(shares, entries, entries.c.hash == shares.c.instance)
    about = union(
        select(relations.c.followee).where(relations.c.follower == identity),
        select(relations.c.follower).where(relations.c.followee == identity),
        select(deliveries.c.recipient).where(deliveries.c.via == identity),
        select(accepted_senders.c.sender).where(accepted_senders.c.identity == identity),
        select(request_box.c.via).where(request_box.c.recipient == identity),
        shared.join(logs, logs.c.id == entries.c.log).where(own),
    ).subquery()
    named = union(
        select(identities.c.id, identities.c.fqdn).where(identities.c.lives_here),
        select(known_identities.c.id, known_identities.c.fqdn),
    ).subquery()
    query = select(named.c.id, named.c.fqdn).where(named.c.id.in_(select(about)), named.c.id != identity)
    return query, [named.c.id, named.c.fqdn]
