"""Follows the logs and remembers what replication asks for: which instances are public, which schemas are unknown.

docs/protocol.md section 8. All of it follows from the logs; a page of ingest positions is looked at once, and each
instance whose access may have changed is judged anew.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, insert, select, update

from inkgrove.core.keys import PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.message import decode_message
from inkgrove.messages.schema import SchemaMigration
from inkgrove.store.database import execute_many, in_lists, insert_new, pairs_as_parameters, table_of_pairs
from inkgrove.store.federation_tables import index_progress, public_instances
from inkgrove.store.ingests import START, Offset, What, newest_offset, page_of_ingests
from inkgrove.store.reading import InstanceKey, create_seqs_from, read_logs
from inkgrove.store.tables import entries, schemas
from inkgrove.store.wanted import want_schemas

_PAGE: Final = 5_000
_FORGET = delete(public_instances).where(
    public_instances.c.log == bindparam("of_log"), public_instances.c.create_seq == bindparam("of_seq")
)
_REMEMBER = insert(public_instances)
_VERDICTS: Final = (What.FORK.value, What.LIE.value, What.ENDED.value)


def indexed_offset(connection: Connection, *, lock: bool = False) -> Offset:
    """Up to where the logs were followed."""
    query = select(index_progress.c.xid, index_progress.c.position)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return Offset(row.xid, row.position) if row is not None else START


def is_behind(connection: Connection) -> bool:
    """Whether something happened that was not looked at."""
    return indexed_offset(connection) != newest_offset(connection)


def follow_logs(connection: Connection, now: int) -> bool:
    """Look at the next page of what happened; whether there may be more."""
    # There is a row to lock from the very first time: several processes may follow.
    connection.execute(insert_new(connection, index_progress), {"id": 1, "xid": START.xid, "position": START.position})
    before = indexed_offset(connection, lock=True)
    some = page_of_ingests(connection, before, _PAGE)
    is_entry = and_(entries.c.log == some.c.log, entries.c.seq_num == some.c.seq_num)
    query = (
        select(
            some.c.xid,
            some.c.position,
            some.c.what,
            some.c.log,
            some.c.seq_num,
            some.c.schema.label("registered"),
            entries.c.id,
            entries.c.create_seq,
            entries.c.kind,
            entries.c.access,
            entries.c.schema,
            entries.c.schema_version,
        )
        .select_from(some.outerjoin(entries, is_entry))
        .order_by(some.c.xid, some.c.position)
    )
    happened = connection.execute(query).all()
    if not happened:
        return False
    _settle(connection, _dirty_instances(connection, happened))
    want_schemas(connection, _named_schemas(connection, happened), now)
    connection.execute(update(index_progress).values(xid=happened[-1].xid, position=happened[-1].position))
    return True


def _dirty_instances(connection: Connection, happened: Sequence[Any]) -> set[InstanceKey]:
    dirty: set[InstanceKey] = set()
    silent: set[InstanceKey] = set()
    for row in happened:
        if row.what in _VERDICTS:
            dirty |= {InstanceKey(row.log, found) for found in create_seqs_from(connection, row.log, row.seq_num)}
        elif row.kind == "delete" or row.access is not None:
            dirty.add(InstanceKey(row.log, row.create_seq))
        elif row.kind == "create":
            silent.add(InstanceKey(row.log, row.create_seq))
    # A create that comes after its updates: what they say counts from now on.
    if silent := silent - dirty:
        dialect = connection.dialect.name
        wanted = table_of_pairs(dialect)
        is_member = and_(entries.c.log == wanted.c.first, entries.c.create_seq == wanted.c.second)
        spoken = select(wanted.c.first, wanted.c.second).join_from(wanted, entries, is_member)
        # Not "greater": a database that looks for that would read the rest of the log for every create.
        spoken = spoken.where(entries.c.seq_num != wanted.c.second, entries.c.access.is_not(None)).distinct()
        rows = connection.execute(spoken, pairs_as_parameters(dialect, sorted(silent)))
        dirty |= {InstanceKey(log, create_seq) for log, create_seq in rows}
    return dirty


def _settle(connection: Connection, dirty: Collection[InstanceKey]) -> None:
    """Write down anew which of these instances are public."""
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
    for log, create_seq, seq_num, kind, access in connection.execute(
        query, pairs_as_parameters(dialect, sorted(dirty))
    ):
        key = InstanceKey(log, create_seq)
        if standings[log].refusal(seq_num) is not None:
            continue
        if kind == "create" and seq_num == create_seq:
            begun.add(key)
        elif kind == "delete":
            ended.add(key)
        if access is not None and newest.get(key, (0, ""))[0] < seq_num:
            newest[key] = seq_num, access
    execute_many(connection, _FORGET, [{"of_log": log, "of_seq": create_seq} for log, create_seq in sorted(dirty)])
    public = [key for key in begun if key in newest and newest[key][1] == "public"]
    if public:
        rows = [{"log": key.log, "create_seq": key.create_seq, "is_deleted": key in ended} for key in sorted(public)]
        execute_many(connection, _REMEMBER, rows)


# Schemas that are named


def _named_schemas(connection: Connection, happened: Sequence[Any]) -> dict[SchemaId, int]:
    """The schemas that new messages name, or new versions point to, each with the newest version named."""
    versions: dict[int, int] = {}
    migrations: list[int] = []
    for row in happened:
        if row.registered is not None:
            versions.setdefault(row.registered, 1)
        if row.schema is not None:
            versions[row.schema] = max(versions.get(row.schema, 0), row.schema_version)
        elif row.kind == "schema-migration":
            migrations.append(row.id)
    named: dict[SchemaId, int] = {}
    for some in in_lists(versions):
        for row in connection.execute(select(schemas).where(schemas.c.id.in_(some))):
            named[SchemaId(PublicKey(row.author), row.log_id)] = versions[row.id]
    for some in in_lists(migrations):
        is_held = and_(entries.c.id.in_(some), entries.c.payload.is_not(None))
        for payload in connection.scalars(select(entries.c.payload).where(is_held)):
            message = decode_message(payload)
            assert isinstance(message, SchemaMigration)
            for change in message.changes:
                if change.schema is not None:
                    named.setdefault(change.schema, 1)
    return named
