"""Reads logs and entries, and drops payloads while their entries stay (docs/protocol.md sections 2, 5 and 9)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, Table, bindparam, func, insert, or_, select, update

from inkgrove.core import (
    Entry,
    Flavour,
    ForkProof,
    Hash,
    NextEntry,
    PublicKey,
    decode_entry,
    flavour_of,
    lipmaa,
    make_next_entry,
    verify_fork_proof,
    verify_signed,
)
from inkgrove.core.errors import LogError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import Compiled, CompiledList, in_lists
from inkgrove.store.db.log_tables import (
    VALIDITY_COLUMNS,
    branch_entries,
    encode_log_key,
    entries,
    fork_proofs,
    ingests,
    log_schemas,
    logs,
    schemas,
)
from inkgrove.store.logs.decision import LogValidity
from inkgrove.store.logs.positions import IngestKind
from inkgrove.store.logs.schema_registry import find_schema_number


@dataclass(frozen=True, slots=True)
class LogState:
    """What is held of a log, and how far it counts."""

    id: int
    """The store's own number of the log."""
    author: PublicKey
    log_id: int
    height: int
    """The greatest sequence number held."""
    held: int
    """How many entries are held, evidence included."""
    standing: LogValidity
    is_pinned: bool = False
    """Whether the pin decides which branch counts: what is held of it, but for what lies beside, is that branch."""
    pin: Hash | None = None
    """The hash that the last entry which counts must have, if the owner of a revoked key says so."""
    aside: int = 0
    """How many entries are held beside it, as evidence (`store.logs.branches`)."""

    @property
    def pinned_seq(self) -> int | None:
        """The sequence number of the pinned entry, whose pool travels with everything of the log."""
        return self.standing.revoked_after if self.is_pinned else None

    @property
    def invalid_from(self) -> int | None:
        """The sequence number from which on nothing in the log counts, if there is one."""
        return self.standing.invalid_from

    @property
    def is_whole(self) -> bool:
        """Whether every entry up to the height is held."""
        return self.held == self.height and self.standing.forked_at is None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is held."""

    entry: Entry
    hash: Hash
    payload: bytes | None
    refusal: str | None
    """The code of the reason why it does not count; None if it is verified."""


class EncodedEntry(NamedTuple):
    """An entry as it was sent, with its payload if that is held."""

    seq_num: int
    hash: bytes
    encoded: bytes
    payload: bytes | None


_LOG: Final = select(
    logs.c.id,
    logs.c.author,
    logs.c.log_id,
    logs.c.height,
    logs.c.held,
    logs.c.is_pinned,
    logs.c.pin,
    logs.c.aside,
    *VALIDITY_COLUMNS,
)
_log_called: Final = Compiled(lambda _: _LOG.where(logs.c.name == bindparam("name")))
_logs_called: Final = CompiledList(lambda names: _LOG.add_columns(logs.c.name).where(logs.c.name.in_(names)))
_logs_numbered: Final = CompiledList(lambda numbers: _LOG.where(logs.c.id.in_(numbers)))


def find_log(connection: Connection, author: PublicKey, log_id: int) -> LogState | None:
    """The log, if anything of it is held."""
    row = _log_called.first(connection, name=encode_log_key(author, log_id))
    return _log_of(row) if row is not None else None


def _log_of(row: Any) -> LogState:
    number, author, log_id, height, held, is_pinned, pin, aside, *standing = row
    pin = Hash(pin) if pin is not None else None
    return LogState(
        number, PublicKey(author), log_id, height, held, LogValidity(*standing), bool(is_pinned), pin, aside
    )


def read_logs(connection: Connection, numbers: Collection[int] | None = None) -> dict[int, LogState]:
    """Logs by the store's own number: those asked for, or all."""
    if numbers is None:
        return {row.id: log_state(row) for row in connection.execute(select(logs).order_by(logs.c.name))}
    return {row[0]: _log_of(row) for some in in_lists(numbers) for row in _logs_numbered.rows(connection, some)}


def find_logs(connection: Connection, names: Collection[bytes]) -> dict[bytes, LogState]:
    """Those of the logs, by author and log id as one key, of which anything is held."""
    rows = (row for some in in_lists(names) for row in _logs_called.rows(connection, some))
    return {name: _log_of(row) for *row, name in rows}


def heights_of(connection: Connection, author: PublicKey) -> dict[int, int]:
    """The greatest sequence number held of each log of an author."""
    first, last = encode_log_key(author, 0), author + b"\xff" * 8
    query = select(logs.c.log_id, logs.c.height).where(logs.c.name.between(first, last))
    return {row.log_id: row.height for row in connection.execute(query)}


def log_state(row: Any) -> LogState:
    """Make a `LogState` of a row of the table `logs`."""
    standing = LogValidity(row.forked_at, row.lied_at, row.ended_at, row.revoked_after)
    author, pin = PublicKey(row.author), Hash(row.pin) if row.pin is not None else None
    return LogState(row.id, author, row.log_id, row.height, row.held, standing, bool(row.is_pinned), pin, row.aside)


def read_next_entry(connection: Connection, author: PublicKey, log_id: int) -> NextEntry:
    """What the next entry of a log must carry; raises if the log takes no more or lacks an entry to link to."""
    log = find_log(connection, author, log_id)
    if log is None:
        return NextEntry(author, log_id, 1, None, None, Flavour.YAMF)
    if log.invalid_from is None and log.standing.ended_at is not None:
        raise LogError("log.ended", f"entry {log.standing.ended_at} ended the log")
    seq_num = log.height + 1
    refusal = log.standing.refusal(seq_num)
    if refusal is not None:
        raise refusal
    hashes = read_hashes(connection, log.id, {log.height, lipmaa(seq_num)})
    flavour = flavour_of(hashes[log.height]) if log.height else Flavour.YAMF
    return make_next_entry(author, log_id, log.height, hashes.get, flavour)


def find_entry(connection: Connection, entry_hash: Hash) -> StoredEntry | None:
    """The entry with this hash."""
    row = _entry.first(connection, hash=entry_hash)
    return _stored_entry(row) if row is not None else None


def read_entries(
    connection: Connection, author: PublicKey, log_id: int, first: int = 1, last: int = MAX_STORED_INTEGER
) -> list[StoredEntry]:
    """The entries of a part of a log in order, with evidence."""
    rows = _entries.rows(connection, name=encode_log_key(author, log_id), first=first, last=last)
    return [_stored_entry(row) for row in rows]


def read_newest_entries(
    connection: Connection, author: PublicKey, log_id: int, below: tuple[int, bytes], most: int
) -> list[StoredEntry]:
    """Read the last entries below a sequence number and hash, newest first and evidence included."""
    seq_num, entry_hash = below
    name = encode_log_key(author, log_id)
    rows = _newest.rows(connection, name=name, below=seq_num, hash=entry_hash, most=most)
    return [_stored_entry(row) for row in rows]


_STORED: Final = select(
    entries.c.seq_num, entries.c.encoded, entries.c.hash, entries.c.payload, *VALIDITY_COLUMNS
).join_from(entries, logs)
_entry: Final = Compiled(lambda _: _STORED.where(entries.c.hash == bindparam("hash")))
_entries: Final = Compiled(
    lambda _: _STORED.where(
        logs.c.name == bindparam("name"), entries.c.seq_num.between(bindparam("first"), bindparam("last"))
    ).order_by(entries.c.seq_num, entries.c.hash)
)
_newest: Final = Compiled(
    lambda _: (
        _STORED.where(logs.c.name == bindparam("name"), entries.c.seq_num <= bindparam("below"))
        .where(or_(entries.c.seq_num < bindparam("below"), entries.c.hash < bindparam("hash")))
        .order_by(entries.c.seq_num.desc(), entries.c.hash.desc())
        .limit(bindparam("most"))
    )
)


def read_encoded_entries(connection: Connection, log: int, after: tuple[int, bytes], limit: int) -> list[EncodedEntry]:
    """Read entries of a log after a sequence number and hash, in order, with payloads and all evidence."""
    seq_num, entry_hash = after
    found = [
        EncodedEntry(*row)
        for query in (_lines, _lines_beside)
        for row in query.rows(connection, log=log, after=seq_num, hash=entry_hash, limit=limit)
    ]
    return sorted(found, key=itemgetter(0, 1))[:limit]


def _select_lines(table: Table) -> Select[Any]:
    return (
        select(table.c.seq_num, table.c.hash, table.c.encoded, table.c.payload)
        .where(table.c.log == bindparam("log"), table.c.seq_num >= bindparam("after"))
        .where(or_(table.c.seq_num > bindparam("after"), table.c.hash > bindparam("hash")))
        .order_by(table.c.seq_num, table.c.hash)
        .limit(bindparam("limit"))
    )


_lines: Final = Compiled(lambda _: _select_lines(entries))
_lines_beside: Final = Compiled(lambda _: _select_lines(branch_entries))


def _stored_entry(row: Any) -> StoredEntry:
    seq_num, encoded, entry_hash, payload, *standing = row
    refusal = LogValidity(*standing).refusal(seq_num)
    return StoredEntry(decode_entry(encoded), Hash(entry_hash), payload, refusal.code if refusal is not None else None)


def read_entry_bytes(connection: Connection, log: int, seq_nums: Collection[int]) -> dict[int, bytes]:
    """Read the bytes of the verified entries at these sequence numbers of a log, given by the store's own number."""
    standing = read_logs(connection, [log])[log].standing
    return {
        seq_num: encoded
        for some in in_lists(seq_nums)
        for seq_num, encoded in _encoded.rows(connection, some, log=log)
        if standing.refusal(seq_num) is None
    }


_encoded: Final = CompiledList(
    lambda seq_nums: select(entries.c.seq_num, entries.c.encoded).where(
        entries.c.log == bindparam("log"), entries.c.seq_num.in_(seq_nums)
    )
)


def verified_among(connection: Connection, hashes: Collection[Hash]) -> set[Hash]:
    """Those of the hashes that are of verified entries, of whatever log."""
    found: set[Hash] = set()
    for some in in_lists(hashes):
        query = select(entries.c.hash, entries.c.seq_num, *VALIDITY_COLUMNS).join_from(entries, logs)
        for entry_hash, seq_num, *standing in connection.execute(query.where(entries.c.hash.in_(some))):
            if LogValidity(*standing).refusal(seq_num) is None:
                found.add(Hash(entry_hash))
    return found


def find_fork_proof(connection: Connection, author: PublicKey, log_id: int) -> ForkProof | None:
    """The proof of the earliest known fork of a log."""
    query = (
        select(fork_proofs.c.first, fork_proofs.c.second)
        .join_from(fork_proofs, logs)
        .where(logs.c.name == encode_log_key(author, log_id))
        .order_by(fork_proofs.c.seq_num)
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    found = _read_witnesses(connection, [row.first, row.second])
    first, second = (verify_signed(decode_entry(found[name])) for name in sorted(found))
    return verify_fork_proof(first, second)


def _read_witnesses(connection: Connection, hashes: Collection[bytes]) -> dict[bytes, bytes]:
    """The bytes of entries, whether or not the pins of their logs lead to them."""
    return {
        row.hash: row.encoded
        for table in (entries, branch_entries)
        for some in in_lists(hashes)
        for row in connection.execute(select(table.c.hash, table.c.encoded).where(table.c.hash.in_(some)))
    }


def find_fork_proofs(connection: Connection, numbers: Collection[int]) -> dict[int, tuple[bytes, bytes]]:
    """For logs that are forked two entries each that prove the earliest known fork, as bytes; not verified again."""
    earliest: dict[int, list[bytes]] = {}
    for some in in_lists(numbers):
        query = select(fork_proofs).where(fork_proofs.c.log.in_(some)).order_by(fork_proofs.c.seq_num)
        for row in connection.execute(query):
            earliest.setdefault(row.log, sorted((row.first, row.second)))
    found = _read_witnesses(connection, [name for names in earliest.values() for name in names])
    return {log: (found[first], found[second]) for log, (first, second) in earliest.items()}


def count_absent(connection: Connection, log: int) -> int:
    """How many verified entries of a log have no payload."""
    standing = read_logs(connection, [log])[log].standing
    bounds = []
    if standing.invalid_from is not None:
        bounds.append(entries.c.seq_num < standing.invalid_from)
    if standing.last_counted is not None:
        bounds.append(entries.c.seq_num <= standing.last_counted)
    query = select(func.count()).where(entries.c.log == log, entries.c.payload.is_(None), *bounds)
    return connection.scalar(query) or 0


def read_payloads_of(connection: Connection, hashes: Collection[Hash]) -> dict[Hash, bytes]:
    """The payloads of these entries, as far as they are held."""
    query = select(entries.c.hash, entries.c.payload).where(entries.c.payload.is_not(None))
    return {
        Hash(entry_hash): bytes(payload)
        for some in in_lists(hashes)
        for entry_hash, payload in connection.execute(query.where(entries.c.hash.in_(some)))
    }


_DROP = update(entries).where(entries.c.id == bindparam("of_id")).values(payload=None)


def drop_payloads(connection: Connection, hashes: Collection[Hash]) -> int:
    """Drop the payloads of these entries, all but those that prove a lie about their size; how many were dropped."""
    dropped = 0
    columns = (entries.c.id, entries.c.log, entries.c.seq_num, entries.c.encoded)
    for some in in_lists(hashes):
        query = (
            select(*columns, func.length(entries.c.payload).label("size"))
            .where(entries.c.hash.in_(some), entries.c.payload.is_not(None))
            .order_by(entries.c.id)
            .with_for_update()
        )
        rows = [row for row in connection.execute(query) if decode_entry(row.encoded).payload_size == row.size]
        if rows:
            connection.execute(_DROP, [{"of_id": row.id} for row in rows])
            happened = [
                {"what": IngestKind.PAYLOAD_DROPPED.value, "log": row.log, "seq_num": row.seq_num} for row in rows
            ]
            connection.execute(insert(ingests), happened)
        dropped += len(rows)
    return dropped


class LogRole(NamedTuple):
    """What a log is used for: the kind of its first message, and the schemas its messages name."""

    first_kind: str | None
    schemas: frozenset[SchemaId]
    """The schemas that its messages name; a log that we wrote has one at most."""


def read_role(connection: Connection, log: int) -> LogRole:
    """Read what a log that is held is used for."""
    first = select(entries.c.kind).where(entries.c.log == log, entries.c.seq_num == 1)
    named = select(schemas.c.author, schemas.c.log_id).join_from(log_schemas, schemas).where(log_schemas.c.log == log)
    found = frozenset(SchemaId(PublicKey(row.author), row.log_id) for row in connection.execute(named))
    return LogRole(connection.scalar(first), found)


def _of_author(author: PublicKey) -> Any:
    return logs.c.name.between(encode_log_key(author, 0), encode_log_key(author, MAX_STORED_INTEGER))


def find_log_of_schema(connection: Connection, author: PublicKey, schema: SchemaId) -> int | None:
    """The id of the log that an author writes a schema's instances to; the first, if it is not alone."""
    number = find_schema_number(connection, schema)
    if number is None:
        return None
    query = (
        select(logs.c.log_id)
        .join_from(logs, log_schemas, log_schemas.c.log == logs.c.id)
        .where(_of_author(author), log_schemas.c.schema == number)
        .order_by(logs.c.name)
        .limit(1)
    )
    return connection.scalar(query)


def next_log_id(connection: Connection, author: PublicKey) -> int:
    """The id of a log that an author has not begun."""
    query = select(logs.c.log_id).where(_of_author(author)).order_by(logs.c.name.desc()).limit(1)
    return (connection.scalar(query) or 0) + 1


_hashes_at: Final = CompiledList(
    lambda seq_nums: select(entries.c.seq_num, entries.c.hash).where(
        entries.c.log == bindparam("log"), entries.c.seq_num.in_(seq_nums)
    )
)


def read_hashes(connection: Connection, log: int, seq_nums: Iterable[int]) -> dict[int, Hash]:
    """Read the hashes at some sequence numbers of a log, which must not be forked below them."""
    found = (row for some in in_lists(seq_nums) for row in _hashes_at.rows(connection, some, log=log))
    return {seq_num: Hash(entry_hash) for seq_num, entry_hash in found}


def keep_held_hashes(connection: Connection, hashes: Collection[Hash]) -> set[Hash]:
    """Those of the hashes whose entries are held."""
    return {Hash(found) for some in in_lists(hashes) for (found,) in _held.rows(connection, some)}


_held: Final = CompiledList(lambda hashes: select(entries.c.hash).where(entries.c.hash.in_(hashes)))


class CreateEntry(NamedTuple):
    """The position of the create of an instance: its log and sequence number, with the schema."""

    log: int
    author: PublicKey
    log_id: int
    seq_num: int
    schema: SchemaId


def find_creates(connection: Connection, instances: Collection[Hash]) -> dict[Hash, CreateEntry]:
    """The creates among some entries, by hash."""
    return {
        Hash(entry_hash): CreateEntry(log, PublicKey(author), log_id, seq_num, SchemaId(PublicKey(owner), number))
        for some in in_lists(instances)
        for entry_hash, log, seq_num, author, log_id, owner, number in _creates.rows(connection, some)
    }


_creates: Final = CompiledList(
    lambda hashes: (
        select(
            entries.c.hash,
            entries.c.log,
            entries.c.seq_num,
            logs.c.author,
            logs.c.log_id,
            schemas.c.author.label("schema_author"),
            schemas.c.log_id.label("schema_log_id"),
        )
        .join_from(entries, logs, logs.c.id == entries.c.log)
        .join(schemas, schemas.c.id == entries.c.schema)
        .where(entries.c.kind == "create", entries.c.hash.in_(hashes))
    )
)


def count_entries(connection: Connection) -> int:
    """How many entries are held in all logs, evidence included."""
    return int(connection.scalar(select(func.coalesce(func.sum(logs.c.held), 0))) or 0)
