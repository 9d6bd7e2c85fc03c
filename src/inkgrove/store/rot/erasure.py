"""Erases the content of instances that were deleted or have expired (docs/protocol.md section 9.5).

`note_erasures` follows the logs and notes what is to go; `list_due` says what is due; `erase_instances` takes it out of
the node's tables, `erase_from_views` out of those of the views, each in the caller's transaction. `compact_files` then
rewrites the files of the database: what was deleted is in none of them any more.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    MetaData,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    inspect,
    literal,
    null,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError

from inkgrove.core import Hash, PublicKey, decode_entry
from inkgrove.messages import Create, Delete, Update, decode_if_valid
from inkgrove.store.db.connection import (
    Database,
    in_lists,
    insert_new,
    pairs_as_parameters,
    put_row,
    table_of_pairs,
)
from inkgrove.store.db.erasure_tables import erasure_journal, erasure_progress, erasures
from inkgrove.store.db.log_tables import branch_entries, entries, logs
from inkgrove.store.db.node_tables import (
    blob_references,
    blobs,
    idempotency,
    identity_keys,
    request_box,
)
from inkgrove.store.db.rot_tables import copies, copy_reads, rot_victims, summaries
from inkgrove.store.files import BlobFiles
from inkgrove.store.logs.blob_references import blobs_in
from inkgrove.store.logs.entries import drop_payloads
from inkgrove.store.logs.followers import PAGE_SIZE, follow
from inkgrove.store.logs.other_logs import EndsInStore, read_ends, references_at, references_of_keys
from inkgrove.store.logs.positions import Ingest, IngestKind, read_ingests
from inkgrove.store.rot.copies import EXPIRES_KEY, read_expiry
from inkgrove.store.views.blob_index import forget_unused
from inkgrove.store.views.tables import ROW_COLUMNS

FEW_COPIES: Final = 20
"""A summary of fewer copies shows too much of each: it goes with the first of them that is erased."""
_TELLING: Final = (IngestKind.ENTRY, IngestKind.PAYLOAD)
_ONLY: Final = 1
_ERASED: Final = 0
"""The time since which a blob is unused that an erased instance named, until it is removed."""


class InstanceEnd(NamedTuple):
    """When the grace of an instance begins: with its delete, or when it expires."""

    instance: Hash
    log: int
    create_seq: int
    is_deleted: bool
    expires: int | None


# Noting what is to go


def note_erasures(connection: Connection, now: int, limit: int = PAGE_SIZE) -> bool:
    """Look through the next page of what happened, and note what was deleted or will expire; whether there was any."""

    def handle(happened: list[Ingest]) -> bool:
        came = [item for item in happened if item.what in _TELLING and item.log is not None]
        places = {(item.log, item.create_seq) for item in came if item.log and item.create_seq is not None}
        # A delete may also name an instance of another log, by whichever key of its owner (section 5.7).
        ends = references_at(connection, {(item.log, item.seq_num) for item in came if item.log and item.seq_num})
        changed_keys = {item.log for item in happened if item.what is IngestKind.KEYS and item.log is not None}
        ends += references_of_keys(connection, changed_keys)
        places |= {end.target for end in ends if end.target is not None}
        for end in _read_ends(connection, places):
            _note(connection, end, now)
        return True

    return follow(connection, erasure_progress, read_ingests, handle, limit) is not None


def _note(connection: Connection, end: InstanceEnd, now: int) -> None:
    is_waiting = (erasures.c.instance == end.instance, erasures.c.erased.is_(None))
    since = now if end.is_deleted else end.expires
    if since is None:  # it does not expire any more
        connection.execute(delete(erasures).where(*is_waiting))
        return
    row = {"instance": end.instance, "log": end.log, "create_seq": end.create_seq, "since": since}
    connection.execute(insert_new(connection, erasures), row)
    # Who asked for it at once has done so; else a delete does not wait for an expiry, and the newest expiry counts.
    values = case((erasures.c.since < since, erasures.c.since), else_=since) if end.is_deleted else literal(since)
    connection.execute(update(erasures).where(*is_waiting, erasures.c.since > 0).values(since=values))


def _read_ends(connection: Connection, places: Collection[tuple[int, int]]) -> Iterator[InstanceEnd]:
    """Of creates whose payloads are held, given by log and sequence number: those that have ended, or may expire."""
    if not places:
        return
    dialect = connection.dialect.name
    wanted, creates, others = table_of_pairs(dialect), entries.alias("creates"), entries.alias("others")
    is_its = and_(others.c.log == creates.c.log, others.c.create_seq == creates.c.seq_num)
    counts = [or_(bound.is_(None), others.c.seq_num <= bound) for bound in (logs.c.ended_at, logs.c.revoked_after)]
    is_of_schema = or_(others.c.schema.is_(None), others.c.schema == creates.c.schema)
    is_deleted = exists().where(is_its, others.c.kind == "delete", is_of_schema, *counts)
    payload = others.c.payload
    if dialect == "sqlite":
        says_expires: Any = func.instr(payload, literal(EXPIRES_KEY)) > 0
    else:
        says_expires = payload.op("LIKE")(literal(b"%" + EXPIRES_KEY + b"%"))
    may_expire = exists().where(is_its, says_expires)
    stands = [or_(bound.is_(None), creates.c.seq_num < bound) for bound in (logs.c.forked_at, logs.c.lied_at)]
    query = (
        select(
            creates.c.hash,
            creates.c.log,
            creates.c.seq_num,
            logs.c.author,
            is_deleted.label("is_deleted"),
            may_expire.label("may_expire"),
        )
        .join_from(wanted, creates, (creates.c.log == wanted.c.first) & (creates.c.seq_num == wanted.c.second))
        .join(logs, logs.c.id == creates.c.log)
        .where(creates.c.kind == "create", *stands)
    )
    rows = connection.execute(query, pairs_as_parameters(dialect, sorted(places))).all()
    elsewhere = read_ends(connection, [Hash(row.hash) for row in rows if not row.is_deleted])
    for row in rows:
        instance = Hash(row.hash)
        is_deleted_here = bool(row.is_deleted) or _is_deleted_elsewhere(connection, elsewhere, instance, row.author)
        can_expire = row.may_expire and not is_deleted_here
        expires = read_expiry(connection, row.log, row.seq_num) if can_expire else None
        yield InstanceEnd(instance, row.log, row.seq_num, is_deleted_here, expires)


def _is_deleted_elsewhere(connection: Connection, ends: EndsInStore, instance: Hash, author: bytes) -> bool:
    """Whether a delete in another log ends an instance; one that is continued lives on in its line."""
    if instance not in ends:
        return False
    create = connection.scalar(select(entries.c.payload).where(entries.c.hash == instance))
    message = decode_if_valid(create)
    counted = ends.of_key(connection, PublicKey(author)).get(instance, ())
    return isinstance(message, Create) and any(
        isinstance(end.message, Delete)
        and end.message.schema is not None
        and end.message.schema.schema_id == message.schema.schema_id
        for end in counted
    )


def was_deleted(connection: Connection, log: int, create_seq: int) -> bool:
    """Whether a delete that counts is held of the instance whose create stands there."""
    return any(end.is_deleted for end in _read_ends(connection, [(log, create_seq)]))


def ask_for_erasure(connection: Connection, instance: Hash) -> None:
    """Let the grace of an instance that was deleted be over; its owner asks for that."""
    query = select(entries.c.log, entries.c.seq_num).where(entries.c.hash == instance)
    place = connection.execute(query).first()
    if place is not None:
        row = {"instance": instance, "log": place.log, "create_seq": place.seq_num, "since": 0}
        connection.execute(insert_new(connection, erasures), row)
        connection.execute(update(erasures).where(erasures.c.instance == instance).values(since=0))


def list_due(connection: Connection, before: int, limit: int) -> list[Hash]:
    """List instances whose grace began before a time, those first that have waited longest.

    What has not ended after all, by what is held now, is not among them and is forgotten by `forget_undue`.
    """
    return [end.instance for end in _due(connection, before, limit) if _is_due(end, before)]


def forget_undue(connection: Connection, before: int, limit: int) -> int:
    """Forget what was noted and is not to go any more, such as an instance whose owner let it live on; how many."""
    undue = [end for end in _due(connection, before, limit) if not _is_due(end, before)]
    for end in undue:
        waits = (erasures.c.instance == end.instance, erasures.c.erased.is_(None))
        if end.expires is None:
            connection.execute(delete(erasures).where(*waits))
        else:
            connection.execute(update(erasures).where(*waits).values(since=end.expires))
    return len(undue)


def _is_due(end: InstanceEnd, before: int) -> bool:
    return end.is_deleted or (end.expires is not None and end.expires < before)


def _due(connection: Connection, before: int, limit: int) -> list[InstanceEnd]:
    query = (
        select(erasures.c.instance, erasures.c.log, erasures.c.create_seq)
        .where(erasures.c.erased.is_(None), erasures.c.since < before)
        .order_by(erasures.c.since, erasures.c.instance)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    ends = {end.instance: end for end in _read_ends(connection, {(row.log, row.create_seq) for row in rows})}
    gone = InstanceEnd(Hash(b""), 0, 0, False, None)
    return [ends.get(Hash(row.instance), gone._replace(instance=Hash(row.instance))) for row in rows]


def count_waiting(connection: Connection, before: int) -> tuple[int, int]:
    """Count the instances that are due before a time, and all that wait."""
    is_due = func.coalesce(func.sum(case((erasures.c.since < before, 1), else_=0)), 0)
    row = connection.execute(select(is_due, func.count()).where(erasures.c.erased.is_(None))).one()
    return int(row[0]), int(row[1])


# Erasing


@dataclass(frozen=True, slots=True)
class ErasedContent:
    """What was taken out of the node's tables."""

    instances: int
    payloads: int


def erase_instances(connection: Connection, instances: Collection[Hash], now: int, since: int = 0) -> ErasedContent:
    """Take the content of instances out of the node's tables; of those that are not held, note that they were erased.

    What proves a lie about a size stays. The blobs that they named are marked, for `remove_marked_blobs`: whoever dies
    before that does not forget them. `since` is the beginning of the grace of those that were not noted before.
    """
    places = _lock(connection, instances)
    messages = _content_of(connection, places.values())
    # References end with the delete: only the payloads still say what they named.
    named = {content for _, _, _, payload in messages for content in _blobs_in_payload(payload)}
    payloads = drop_payloads(connection, [Hash(name) for name, _, _, _ in messages])
    payloads += _drop_beside(connection, places.values())
    for some in in_lists(sorted(named)):
        connection.execute(update(blobs).where(blobs.c.hash.in_(some)).values(unused_since=_ERASED))
    known = [
        {"instance": instance, "log": log, "create_seq": create_seq, "since": since, "erased": now}
        for instance in sorted(instances)
        for log, create_seq in [places.get(instance, (None, None))]
    ]
    for row in known:
        connection.execute(insert_new(connection, erasures), row)
    for some in in_lists(instances):
        is_new = (erasures.c.instance.in_(some), erasures.c.erased.is_(None))
        connection.execute(update(erasures).where(*is_new).values(erased=now))
        _forget(connection, some, now)
    return ErasedContent(len(instances), payloads)


def remove_marked_blobs(connection: Connection, files: BlobFiles, limit: int) -> int:
    """Remove blobs that erased instances named and nothing else refers to; how many marks were looked at.

    In a transaction after that of `erase_instances`: a file cannot be rolled back.
    """
    query = select(blobs.c.hash).where(blobs.c.unused_since == _ERASED).order_by(blobs.c.hash).limit(limit)
    marked = [Hash(content) for content in connection.scalars(query)]
    for content in marked:
        if forget_unused(connection, content, _ERASED + 1):
            files.remove(content)
        else:
            connection.execute(update(blobs).where(blobs.c.hash == content).values(unused_since=null()))
    return len(marked)


def list_erased_messages(connection: Connection, instances: Collection[Hash]) -> list[tuple[int, int]]:
    """List the messages of erased instances, all but deletes, by log and sequence number: outcomes may quote them."""
    places = {
        (row.log, row.create_seq)
        for some in in_lists(instances)
        for row in connection.execute(
            select(erasures.c.log, erasures.c.create_seq).where(
                erasures.c.instance.in_(some), erasures.c.log.is_not(None)
            )
        )
    }
    return [(log, seq_num) for _, log, seq_num, _ in _content_of(connection, places)]


def _lock(connection: Connection, instances: Collection[Hash]) -> dict[Hash, tuple[int, int]]:
    """Lock the logs of instances, in the order of all who do; returns where each instance is."""
    places = {
        Hash(row.hash): (row.log, row.seq_num)
        for some in in_lists(instances)
        for row in connection.execute(
            select(entries.c.hash, entries.c.log, entries.c.seq_num).where(entries.c.hash.in_(some))
        )
    }
    of_them = select(logs.c.id).where(logs.c.id.in_({log for log, _ in places.values()})).order_by(logs.c.name)
    connection.execute(of_them.with_for_update())
    return places


def _content_of(
    connection: Connection, places: Iterable[tuple[int, int]]
) -> list[tuple[bytes, int, int, bytes | None]]:
    """Messages of instances, all but their deletes: hash, log, sequence number and payload."""
    pairs = sorted(set(places))
    if not pairs:
        return []
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_of = (entries.c.log == wanted.c.first) & (entries.c.create_seq == wanted.c.second)
    is_content = or_(entries.c.kind.is_(None), entries.c.kind != "delete")
    columns = (entries.c.hash, entries.c.log, entries.c.seq_num, entries.c.payload)
    query = select(*columns).join_from(wanted, entries, is_of).where(is_content)
    return [(*row,) for row in connection.execute(query, pairs_as_parameters(dialect, pairs))]


def _drop_beside(connection: Connection, places: Iterable[tuple[int, int]]) -> int:
    """Drop the content of instances that lies beside the branch that is pinned; returns how many payloads."""
    dropped = 0
    for log, create_seq in sorted(set(places)):
        is_content = or_(branch_entries.c.kind.is_(None), branch_entries.c.kind != "delete")
        query = select(
            branch_entries.c.id, branch_entries.c.encoded, func.length(branch_entries.c.payload).label("size")
        )
        is_its = (branch_entries.c.log == log, branch_entries.c.create_seq == create_seq, is_content)
        rows = connection.execute(query.where(*is_its, branch_entries.c.payload.is_not(None))).all()
        gone = [row.id for row in rows if decode_entry(row.encoded).payload_size == row.size]
        for some in in_lists(gone):
            connection.execute(update(branch_entries).where(branch_entries.c.id.in_(some)).values(payload=None))
        dropped += len(gone)
    return dropped


def _blobs_in_payload(payload: bytes | None) -> Iterator[Hash]:
    message = decode_if_valid(payload)
    if isinstance(message, Create | Update):
        yield from blobs_in(message)


def _forget(connection: Connection, instances: Sequence[Hash], now: int) -> None:
    """Take instances out of all tables that quote them or were made of them."""
    for table in (blob_references, request_box, copy_reads, rot_victims):
        connection.execute(delete(table).where(table.c.instance.in_(instances)))
    # The hash of a request that said little could be guessed.
    for instance in instances:
        connection.execute(delete(idempotency).where(idempotency.c.answer.like(f"%{instance.hex()}%")))
    _drop_small_summaries(connection, instances)
    emptied = {"step": "stub", "bytes": 0, "changed": now, "why": "erased"}
    connection.execute(update(copies).where(copies.c.instance.in_(instances)).values(emptied))


def _drop_small_summaries(connection: Connection, instances: Sequence[Hash]) -> None:
    owner = func.coalesce(identity_keys.c.identity, logs.c.author)
    query = (
        select(copies.c.cooked, owner.label("owner"), copies.c.schema)
        .join_from(copies, logs, logs.c.id == copies.c.log)
        .outerjoin(identity_keys, identity_keys.c.author == logs.c.author)
        .where(copies.c.instance.in_(instances), copies.c.cooked.is_not(None))
        .distinct()
    )
    key = (summaries.c.run, summaries.c.reader, summaries.c.owner, summaries.c.schema, summaries.c.month)
    for run, of_owner, schema in connection.execute(query).all():
        is_it = (summaries.c.run == run, summaries.c.owner == of_owner, summaries.c.schema == schema)
        small = select(*key).where(*is_it, summaries.c.field == "", summaries.c.count < FEW_COPIES)
        for row in connection.execute(small).all():
            same = [column == value for column, value in zip(key, row, strict=True)]
            connection.execute(delete(summaries).where(*same))


# The journal of the home


def read_applied(connection: Connection) -> tuple[int, int]:
    """Read up to which byte of the home's journal instances are erased here, and when the files were last compacted."""
    row = connection.execute(select(erasure_journal.c.applied, erasure_journal.c.compacted)).first()
    return (row.applied, row.compacted) if row is not None else (0, 0)


def write_applied(connection: Connection, applied: int, compacted: int) -> None:
    """Record both."""
    put_row(connection, erasure_journal, {"id": _ONLY, "applied": applied, "compacted": compacted})


def list_erased_since(connection: Connection, time: int) -> list[Hash]:
    """List the instances that were erased at or after a time."""
    query = select(erasures.c.instance).where(erasures.c.erased >= time).order_by(erasures.c.instance)
    return [Hash(instance) for instance in connection.scalars(query)]


def has_erased_since(connection: Connection, time: int) -> bool:
    """Whether anything was erased at or after a time."""
    query = select(erasures.c.instance).where(erasures.c.erased >= time).limit(1)
    return connection.scalar(query) is not None


# Views. Whatever generation of tables there is: retired ones and builds hold values too.


def erase_from_views(
    connection: Connection, instances: Collection[Hash], messages: Collection[tuple[int, int]]
) -> None:
    """Take rows of instances, their values in changes and what outcomes quote out of all tables of the views."""
    by_log: dict[int, list[int]] = {}
    for log, seq_num in messages:
        by_log.setdefault(log, []).append(seq_num)
    for name in inspect(connection).get_table_names():
        parts = name.split("_")
        if name == "view_outcomes" or (parts[0] == "view" and "outcomes" in parts):
            _erase_reasons(connection, name, by_log)
        elif parts[0] == "view" and "rows" in parts:
            found = Table(name, MetaData(), autoload_with=connection)
            for some in in_lists(instances):
                is_its = found.c._instance.in_(some)
                if name.endswith("_changes"):
                    values = {column: null() for column in found.columns if column.name not in _OF_CHANGES}
                    if values:
                        connection.execute(update(found).where(is_its).values(values))
                else:
                    connection.execute(delete(found).where(is_its))


_OF_CHANGES: Final = frozenset({"_change", "_is_after", *ROW_COLUMNS})


def _erase_reasons(connection: Connection, name: str, by_log: Mapping[int, Sequence[int]]) -> None:
    found = Table(name, MetaData(), autoload_with=connection)
    for log, seq_nums in by_log.items():
        for some in in_lists(seq_nums):
            quotes = (found.c.log == log, found.c.seq_num.in_(some), found.c.reason.is_not(None))
            connection.execute(update(found).where(*quotes).values(reason=None))


# Files

_PAUSE: Final = 0.2


@contextmanager
def _outside_transactions(database: Database) -> Iterator[Any]:
    """A connection of the driver on which nothing is begun by itself."""
    with database.translated():
        engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield connection
            connection.invalidate()


def compact_files(database: Database, *, seconds: float = 60.0) -> bool:
    """Rewrite the files of a database without what was deleted; False if others kept something of it for so long.

    SQLite: VACUUM, then its write-ahead log is emptied. PostgreSQL: the tables that hold content, and a checkpoint, as
    far as the user may do that.
    """
    if database.is_postgresql:
        return _compact_postgresql(database)
    until = time.monotonic() + seconds
    with _outside_transactions(database) as connection:
        driver = connection.connection.driver_connection
        driver.execute("VACUUM")
        while True:
            is_busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not is_busy:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)


def _compact_postgresql(database: Database) -> bool:
    with _outside_transactions(database) as connection:
        quote = connection.dialect.identifier_preparer.quote
        views = [name for name in inspect(connection).get_table_names() if name.startswith("view_")]
        own = [table.name for table in (entries, branch_entries, request_box, idempotency, summaries)]
        for name in [*own, *views]:
            connection.execute(text(f"VACUUM FULL {quote(name)}"))
        try:
            connection.execute(text("CHECKPOINT"))
        except DBAPIError:  # not for every user: the server does it by itself within minutes
            return False
    return True
