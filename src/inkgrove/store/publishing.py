"""What publishing keeps beside the logs: whose keys write, which log a schema is in, shares, answers to repeat.

docs/protocol.md sections 5, 7 and 8. Everything here runs inside the transaction of the caller.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, delete, insert, select, tuple_

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import SchemaId
from inkgrove.store.compiled import Compiled, CompiledList
from inkgrove.store.database import in_lists, insert_new
from inkgrove.store.ingests import START, Offset
from inkgrove.store.node_tables import idempotency, identities, identity_keys, shares
from inkgrove.store.registry import find_schema
from inkgrove.store.tables import TransactionId, entries, ingests, log_schemas, logs, name_of_log, schemas


class OwnKey(NamedTuple):
    """A key of an identity."""

    author: PublicKey
    identity: IdentityId
    sealed: bytes | None
    is_first: bool
    """Whether the identity's id is the thumbprint of this key."""
    lives_here: bool = True
    """False if the identity has moved to another node."""


def _select_keys(wanted: Any) -> Select[Any]:
    return (
        select(
            identity_keys.c.author,
            identity_keys.c.identity,
            identity_keys.c.sealed,
            identities.c.key,
            identities.c.lives_here,
        )
        .join_from(identity_keys, identities, identities.c.id == identity_keys.c.identity)
        .where(identity_keys.c.identity.in_(wanted))
        .order_by(identity_keys.c.author)
    )


_lock_keys: Final = CompiledList(lambda wanted: _select_keys(wanted).with_for_update(of=identity_keys))


def lock_keys(connection: Connection, wanted: Collection[IdentityId]) -> dict[PublicKey, OwnKey]:
    """The keys of identities; no other writer publishes with them before the transaction ends."""
    return {
        PublicKey(author): OwnKey(PublicKey(author), IdentityId(identity), sealed, first == author, bool(is_here))
        for some in in_lists(sorted(wanted))
        for author, identity, sealed, first, is_here in _lock_keys.rows(connection, some)
    }


def read_keys(connection: Connection, identity: IdentityId) -> dict[PublicKey, OwnKey]:
    """The keys of an identity, for one who publishes nothing."""
    return {
        PublicKey(author): OwnKey(PublicKey(author), identity, sealed, first == author, bool(is_here))
        for author, _, sealed, first, is_here in connection.execute(_select_keys([identity]))
    }


# Logs


class LogRole(NamedTuple):
    """What a log is for, as its first entry and its messages tell."""

    first_kind: str | None
    schemas: frozenset[SchemaId]
    """The schemas that its messages name; a log that we wrote has one at most."""


def read_role(connection: Connection, log: int) -> LogRole:
    """What a log that is held is for."""
    first = select(entries.c.kind).where(entries.c.log == log, entries.c.seq_num == 1)
    named = select(schemas.c.author, schemas.c.log_id).join_from(log_schemas, schemas).where(log_schemas.c.log == log)
    found = frozenset(SchemaId(PublicKey(row.author), row.log_id) for row in connection.execute(named))
    return LogRole(connection.scalar(first), found)


def _of_author(author: PublicKey) -> Any:
    return logs.c.name.between(name_of_log(author, 0), name_of_log(author, MAX_STORED_INTEGER))


def find_log_of_schema(connection: Connection, author: PublicKey, schema: SchemaId) -> int | None:
    """The id of the log that an author writes a schema's instances to; the first, if it is not alone."""
    number = find_schema(connection, schema)
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


_read_hashes: Final = CompiledList(
    lambda seq_nums: select(entries.c.seq_num, entries.c.hash).where(
        entries.c.log == bindparam("log"), entries.c.seq_num.in_(seq_nums)
    )
)


def read_hashes(connection: Connection, log: int, seq_nums: Iterable[int]) -> dict[int, Hash]:
    """The hashes of a log's entries at some places; the log must not be forked below them."""
    found = (row for some in in_lists(seq_nums) for row in _read_hashes.rows(connection, some, log=log))
    return {seq_num: Hash(entry_hash) for seq_num, entry_hash in found}


def held_among(connection: Connection, hashes: Collection[Hash]) -> set[Hash]:
    """Those of the hashes whose entries are held."""
    return {Hash(found) for some in in_lists(hashes) for (found,) in _held.rows(connection, some)}


_held: Final = CompiledList(lambda hashes: select(entries.c.hash).where(entries.c.hash.in_(hashes)))


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


# Instances


class CreateEntry(NamedTuple):
    """Where the create of an instance stands."""

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


# Shares


def add_shares(connection: Connection, rows: Collection[tuple[Hash, IdentityId]], now: int) -> None:
    """Note whom instances were sent to; twice is once."""
    values = [{"instance": instance, "identity": identity, "shared": now} for instance, identity in rows]
    if values:
        connection.execute(insert_new(connection, shares), values)


def shares_of(connection: Connection, instance: Hash) -> list[IdentityId]:
    """Whom an instance was sent to."""
    query = select(shares.c.identity).where(shares.c.instance == instance).order_by(shares.c.identity)
    return [IdentityId(found) for found in connection.scalars(query)]


def authors_shared_with(connection: Connection, identity: IdentityId) -> list[PublicKey]:
    """The keys that created what was sent to an identity."""
    created = shares.join(entries, entries.c.hash == shares.c.instance).join(logs, logs.c.id == entries.c.log)
    query = select(logs.c.author).select_from(created).where(shares.c.identity == identity).distinct()
    return sorted(PublicKey(author) for author in connection.scalars(query))


def remove_shares(connection: Connection, identity: IdentityId, authors: Collection[PublicKey]) -> None:
    """Let nothing that these keys created count as sent to an identity any more."""
    for some in in_lists(authors):
        created = select(entries.c.hash).join_from(entries, logs, logs.c.id == entries.c.log)
        is_theirs = created.where(entries.c.hash == shares.c.instance, logs.c.author.in_(some)).exists()
        connection.execute(delete(shares).where(shares.c.identity == identity, is_theirs))


# Idempotency


class RequestKey(NamedTuple):
    """An Idempotency-Key with whose it is."""

    identity: IdentityId
    client: str
    key: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was answered to a request."""

    request: bytes
    status: int
    answer: str


def find_answers(connection: Connection, keys: Collection[RequestKey], since: int) -> dict[RequestKey, Recorded]:
    """The answers that were given to requests with these keys and are still kept."""
    columns = (idempotency.c.identity, idempotency.c.client, idempotency.c.key)
    return {
        RequestKey(IdentityId(row.identity), row.client, row.key): Recorded(row.request, row.status, row.answer)
        for some in in_lists(keys)
        for row in connection.execute(
            select(idempotency).where(tuple_(*columns).in_([tuple(key) for key in some]), idempotency.c.at >= since)
        )
    }


def add_answers(connection: Connection, answers: Collection[tuple[RequestKey, Recorded]], now: int) -> None:
    """Keep what was answered, in place of what is no longer kept."""
    rows = [
        {**key._asdict(), "request": answer.request, "status": answer.status, "answer": answer.answer, "at": now}
        for key, answer in answers
    ]
    if rows:
        columns = (idempotency.c.identity, idempotency.c.client, idempotency.c.key)
        connection.execute(delete(idempotency).where(tuple_(*columns).in_([tuple(key) for key, _ in answers])))
        connection.execute(insert(idempotency), rows)


def forget_answers(connection: Connection, before: int) -> int:
    """Forget answers from before a time; how many went."""
    return connection.execute(delete(idempotency).where(idempotency.c.at < before)).rowcount
