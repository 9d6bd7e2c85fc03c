"""Ingest positions: one small row for each thing that can change a view, in an order that readers can follow.

docs/protocol.md section 6. A reader that goes from offset to offset misses nothing. SQLite has one writer, so positions
are in the order of commits. PostgreSQL hands out positions before commit: there the order is (transaction, position),
and only transactions older than every open one are shown.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Subquery,
    Text,
    Tuple,
    and_,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    update,
)

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import Compiled
from inkgrove.store.db.log_tables import TransactionId, entries, ingests, logs, registered, schemas


class IngestKind(StrEnum):
    """What happened."""

    ENTRY = "entry"
    PAYLOAD = "payload"
    """The payload of an entry came after it."""
    PAYLOAD_DROPPED = "payload-dropped"
    FORK = "fork"
    """The log is forked at this sequence number; nothing counts from there on."""
    LIE = "lie"
    """The entry lies about the size of its payload; nothing counts from there on."""
    ENDED = "ended"
    """The log was ended here, or its key revoked or no longer so: entries from here on count otherwise than before."""
    BRANCH = "branch"
    """A pin has begun or ceased to decide which branch counts: all of the log counts otherwise from here on."""
    REGISTERED = "registered"
    UNREGISTERED = "unregistered"


VERDICTS: Final = frozenset({IngestKind.FORK, IngestKind.LIE, IngestKind.ENDED, IngestKind.BRANCH})
"""What lets entries that are held count otherwise than before, from its sequence number on."""


class Offset(NamedTuple):
    """How far a reader has come."""

    xid: int
    """The writing transaction; 0 on SQLite."""
    position: int


START: Final = Offset(0, 0)


class Ingest(NamedTuple):
    """One thing that happened. If several entries are held at its sequence number, there is one for each."""

    offset: Offset
    what: IngestKind
    log: int | None
    """The store's own number of the log."""
    seq_num: int | None
    hash: Hash | None
    create_seq: int | None
    """The entry that the message here is folded with; None if its payload never came."""
    schema: SchemaId | None
    """For changes of the registry."""


def _page_of_ingests(connection: Connection, after: Offset, limit: int) -> Subquery:
    page = (
        select(ingests).where(is_after_offset(connection, after), _is_final(connection)).order_by(*_order(connection))
    )
    return page.limit(limit).subquery()


def read_range(connection: Connection, after: Offset, limit: int) -> tuple[ColumnElement[bool], Offset]:
    """Read up to where the next page of ingests goes: a condition for its rows of `ingests`, and the offset behind it.

    All that lies between the two offsets is in its final order: every query about it sees the same rows.
    """
    page = _page_of_ingests(connection, after, limit)
    row = connection.execute(
        select(page.c.xid, page.c.position).order_by(page.c.xid.desc(), page.c.position.desc()).limit(1)
    ).first()
    end = Offset(row.xid, row.position) if row is not None else after
    return and_(is_after_offset(connection, after), _is_up_to_offset(connection, end)), end


def read_ingests(connection: Connection, after: Offset = START, limit: int = 10_000) -> tuple[list[Ingest], Offset]:
    """What happened after an offset, oldest first, and the offset behind it."""
    some = _page_of_ingests(connection, after, limit)
    query = (
        select(some, entries.c.hash, entries.c.create_seq, schemas.c.author, schemas.c.log_id)
        .select_from(some)
        .outerjoin(entries, and_(entries.c.log == some.c.log, entries.c.seq_num == some.c.seq_num))
        .outerjoin(schemas, schemas.c.id == some.c.schema)
        .order_by(some.c.xid, some.c.position, entries.c.id)
    )
    rows = [_ingest(row) for row in connection.execute(query)]
    return rows, rows[-1].offset if rows else after


def newest_offset(connection: Connection) -> Offset:
    """The offset behind everything that readers see now."""
    order = [column.desc() for column in _order(connection)]
    query = select(ingests.c.xid, ingests.c.position).where(_is_final(connection)).order_by(*order).limit(1)
    row = connection.execute(query).first()
    return Offset(row.xid, row.position) if row is not None else START


def authors_since(connection: Connection, log_id: int, after: Offset) -> list[PublicKey]:
    """Whose logs with this id something happened to after an offset."""
    query = (
        select(logs.c.author)
        .join_from(ingests, logs)
        .where(is_after_offset(connection, after), logs.c.log_id == log_id)
    )
    return [PublicKey(author) for author in connection.scalars(query.distinct().order_by(logs.c.author))]


def has_schema_news(connection: Connection, after: Offset) -> bool:
    """Whether the list of registered schemas or the log of one of them changed after an offset."""
    is_of_schema = exists().where(
        logs.c.id == ingests.c.log, schemas.c.name == logs.c.name, registered.c.schema == schemas.c.id
    )
    query = select(literal(1)).select_from(ingests).where(is_after_offset(connection, after))
    return connection.scalar(query.where(or_(ingests.c.schema.is_not(None), is_of_schema)).limit(1)) is not None


def count_after(connection: Connection, after: Offset, limit: int) -> int:
    """How much happened after an offset; no more than `limit` is counted."""
    some = select(literal(1)).select_from(ingests).where(is_after_offset(connection, after), _is_final(connection))
    return connection.scalar(select(func.count()).select_from(some.limit(limit).subquery())) or 0


def _ingest(row: Any) -> Ingest:
    return Ingest(
        Offset(row.xid, row.position),
        IngestKind(row.what),
        row.log,
        row.seq_num,
        Hash(row.hash) if row.hash is not None else None,
        row.create_seq,
        SchemaId(PublicKey(row.author), row.log_id) if row.author is not None else None,
    )


def _order(connection: Connection) -> list[ColumnElement[int]]:
    position = ingests.c.position
    return [ingests.c.xid, position] if connection.dialect.name == "postgresql" else [position]


def is_after_offset(connection: Connection, offset: Offset) -> ColumnElement[bool]:
    """Whether something happened after an offset."""
    if offset == START:
        return true()
    if connection.dialect.name == "postgresql":
        return tuple_(ingests.c.xid, ingests.c.position) > _row_of(offset)
    return ingests.c.position > offset.position


def _is_up_to_offset(connection: Connection, offset: Offset) -> ColumnElement[bool]:
    if connection.dialect.name == "postgresql":
        return tuple_(ingests.c.xid, ingests.c.position) <= _row_of(offset)
    return ingests.c.position <= offset.position


def _row_of(offset: Offset) -> Tuple:
    # The row itself says where it stands now: a restored database numbers its transactions anew.
    own_xid = select(ingests.c.xid).where(ingests.c.position == offset.position).scalar_subquery()
    return tuple_(func.coalesce(own_xid, offset.xid), literal(offset.position))


def _is_final(connection: Connection) -> ColumnElement[bool]:
    return is_in_final_order(connection, ingests.c.xid)


def is_in_final_order(connection: Connection, xid: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether no transaction that is still open can put a row before the one that this transaction wrote."""
    if connection.dialect.name == "postgresql":
        return xid < _number(func.pg_snapshot_xmin(func.pg_current_snapshot()))
    return true()


def _number(xid: ColumnElement[Any]) -> ColumnElement[int]:
    return cast(cast(xid, Text), BigInteger)


def is_restored(connection: Connection) -> bool:
    """Whether there are rows of transactions that this PostgreSQL server has not come to: a dump was restored to it."""
    next_xid = _number(func.pg_snapshot_xmax(func.pg_current_snapshot()))
    newest = select(ingests.c.xid).order_by(ingests.c.xid.desc()).limit(1).scalar_subquery()
    return bool(connection.scalar(select(newest >= next_xid)))


def adopt_restored(connection: Connection) -> None:
    """Put restored rows, in their order, before every transaction to come; offsets from before still hold."""
    newest = connection.scalar(select(func.max(ingests.c.xid)))
    connection.execute(update(ingests).values(xid=ingests.c.xid - newest - 1))


_OFFSETS = select(ingests.c.xid, ingests.c.position)


_newest: Final = Compiled(lambda _: _OFFSETS.order_by(ingests.c.xid.desc(), ingests.c.position.desc()).limit(1))


_newest_by_position: Final = Compiled(lambda _: _OFFSETS.order_by(ingests.c.position.desc()).limit(1))


_own: Final = Compiled(
    lambda _: _OFFSETS.where(ingests.c.xid == TransactionId()).order_by(ingests.c.position.desc()).limit(1)
)


def own_offset(connection: Connection) -> Offset:
    """The offset behind everything that this transaction, or before it any other, has appended."""
    row = None
    if connection.dialect.name == "postgresql":
        row = _own.first(connection) or _newest.first(connection)
    else:
        row = _newest_by_position.first(connection)  # one writer: positions are in the order of commits
    return Offset(*row) if row is not None else START
