"""The tables of the log store (docs/protocol.md sections 2, 5 and 6).

A fork keeps several entries for one (log, seq_num); those that a pin does not lead to lie in `branch_entries`. What a
payload says about its place among the others (`kind` to `access`) is read once, when it arrives, and outlives it: a
payload that is dropped later still belongs to the same instance.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    false,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from inkgrove.core import PublicKey


class Bytes(LargeBinary):
    """Byte strings, which both drivers take and give as they are; hashes and keys included."""

    def bind_processor(self, dialect: Dialect) -> None:
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        return None


NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)

# SQLite numbers rows by itself only where the column is spelled INTEGER.
KEY: Final = BigInteger().with_variant(Integer(), "sqlite")


class TransactionId(FunctionElement[int]):
    """The number of the writing transaction; always 0 on SQLite, whose one writer commits in order."""

    inherit_cache = True
    type = BigInteger()


@compiles(TransactionId, "sqlite")
def _sqlite_transaction_id(_element: TransactionId, _compiler: Any, **_options: Any) -> str:
    return "0"


@compiles(TransactionId, "postgresql")
def _postgresql_transaction_id(_element: TransactionId, _compiler: Any, **_options: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


def encode_log_key(author: PublicKey, log_id: int) -> bytes:
    """Author and log id as one key, so that many logs are found by one list."""
    return author + log_id.to_bytes(8, "big")


logs = Table(
    "logs",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("name", Bytes, nullable=False, unique=True),
    Column("author", Bytes, nullable=False),
    Column("log_id", BigInteger, nullable=False),
    Column("height", BigInteger, nullable=False),  # the greatest sequence number held
    Column("held", BigInteger, nullable=False),  # how many entries are held, evidence included
    Column("forked_at", BigInteger),
    Column("lied_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("revoked_after", BigInteger),  # of a revoked key: the last that counts; derived from its identity's log 0
    Column("pin", Bytes),  # of a revoked key: the hash that the entry there must have, if its identity says one
    Column("is_pinned", Boolean, nullable=False, server_default=false()),  # the pin decides: the rows are its branch
    Column("aside", BigInteger, nullable=False, server_default="0"),  # how many entries lie in `branch_entries`
)
VALIDITY_COLUMNS: Final = (logs.c.forked_at, logs.c.lied_at, logs.c.ended_at, logs.c.revoked_after)
"""The fields of `store.logs.decision.LogValidity`, in their order."""

schemas = Table(
    "schemas",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("name", Bytes, nullable=False, unique=True),
    Column("author", Bytes, nullable=False),
    Column("log_id", BigInteger, nullable=False),
)


def _entry_columns() -> list[Column[Any]]:
    return [
        Column("id", KEY, primary_key=True),
        Column("log", ForeignKey(logs.c.id), nullable=False),
        Column("seq_num", BigInteger, nullable=False),
        Column("hash", Bytes, nullable=False, unique=True),
        Column("kind", String(20)),  # of the message; none if it is malformed or its payload never came
        Column("schema", ForeignKey(schemas.c.id)),
        Column("schema_version", BigInteger),
        Column("create_seq", BigInteger),  # the entry it is folded with: its create, else itself
        Column("ref_hash", Bytes),  # the instance it names, while no held entry of its log has that hash
        Column("code", String(64)),  # why the message is malformed
        Column("access", String(10)),  # the mode that the message says, if it says one
        Column("encoded", Bytes, nullable=False),
        Column("payload", Bytes),  # the last column: whoever does not ask for it does not read it
    ]


entries = Table("entries", metadata, *_entry_columns())
Index(None, entries.c.log, entries.c.seq_num)
Index(None, entries.c.log, entries.c.create_seq)
FOR_FOLLOWERS: Final = text("access IN ('public', 'relations')")
"""A message that says that its instance is for followers; a condition in plain text, so that its index is found."""
Index(
    "ix_entries_for_followers",
    entries.c.log,
    entries.c.seq_num,
    sqlite_where=FOR_FOLLOWERS,
    postgresql_where=FOR_FOLLOWERS,
)
Index(
    None,
    entries.c.ref_hash,
    sqlite_where=entries.c.ref_hash.is_not(None),
    postgresql_where=entries.c.ref_hash.is_not(None),
)

branch_entries = Table("branch_entries", metadata, *_entry_columns())  # no messages: see `store.logs.branches`
Index(None, branch_entries.c.log, branch_entries.c.seq_num)

log_schemas = Table(
    "log_schemas",
    metadata,
    Column("schema", ForeignKey(schemas.c.id), primary_key=True),
    Column("log", ForeignKey(logs.c.id), primary_key=True),
)
Index(None, log_schemas.c.log)

ingests = Table(
    "ingests",
    metadata,
    Column("position", KEY, primary_key=True),
    Column("xid", BigInteger, nullable=False, server_default=TransactionId()),
    Column("what", String(20), nullable=False),
    Column("log", ForeignKey(logs.c.id)),
    Column("seq_num", BigInteger),
    Column("schema", ForeignKey(schemas.c.id)),
    sqlite_autoincrement=True,  # a position is never given twice
)
Index(None, ingests.c.xid, ingests.c.position).ddl_if(dialect="postgresql")

fork_proofs = Table(
    "fork_proofs",
    metadata,
    Column("log", ForeignKey(logs.c.id), primary_key=True),
    Column("seq_num", BigInteger, primary_key=True, autoincrement=False),
    Column("first", Bytes, nullable=False),  # a hash of `entries` or `branch_entries`, as the next
    Column("second", Bytes, nullable=False),
)

registered = Table(
    "registered",
    metadata,
    Column("schema", ForeignKey(schemas.c.id), primary_key=True, autoincrement=False),
)
