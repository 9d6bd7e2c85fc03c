"""Follows the logs and remembers what replication asks for: which instances are public, which schemas are unknown.

docs/protocol.md section 8. All of it follows from the logs; a page of ingest positions is looked at once, and each
instance whose access may have changed is judged anew. What came by whatever way, and was sent to somebody elsewhere
before it came, is found on the way.
"""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import Create, SchemaId, SchemaMigration, Unset, Update, decode_message
from inkgrove.store.database import execute_many, in_lists, insert_new, pairs_as_parameters, table_of_pairs
from inkgrove.store.decide import Standing
from inkgrove.store.federation_tables import deliveries, index_progress, public_instances
from inkgrove.store.ingests import START, Offset, What, end_of_page, is_after, is_up_to, newest_offset
from inkgrove.store.messages import InstanceKey, create_seqs_from
from inkgrove.store.reading import read_logs
from inkgrove.store.tables import entries, ingests, schemas
from inkgrove.store.wanted import want_schemas

_PAGE: Final = 5_000
_FORGET = delete(public_instances).where(
    public_instances.c.log == bindparam("of_log"), public_instances.c.create_seq == bindparam("of_seq")
)
_REMEMBER = insert(public_instances)
_PROGRESS = select(index_progress.c.xid, index_progress.c.position)
_IS_ENTRY = and_(entries.c.log == ingests.c.log, entries.c.seq_num == ingests.c.seq_num)
_VERDICTS: Final = (What.FORK.value, What.LIE.value, What.ENDED.value)


def indexed_offset(connection: Connection) -> Offset:
    """Up to where the logs were followed."""
    row = connection.execute(_PROGRESS).first()
    return Offset(row.xid, row.position) if row is not None else START


def is_behind(connection: Connection) -> bool:
    """Whether something happened that was not looked at."""
    return indexed_offset(connection) != newest_offset(connection)


def follow_logs(connection: Connection, now: int) -> list[Hash] | None:
    """Look at the next page of what happened; None if nothing did.

    Gives the instances of which something came that is newer than what is due to somebody elsewhere.
    """
    before = _lock_progress(connection)
    end = end_of_page(connection, before, _PAGE)
    if end is None:
        return None
    # All that lies between two offsets is settled: every query about it sees the same.
    is_new = and_(is_after(connection, before), is_up_to(connection, end))
    _settle(connection, _dirty_instances(connection, is_new))
    want_schemas(connection, _named_schemas(connection, is_new), now)
    connection.execute(update(index_progress).values(xid=end.xid, position=end.position))
    return _newer_than_due(connection, is_new)


def _newer_than_due(connection: Connection, is_new: ColumnElement[bool]) -> list[Hash]:
    creates = entries.alias()
    is_create = and_(creates.c.log == entries.c.log, creates.c.seq_num == entries.c.create_seq)
    # As a condition, so that no database begins with all that was ever sent.
    is_due = exists().where(deliveries.c.instance == creates.c.hash, deliveries.c.wanted < entries.c.seq_num)
    query = select(creates.c.hash).distinct().join_from(ingests, entries, _IS_ENTRY).join(creates, is_create)
    return [Hash(instance) for instance in connection.scalars(query.where(is_new, is_due))]


def _lock_progress(connection: Connection) -> Offset:
    row = connection.execute(_PROGRESS.with_for_update()).first()
    if row is None:
        # There is a row to lock from the very first time: several processes may follow.
        first = {"id": 1, "xid": START.xid, "position": START.position}
        connection.execute(insert_new(connection, index_progress), first)
        row = connection.execute(_PROGRESS.with_for_update()).one()
    return Offset(row.xid, row.position)


def _dirty_instances(connection: Connection, is_new: ColumnElement[bool]) -> set[InstanceKey]:
    """Those whose access may be another than before."""
    members = entries.alias()
    # A create that comes after its updates: what they say counts from now on. Their place is not asked to be "greater",
    # for a database that looks for that would read the rest of the log for every create.
    was_spoken_of = exists().where(
        members.c.log == entries.c.log,
        members.c.create_seq == entries.c.create_seq,
        members.c.seq_num != entries.c.seq_num,
        members.c.access.is_not(None),
    )
    # An update of something public may say when it expires.
    is_public = exists().where(
        public_instances.c.log == entries.c.log, public_instances.c.create_seq == entries.c.create_seq
    )
    speaks = or_(
        entries.c.kind == "delete",
        entries.c.access.is_not(None),
        and_(entries.c.kind == "create", was_spoken_of),
        and_(entries.c.kind == "update", is_public),
    )
    query = select(entries.c.log, entries.c.create_seq).join_from(ingests, entries, _IS_ENTRY).where(is_new, speaks)
    dirty = {InstanceKey(log, create_seq) for log, create_seq in connection.execute(query)}
    verdicts = select(ingests.c.log, ingests.c.seq_num).where(is_new, ingests.c.what.in_(_VERDICTS))
    for log, seq_num in connection.execute(verdicts).all():
        dirty |= {InstanceKey(log, found) for found in create_seqs_from(connection, log, seq_num)}
    return dirty


def _settle(connection: Connection, dirty: Collection[InstanceKey]) -> None:
    """Write down anew which of these instances are public, or were so and have ended."""
    if not dirty:
        return
    standings = {number: log.standing for number, log in read_logs(connection, {key.log for key in dirty}).items()}
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_member = and_(entries.c.log == wanted.c.first, entries.c.create_seq == wanted.c.second)
    columns = (entries.c.log, entries.c.create_seq, entries.c.seq_num, entries.c.kind, entries.c.access)
    query = select(*columns).join_from(wanted, entries, is_member)
    begun: set[InstanceKey] = set()
    ended: set[InstanceKey] = set()
    newest: dict[InstanceKey, tuple[int, str]] = {}
    was_public: set[InstanceKey] = set()
    for log, create_seq, seq_num, kind, access in connection.execute(
        query, pairs_as_parameters(dialect, sorted(dirty))
    ):
        key = InstanceKey(log, create_seq)
        if kind == "delete" and not standings[log].is_behind_end(seq_num):
            ended.add(key)  # in whatever branch of a forked log
        if standings[log].refusal(seq_num) is not None:
            continue
        if kind == "create" and seq_num == create_seq:
            begun.add(key)
        if access is not None and newest.get(key, (0, ""))[0] < seq_num:
            newest[key] = seq_num, access
        if access == "public":
            was_public.add(key)
    execute_many(connection, _FORGET, [{"of_log": log, "of_seq": create_seq} for log, create_seq in sorted(dirty)])
    # Who took what was public then is to hear of its end, whatever was said of its access since.
    public = [key for key in begun & was_public if key in ended or newest[key][1] == "public"]
    if public:
        expires = _read_expiries(connection, [key for key in public if key not in ended], standings)
        rows = [
            {
                "log": key.log,
                "create_seq": key.create_seq,
                "is_deleted": key in ended,
                "expires": expires.get(key),
            }
            for key in sorted(public)
        ]
        execute_many(connection, _REMEMBER, rows)


def _read_expiries(
    connection: Connection, keys: Collection[InstanceKey], standings: Mapping[int, Standing]
) -> dict[InstanceKey, int | None]:
    """When instances expire, by the newest word on that."""
    newest: dict[InstanceKey, int | None] = {}
    if not keys:
        return newest
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_member = and_(entries.c.log == wanted.c.first, entries.c.create_seq == wanted.c.second)
    query = (
        select(entries.c.log, entries.c.create_seq, entries.c.seq_num, entries.c.payload)
        .join_from(wanted, entries, is_member)
        .where(entries.c.kind.in_(("create", "update")), entries.c.payload.is_not(None))
        .order_by(entries.c.seq_num)
    )
    for log, create_seq, seq_num, payload in connection.execute(query, pairs_as_parameters(dialect, sorted(keys))):
        if standings[log].refusal(seq_num) is not None:
            continue
        message = decode_message(payload)
        if isinstance(message, Create | Update) and not isinstance(message.expires, Unset):
            said = message.expires
            newest[InstanceKey(log, create_seq)] = said.microseconds if said is not None else None
    return newest


# Schemas that are named


def _named_schemas(connection: Connection, is_new: ColumnElement[bool]) -> dict[SchemaId, int]:
    """The schemas that new messages name, or new versions point to, each with the newest version named."""
    registered = select(ingests.c.schema, literal(1)).where(is_new, ingests.c.schema.is_not(None))
    versions: dict[int, int] = dict(connection.execute(registered).all())
    newest = select(entries.c.schema, func.max(entries.c.schema_version)).join_from(ingests, entries, _IS_ENTRY)
    newest = newest.where(is_new, entries.c.schema.is_not(None)).group_by(entries.c.schema)
    versions |= dict(connection.execute(newest).all())
    named: dict[SchemaId, int] = {}
    for some in in_lists(versions):
        for row in connection.execute(select(schemas).where(schemas.c.id.in_(some))):
            named[SchemaId(PublicKey(row.author), row.log_id)] = versions[row.id]
    is_migration = and_(entries.c.kind == "schema-migration", entries.c.payload.is_not(None))
    for payload in connection.scalars(
        select(entries.c.payload).join_from(ingests, entries, _IS_ENTRY).where(is_new, is_migration)
    ):
        message = decode_message(payload)
        assert isinstance(message, SchemaMigration)
        for change in message.changes:
            if change.schema is not None:
                named.setdefault(change.schema, 1)
    return named
