"""Writes what was decided on a batch, in the transaction that holds its logs (docs/protocol.md sections 2 and 5)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, null, select, update

from inkgrove.core import Hash
from inkgrove.messages import SchemaId
from inkgrove.store.blob_references import Heard, is_of_interest, note_heard
from inkgrove.store.compiled import CompiledList
from inkgrove.store.database import execute_many, in_lists, insert_new
from inkgrove.store.decide import SOUND, Decision, LogFacts
from inkgrove.store.ingests import What
from inkgrove.store.messages import InstanceKey
from inkgrove.store.prepare import Content, Prepared
from inkgrove.store.registry import number_schemas
from inkgrove.store.tables import entries, fork_proofs, ingests, log_schemas, logs

Values = dict[str, Any]

_COMPLETE = (
    update(entries)
    .where(entries.c.hash == bindparam("of_hash"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("kind", "schema", "schema_version", "create_seq", "ref_hash", "code", "access", "payload")
        }
    )
)
_INSERT_ENTRY = insert(entries)
_INSERT_INGEST = insert(ingests)
_MOVE = (
    update(entries)
    .where(entries.c.id == bindparam("of_id"))
    .values(create_seq=bindparam("new_create_seq"), ref_hash=null())
)
_ADVANCE = (
    update(logs)
    .where(logs.c.id == bindparam("of_id"))
    .values({name: bindparam(f"new_{name}") for name in ("height", "held", "forked_at", "lied_at", "ended_at")})
)


@dataclass(slots=True)
class Writes:
    """What a batch changes, gathered decision by decision."""

    stored: list[tuple[LogFacts, Prepared]] = field(default_factory=list)
    completed: list[tuple[LogFacts, Prepared]] = field(default_factory=list)
    """Items that bring the payload of an entry which is held already."""
    proofs: list[Values] = field(default_factory=list)
    happened: list[Values] = field(default_factory=list)
    logs: dict[int, LogFacts] = field(default_factory=dict)

    def add(self, facts: LogFacts, item: Prepared, decision: Decision) -> None:
        """Note a decision; the facts are those before it."""
        signed, log = item.signed, facts.id
        seq_num = signed.entry.seq_num
        if decision.stores_entry:
            self.stored.append((facts, item))
            self._note(What.ENTRY, log, seq_num)
            if signed.entry.is_end_of_log and seq_num < facts.height:
                self._note(What.ENDED, log, seq_num)
        elif decision.stores_payload:
            self.completed.append((facts, item))
            self._note(What.PAYLOAD, log, seq_num)
        else:
            return
        self.logs[log] = facts
        if decision.forked_at is not None:
            proof = {"first": decision.witness, "second": signed.hash}
            self.proofs.append({"log": log, "seq_num": decision.forked_at, **proof})
            self._note(What.FORK, log, decision.forked_at)
        if item.is_lie:
            self._note(What.LIE, log, seq_num)

    def _note(self, what: What, log: int, seq_num: int) -> None:
        self.happened.append({"what": what.value, "log": log, "seq_num": seq_num})

    def write(self, connection: Connection) -> None:
        """Write everything; nothing if nothing changes."""
        if not self.happened:
            return
        both = [*self.stored, *self.completed]
        named = {
            (facts.id, item.content.schema.schema_id)
            for facts, item in both
            if item.content is not None and item.content.schema is not None
        }
        schemas = number_schemas(connection, {schema_id for _, schema_id in named})
        targets = find_targets(
            connection,
            ((facts.id, item.signed.entry.seq_num, item.signed.hash) for facts, item in self.stored),
            {
                (facts.id, item.content.instance)
                for facts, item in both
                if item.content is not None and isinstance(item.content.instance, Hash)
            },
        )
        if self.stored:
            execute_many(connection, _INSERT_ENTRY, [
                {
                    "log": facts.id,
                    "seq_num": item.signed.entry.seq_num,
                    "hash": item.signed.hash,
                    "encoded": item.signed.entry.encoded,
                    **_values_of(facts, item, schemas, targets),
                }
                for facts, item in self.stored
            ])  # fmt: skip
            # Only entries that fill a gap can be waited for: nobody knows the hash of an entry behind his own.
            move_waiting(
                connection,
                {
                    (facts.id, item.signed.hash): item.signed.entry.seq_num
                    for facts, item in self.stored
                    if item.signed.entry.seq_num < facts.first_height
                },
            )
        if self.completed:
            execute_many(connection, _COMPLETE, [
                {"of_hash": item.signed.hash}
                | {f"new_{name}": value for name, value in _values_of(facts, item, schemas, targets).items()}
                for facts, item in self.completed
            ])  # fmt: skip
        note_schemas(connection, {(schemas[schema_id], log) for log, schema_id in named})
        if self.proofs:
            connection.execute(insert(fork_proofs), self.proofs)
        execute_many(connection, _ADVANCE, [
            {
                "of_id": log.id,
                "new_height": log.height,
                "new_held": log.held,
                "new_forked_at": log.standing.forked_at,
                "new_lied_at": log.standing.lied_at,
                "new_ended_at": log.standing.ended_at,
            }
            for log in self.logs.values()
        ])  # fmt: skip
        execute_many(connection, _INSERT_INGEST, self.happened)
        note_heard(connection, [
            Heard(
                InstanceKey(facts.id, create_seq_of(facts.id, seq_num, item.content, targets)),
                facts.author,
                seq_num,
                item.signed.hash,
                item.content.message,
                is_newest=seq_num > facts.first_height and facts.standing == SOUND,
            )
            for facts, item in both
            if item.content is not None
            and is_of_interest(item.content.message)
            and (seq_num := item.signed.entry.seq_num)
        ])  # fmt: skip


Targets = dict[tuple[int, Hash], int]
"""Where the entries that messages name stand, by log and hash."""


def find_targets(
    connection: Connection, stored: Iterable[tuple[int, int, Hash]], wanted: Collection[tuple[int, Hash]]
) -> Targets:
    """Where the wanted entries stand, among those that are being stored (log, place, hash) and those that are held."""
    if not wanted:
        return {}
    targets: Targets = {(log, entry_hash): seq_num for log, seq_num, entry_hash in stored}
    missing = {entry_hash for log, entry_hash in wanted if (log, entry_hash) not in targets}
    for some in in_lists(missing):
        for log, entry_hash, seq_num in _places.rows(connection, some):
            targets[log, Hash(entry_hash)] = seq_num
    return targets


_places: Final = CompiledList(
    lambda hashes: select(entries.c.log, entries.c.hash, entries.c.seq_num).where(entries.c.hash.in_(hashes))
)


MESSAGE_COLUMNS: Final = ("kind", "schema", "schema_version", "create_seq", "ref_hash", "code", "access", "payload")
_NOTHING: Values = dict.fromkeys(MESSAGE_COLUMNS)


def _values_of(facts: LogFacts, item: Prepared, schemas: dict[SchemaId, int], targets: Targets) -> Values:
    if item.content is None:
        return _NOTHING
    values = message_values(facts.id, item.signed.entry.seq_num, item.content, schemas, targets)
    return dict(zip(MESSAGE_COLUMNS, (*values, item.payload), strict=True))


def message_values(
    log: int, own_seq: int, content: Content, schemas: dict[SchemaId, int], targets: Targets
) -> tuple[Any, ...]:
    """The values of `MESSAGE_COLUMNS`, all but the payload."""
    create_seq = create_seq_of(log, own_seq, content, targets)
    ref_hash = content.instance if isinstance(content.instance, Hash) and create_seq == own_seq else None
    schema = content.schema
    number, version = (schemas[schema.schema_id], schema.version) if schema is not None else (None, None)
    return content.kind, number, version, create_seq, ref_hash, content.code, content.access


def create_seq_of(log: int, own_seq: int, content: Content, targets: Targets) -> int:
    """The place of the entry that a message is folded with: its create, else itself."""
    if isinstance(content.instance, Hash):
        return targets.get((log, content.instance), own_seq)
    # A number that is not below its own names no create, whatever else arrives.
    return own_seq if content.instance is None else min(content.instance, own_seq)


def move_waiting(connection: Connection, arrived: Targets) -> None:
    """Give messages that named an entry by its hash, before it was held, to that entry."""
    for some in in_lists(entry_hash for _, entry_hash in arrived):
        query = select(entries.c.id, entries.c.log, entries.c.ref_hash).where(entries.c.ref_hash.in_(some))
        moves = [
            {"of_id": row.id, "new_create_seq": arrived[row.log, Hash(row.ref_hash)]}
            for row in connection.execute(query)
            if (row.log, Hash(row.ref_hash)) in arrived
        ]
        if moves:
            execute_many(connection, _MOVE, moves)


def note_schemas(connection: Connection, named: set[tuple[int, int]]) -> None:
    """Remember which schemas the messages of a log name, both by number."""
    for some in in_lists({log for _, log in named}):
        named -= set(_named_in.rows(connection, some))
    if named:
        rows = [{"schema": schema, "log": log} for schema, log in sorted(named)]
        connection.execute(insert_new(connection, log_schemas), rows)


_named_in: Final = CompiledList(
    lambda numbers: select(log_schemas.c.schema, log_schemas.c.log).where(log_schemas.c.log.in_(numbers))
)
