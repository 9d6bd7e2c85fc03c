"""Reads the messages of instances and the logs of schemas, as the folds take them (docs/protocol.md section 6)."""

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, CompoundSelect, Connection, bindparam, func, or_, select, union_all

from inkgrove.core import Hash, PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import SchemaId
from inkgrove.schema import LogMessage
from inkgrove.store.db.connection import Compiled, in_lists, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.log_tables import branch_entries, entries, log_schemas, logs, schemas
from inkgrove.store.logs.decision import VALID_LOG, LogValidity
from inkgrove.store.logs.entries import LogState, find_log, log_state, read_logs
from inkgrove.store.logs.schema_registry import find_schema_number

_BARE_MESSAGE: Final = 1_000
"""About what a message has in an answer beside its payload."""


class SchemaLog(NamedTuple):
    """What `fold_schema` takes: the payloads held of a schema's verified entries, and where its log turns invalid."""

    payloads: dict[int, bytes]
    invalid_from: int | None


class InstanceKey(NamedTuple):
    """Where an instance is found: the store's own number of its log, and the entry its messages are folded with."""

    log: int
    create_seq: int


class UnresolvedReference(NamedTuple):
    """A message that names an instance by the hash of an entry that its own log does not hold."""

    log: int
    seq_num: int
    ref_hash: Hash


def messages_of(connection: Connection, instances: Collection[InstanceKey]) -> dict[InstanceKey, list[LogMessage]]:
    """All that is needed to fold instances, each in the order of its log.

    Each list holds the messages of the instance, those of the invalid part with its code, and the entry at `create_seq`
    itself, whatever it is and even if its payload is not held. Entries behind the end of a log or key are left out.
    """
    found: dict[InstanceKey, list[LogMessage]] = {InstanceKey(*instance): [] for instance in instances}
    if not found:
        return found
    rows = _messages.rows(connection, **pairs_as_parameters(connection.dialect.name, sorted(found)))
    standings = {number: state.standing for number, state in read_logs(connection, {row[0] for row in rows}).items()}
    for log, create_seq, seq_num, entry_hash, payload in sorted(rows, key=itemgetter(0, 2, 3)):
        message = _log_message(seq_num, entry_hash, payload, standings[log])
        if message is not None:
            found[InstanceKey(log, create_seq)].append(message)
    return found


def find_newest_seq(connection: Connection, instance: InstanceKey) -> int:
    """Find the sequence number of the newest entry of an instance, whether its payload is held or not."""
    is_its = (entries.c.log == instance.log, entries.c.create_seq == instance.create_seq)
    return connection.scalar(select(func.max(entries.c.seq_num)).where(*is_its)) or instance.create_seq


def messages_since(
    connection: Connection, instance: InstanceKey, after: int, until: int
) -> tuple[list[LogMessage], bool]:
    """Read the messages of an instance after one sequence number and up to another, and whether its create is held.

    Its log must be valid.
    """
    log, create_seq = instance
    rows = _since.rows(connection, log=log, create_seq=create_seq, after=after, until=until)
    create = _create_held.first(connection, log=log, create_seq=create_seq)
    return [LogMessage(seq_num, Hash(entry_hash), payload) for seq_num, entry_hash, payload in rows], create is not None


_since: Final = Compiled(
    lambda _: (
        select(entries.c.seq_num, entries.c.hash, entries.c.payload)
        .where(
            entries.c.log == bindparam("log"),
            entries.c.seq_num.between(bindparam("after") + 1, bindparam("until")),
            # As a sum, so that no database goes through all messages of the instance instead.
            entries.c.create_seq + 0 == bindparam("create_seq"),
        )
        .order_by(entries.c.seq_num)
    )
)
_create_held: Final = Compiled(
    lambda _: select(entries.c.id).where(
        entries.c.log == bindparam("log"),
        entries.c.seq_num == bindparam("create_seq"),
        entries.c.payload.is_not(None),
    )
)


def estimate_history_bytes(connection: Connection, instance: InstanceKey) -> int:
    """About how many bytes the messages of an instance have in an answer; loads none of them."""
    size = func.coalesce(func.length(entries.c.payload), 0) + _BARE_MESSAGE
    query = select(func.coalesce(func.sum(size), 0)).where(
        entries.c.log == instance.log, entries.c.create_seq == instance.create_seq
    )
    return int(connection.scalar(query) or 0)


def _select_messages(dialect: str) -> CompoundSelect[Any]:
    wanted = table_of_pairs(dialect)
    columns = (wanted.c.first, wanted.c.second, entries.c.seq_num, entries.c.hash, entries.c.payload)
    is_of_log = entries.c.log == wanted.c.first
    members = select(*columns).join_from(wanted, entries, is_of_log & (entries.c.create_seq == wanted.c.second))
    heads = select(*columns).join_from(wanted, entries, is_of_log & (entries.c.seq_num == wanted.c.second))
    is_member = entries.c.create_seq == entries.c.seq_num
    return union_all(members, heads.where(is_member.is_not(True)))


_messages: Final = Compiled(lambda connection: _select_messages(connection.dialect.name))


def whole_logs(connection: Connection, first: int, last: int) -> Iterator[tuple[LogState, list[LogMessage]]]:
    """The logs from one of the store's own numbers to another, each with all its messages in order."""
    states = {row.id: log_state(row) for row in connection.execute(select(logs).where(logs.c.id.between(first, last)))}
    query = (
        select(entries.c.log, entries.c.seq_num, entries.c.hash, entries.c.payload)
        .where(entries.c.log.between(first, last))
        .order_by(entries.c.log, entries.c.seq_num)
        .execution_options(yield_per=2000)
    )
    for log, rows in groupby(connection.execute(query), key=itemgetter(0)):
        state = states[log]
        if state.standing == VALID_LOG:
            yield state, [LogMessage(seq_num, Hash(entry_hash), payload) for _, seq_num, entry_hash, payload in rows]
            continue
        # Only a forked log has several entries with one sequence number.
        found = (_log_message(*row[1:], state.standing) for row in sorted(rows, key=itemgetter(1, 2)))
        yield state, [message for message in found if message is not None]


def find_create_seqs(connection: Connection, log: int, seq_nums: Collection[int]) -> dict[Hash, int]:
    """For entries at these sequence numbers, find which entry each is folded with; none if its payload never came."""
    return {
        Hash(row.hash): row.create_seq
        for some in in_lists(seq_nums)
        for row in connection.execute(
            select(entries.c.hash, entries.c.create_seq).where(
                entries.c.log == log, entries.c.seq_num.in_(some), entries.c.create_seq.is_not(None)
            )
        )
    }


def messages_between(
    connection: Connection, log: int, first: int = 1, last: int = MAX_STORED_INTEGER
) -> list[LogMessage]:
    """The messages of a part of a log in order, without those behind its end: what `fold_log` takes."""
    state = read_logs(connection, [log])[log]
    query = (
        select(entries.c.seq_num, entries.c.hash, entries.c.payload)
        .where(entries.c.log == log, entries.c.seq_num.between(first, last))
        .order_by(entries.c.seq_num, entries.c.hash)
    )
    messages = (_log_message(*row, state.standing) for row in connection.execute(query).all())
    return [message for message in messages if message is not None]


def _log_message(seq_num: int, entry_hash: bytes, payload: bytes | None, standing: LogValidity) -> LogMessage | None:
    if standing.is_behind_end(seq_num):
        return None
    refusal = standing.refusal(seq_num)
    return LogMessage(seq_num, Hash(entry_hash), payload, refusal.code if refusal is not None else None)


def hashes_from(connection: Connection, log: int, first: int) -> list[Hash]:
    """List the entries of a log from a sequence number on, whether they count or not, and wherever they lie."""
    return [
        Hash(found)
        for table in (entries, branch_entries)
        for found in connection.scalars(
            select(table.c.hash).where(table.c.log == log, table.c.seq_num >= first).order_by(table.c.id)
        )
    ]


def create_seqs_from(connection: Connection, log: int, first: int) -> list[int]:
    """The instances that have a message at or behind `first`: what a fork, a lie or a late end there touches."""
    query = (
        select(entries.c.create_seq)
        .where(entries.c.log == log, entries.c.seq_num >= first, entries.c.create_seq.is_not(None))
        .distinct()
        .order_by(entries.c.create_seq)
    )
    return list(connection.scalars(query))


def find_unresolved_references(connection: Connection, hashes: Collection[Hash]) -> list[UnresolvedReference]:
    """The messages of any log that name one of these hashes and do not belong to it."""
    columns = (entries.c.log, entries.c.seq_num, entries.c.ref_hash)
    return [
        UnresolvedReference(row.log, row.seq_num, Hash(row.ref_hash))
        for some in in_lists(hashes)
        for row in connection.execute(select(*columns).where(entries.c.ref_hash.in_(some)).order_by(entries.c.id))
    ]


# Schemas


def payloads_of_schema(connection: Connection, schema: SchemaId) -> SchemaLog:
    """The log that defines a schema."""
    log = find_log(connection, *schema)
    if log is None:
        return SchemaLog({}, None)
    messages = messages_between(connection, log.id, 1, log.height)
    payloads = {item.seq_num: item.payload for item in messages if item.payload is not None and not item.invalid_code}
    return SchemaLog(payloads, log.invalid_from)


def logs_of_schema(connection: Connection, schema: SchemaId) -> list[int]:
    """The logs that hold, or held, a message which names the schema."""
    number = find_schema_number(connection, schema)
    query = select(log_schemas.c.log).where(log_schemas.c.schema == number).order_by(log_schemas.c.log)
    return list(connection.scalars(query))


def schemas_of_logs(connection: Connection, numbers: Collection[int]) -> dict[int, list[SchemaId]]:
    """The schemas that messages of each log name, or named."""
    found: dict[int, list[SchemaId]] = {number: [] for number in numbers}
    for some in in_lists(numbers):
        query = select(log_schemas.c.log, schemas.c.author, schemas.c.log_id).join_from(log_schemas, schemas)
        for log, author, log_id in connection.execute(query.where(log_schemas.c.log.in_(some))):
            found[log].append(SchemaId(PublicKey(author), log_id))
    return found


def find_schema_of_log(connection: Connection, log: int) -> SchemaId | None:
    """The schema that the first message of the log's valid part names: that of messages which name none."""
    standing = read_logs(connection, [log])[log].standing
    query = (
        select(schemas.c.author, schemas.c.log_id, entries.c.seq_num)
        .join_from(entries, schemas)
        .where(entries.c.log == log, entries.c.schema.is_not(None), entries.c.payload.is_not(None))
        .order_by(entries.c.seq_num)
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None or standing.refusal(row.seq_num) is not None:
        return None
    return SchemaId(PublicKey(row.author), row.log_id)


def logs_without_schema(connection: Connection) -> list[int]:
    """The logs of which no message that counts names a schema."""
    named = (
        select(entries.c.id)
        .where(entries.c.log == logs.c.id, entries.c.schema.is_not(None), entries.c.payload.is_not(None))
        .where(or_(logs.c.forked_at.is_(None), entries.c.seq_num < logs.c.forked_at))
        .where(or_(logs.c.lied_at.is_(None), entries.c.seq_num < logs.c.lied_at))
        .where(or_(logs.c.ended_at.is_(None), entries.c.seq_num <= logs.c.ended_at))
        .where(or_(logs.c.revoked_after.is_(None), entries.c.seq_num <= logs.c.revoked_after))
    )
    return list(connection.scalars(select(logs.c.id).where(~named.exists()).order_by(logs.c.id)))


def find_groups_by_log_schema(connection: Connection, changed: Mapping[int, int]) -> list[InstanceKey]:
    """Find the messages that go by the schema of their log, of those logs whose schema may have become another.

    `changed` has, by log, the lowest place where a message that names a schema came or went, or ceased to count.
    """
    found: list[InstanceKey] = []
    first = (
        select(entries.c.seq_num)
        .where(entries.c.log == logs.c.id, entries.c.schema.is_not(None), entries.c.payload.is_not(None))
        .order_by(entries.c.seq_num)
        .limit(1)
        .scalar_subquery()
    )
    group = func.coalesce(entries.c.create_seq, entries.c.seq_num)
    for some in in_lists(changed):
        query = select(logs.c.id, first).where(logs.c.id.in_(some))
        touched = [log for log, seq_num in connection.execute(query) if seq_num is None or changed[log] <= seq_num]
        unnamed = (entries.c.log.in_(touched), entries.c.schema.is_(None), entries.c.payload.is_not(None))
        rows = connection.execute(select(entries.c.log, group).where(*unnamed).distinct()) if touched else ()
        found += [InstanceKey(log, create_seq) for log, create_seq in rows]
    return found


def read_counted_payloads(connection: Connection, log: LogState, create_seq: int) -> dict[int, bytes]:
    """The payloads of an instance's messages that count, by sequence number."""
    query = select(entries.c.seq_num, entries.c.payload).where(
        *_is_valid(log), entries.c.create_seq == create_seq, entries.c.payload.is_not(None), entries.c.code.is_(None)
    )
    if (last := log.standing.last_counted) is not None:  # entries behind it prove links, but are no messages
        query = query.where(entries.c.seq_num <= last)
    return {row.seq_num: row.payload for row in connection.execute(query)}


def read_valid_entries(connection: Connection, log: LogState, seq_nums: Collection[int]) -> dict[int, bytes]:
    """The bytes of the entries of a log at these sequence numbers, as far as they lie before its invalid part."""
    found: dict[int, bytes] = {}
    for some in in_lists(seq_nums):
        query = select(entries.c.seq_num, entries.c.encoded).where(*_is_valid(log), entries.c.seq_num.in_(some))
        found.update((row.seq_num, row.encoded) for row in connection.execute(query))
    return found


def _is_valid(log: LogState) -> list[ColumnElement[bool]]:
    conditions = [entries.c.log == log.id]
    if log.invalid_from is not None:
        conditions.append(entries.c.seq_num < log.invalid_from)
    return conditions
