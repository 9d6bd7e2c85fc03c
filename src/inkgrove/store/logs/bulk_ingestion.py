"""Appends whole runs of entries that were verified elsewhere, without deciding on each (docs/protocol.md section 2).

They were verified against the store as it was at some moment. A log that has moved since then is passed over and given
back, for `LogStore.ingest`. A run is in the order of its log and each of its entries links to one before it or to
one that is held: so whatever part of an import is committed, the store holds nothing without a path to entry 1.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import execute_many, in_lists, insert_new
from inkgrove.store.db.log_tables import encode_log_key, entries, logs
from inkgrove.store.logs.blob_references import StoredMessage, is_of_interest, update_references
from inkgrove.store.logs.ingestion import (
    MESSAGE_COLUMNS,
    assign_waiting_messages,
    create_seq_of,
    find_targets,
    lock_logs,
    message_values,
    note_schemas,
)
from inkgrove.store.logs.messages import InstanceKey
from inkgrove.store.logs.positions import IngestKind
from inkgrove.store.logs.preparation import PayloadContent
from inkgrove.store.logs.revocations import lock_ends
from inkgrove.store.logs.schema_registry import number_schemas

_ENTRY_COLUMNS: Final = ("log", "seq_num", "hash", "encoded", *MESSAGE_COLUMNS)
_INGEST_COLUMNS: Final = ("what", "log", "seq_num")
_NO_MESSAGE: Final = (None,) * (len(MESSAGE_COLUMNS) - 1)
_ADVANCE = (
    update(logs)
    .where(logs.c.id == bindparam("of_id"))
    .values({name: bindparam(f"new_{name}") for name in ("height", "held", "ended_at")})
)


class VerifiedLine(NamedTuple):
    """A verified entry that is not held."""

    seq_num: int
    hash: Hash
    encoded: bytes
    payload: bytes | None
    content: PayloadContent | None
    is_end: bool


class LogAtVerification(NamedTuple):
    """A log at the moment of verification; all zero if it was not held."""

    author: PublicKey
    log_id: int
    height: int
    held: int


@dataclass(slots=True)
class LogBatch:
    """Entries of one log in ascending order."""

    log: LogAtVerification
    lines: list[VerifiedLine]


def append_verified(connection: Connection, runs: Sequence[LogBatch]) -> list[LogBatch]:
    """Append runs of different logs; gives back those whose log has moved."""
    if connection.dialect.name == "sqlite":
        _expect_much(connection)
    numbers = _lock_unmoved(connection, runs)
    taken = [(numbers[name], run) for run in runs if (name := _name(run)) in numbers]
    if taken:
        _insert_entries(connection, taken)
        arrived = {
            (log, line.hash): line.seq_num
            for log, run in taken
            if run.lines[0].seq_num < run.log.height
            for line in run.lines
            if line.seq_num < run.log.height
        }
        assign_waiting_messages(connection, arrived)
        execute_many(connection, _ADVANCE, [
            {
                "of_id": log,
                "new_height": max(run.log.height, run.lines[-1].seq_num),
                "new_held": run.log.held + len(run.lines),
                "new_ended_at": run.lines[-1].seq_num if run.lines[-1].is_end else None,
            }
            for log, run in taken
        ])  # fmt: skip
        what = IngestKind.ENTRY.value
        happened = [(what, log, line.seq_num) for log, run in taken for line in run.lines]
        _insert_rows(connection, "ingests", _INGEST_COLUMNS, happened)
    return [run for run in runs if _name(run) not in numbers]


def _expect_much(connection: Connection) -> None:
    """Hashes are spread over all of their index: a page of it that is not at hand is read, written and copied anew."""
    connection.exec_driver_sql("PRAGMA cache_size=-131072")
    connection.exec_driver_sql("PRAGMA wal_autocheckpoint=20000")


def _name(run: LogBatch) -> bytes:
    return encode_log_key(run.log.author, run.log.log_id)


def _lock_unmoved(connection: Connection, runs: Sequence[LogBatch]) -> dict[bytes, int]:
    """The numbers of the logs that are as they were seen; new ones begin, if their key counts."""
    seen = {_name(run): run.log for run in runs}
    numbers, found = {}, set()
    for some in in_lists(sorted(seen)):
        for name, number, height, held, _, _, aside, *validity in lock_logs.rows(connection, some):
            found.add(name)
            is_plain = not aside and all(bound is None for bound in validity)
            if is_plain and (height, held) == (seen[name].height, seen[name].held):
                numbers[name] = number
    new = {name: log for name, log in sorted(seen.items()) if name not in found and not log.held}
    revoked = lock_ends(connection, {log.author for log in new.values()})
    begun = [
        {"name": name, "author": log.author, "log_id": log.log_id, "height": 0, "held": 0}
        for name, log in new.items()
        if log.author not in revoked
    ]
    if begun:
        made = connection.execute(insert_new(connection, logs).returning(logs.c.id, logs.c.name), begun).all()
        numbers |= {row.name: row.id for row in made}
    return numbers


def _insert_entries(connection: Connection, taken: Sequence[tuple[int, LogBatch]]) -> None:
    named: set[tuple[int, SchemaId]] = set()
    wanted: set[tuple[int, Hash]] = set()
    for log, run in taken:
        contents = [line.content for line in run.lines if line.content is not None]
        # Few versions and many messages: each version is asked for its schema once.
        versions = {content.schema for content in contents}
        named |= {(log, version.schema_id) for version in versions if version is not None}
        wanted |= {(log, content.instance) for content in contents if isinstance(content.instance, Hash)}
    schemas = number_schemas(connection, {schema_id for _, schema_id in named})
    stored = ((log, line.seq_num, line.hash) for log, run in taken for line in run.lines)
    targets = find_targets(connection, stored, wanted)
    rows = []
    stored_messages = []
    for log, run in taken:
        for seq_num, entry_hash, encoded, payload, content, _ in run.lines:
            message = message_values(log, seq_num, content, schemas, targets) if content is not None else _NO_MESSAGE
            rows.append((log, seq_num, entry_hash, encoded, *message, payload))
            if content is not None and is_of_interest(message_of := content.message):
                key = InstanceKey(log, create_seq_of(log, seq_num, content, targets))
                is_newest = seq_num > run.log.height
                stored_messages.append(StoredMessage(key, run.log.author, seq_num, entry_hash, message_of, is_newest))
    _insert_rows(connection, "entries", _ENTRY_COLUMNS, rows)
    update_references(connection, stored_messages)
    note_schemas(connection, {(schemas[schema_id], log) for log, schema_id in named})


_TYPES: Final = {
    "what": "varchar", "kind": "varchar", "code": "varchar", "access": "varchar",
    "hash": "bytea", "encoded": "bytea", "payload": "bytea", "ref_hash": "bytea",
}  # fmt: skip


def _insert_rows(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    if connection.dialect.name != "postgresql":
        marks = ", ".join("?" * len(columns))
        connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))
        return
    driver: Any = connection.connection.driver_connection
    with driver.cursor().copy(f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types([_TYPES.get(name, "int8") for name in columns])
        for row in rows:
            copy.write_row(row)


def find_held_payloads(connection: Connection, hashes: Collection[Hash]) -> dict[Hash, bool]:
    """Those of the hashes that are of held entries, each with whether its payload is held too."""
    query = select(entries.c.hash, entries.c.payload.is_not(None).label("has_payload"))
    return {
        Hash(row.hash): bool(row.has_payload)
        for some in in_lists(hashes)
        for row in connection.execute(query.where(entries.c.hash.in_(some)))
    }
