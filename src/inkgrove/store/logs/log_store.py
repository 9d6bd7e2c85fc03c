"""The log store: takes entries in, gives logs, instances and ingest positions out.

docs/protocol.md sections 2, 5 and 6. Each call is one transaction; a store can be used from many threads, and one
database from many processes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from inkgrove.core.errors import NoStore, StoreError, StoreUnavailable
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.core.log import ForkProof
from inkgrove.core.next_entry import NextEntry
from inkgrove.messages.ids import SchemaId
from inkgrove.schema.log_fold import LogMessage
from inkgrove.store.db.connection import FILE_NAME, Database, lock_schema_changes, parse_store_url, render_store_url
from inkgrove.store.db.log_tables import metadata
from inkgrove.store.logs import bulk_ingestion as bulk
from inkgrove.store.logs import entries as reading
from inkgrove.store.logs import messages
from inkgrove.store.logs import schema_registry as registry
from inkgrove.store.logs.decision import IngestStatus
from inkgrove.store.logs.entries import LogState, StoredEntry, drop_payloads
from inkgrove.store.logs.ingestion import IngestReceipt, ingest_batch
from inkgrove.store.logs.messages import InstanceKey, SchemaLog, UnresolvedReference
from inkgrove.store.logs.positions import (
    START,
    Ingest,
    Offset,
    adopt_restored,
    has_schema_news,
    is_restored,
    newest_offset,
    read_ingests,
)
from inkgrove.store.logs.preparation import IngestItem, by_log, prepare_items


class LogStore:
    """All logs of a node."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def place(self) -> str:
        """What opens the same store in another process: its directory or its URL."""
        return render_store_url(self.database.url)

    def close(self) -> None:
        """Close the store's connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Taking in

    def ingest(self, items: Iterable[IngestItem], *, must_be_next: bool = False) -> list[IngestReceipt]:
        """Take in entries with their payloads, in any order; a refused one does not keep the others out.

        `must_be_next` is for publishing: it refuses everything but the very next entry of a log, with its own payload
        or none, and so never makes evidence against a log of our own. What it took survives a power failure.
        """
        prepared, rejected = prepare_items(items)
        receipts = {item.number: IngestReceipt(item.hash, IngestStatus.REFUSED, item.error) for item in rejected}
        if must_be_next:
            for item in prepared:
                if item.payload_error is not None:
                    receipts[item.number] = IngestReceipt(item.signed.hash, IngestStatus.REFUSED, item.payload_error)
        batch = by_log([item for item in prepared if item.number not in receipts])
        if batch:
            receipts |= self.database.write(
                lambda connection: ingest_batch(connection, batch, must_be_next=must_be_next), durable=must_be_next
            )
        return [receipts[number] for number in sorted(receipts)]

    def append_clean(self, runs: Sequence[bulk.LogBatch]) -> list[bulk.LogBatch]:
        """Append runs of different logs that were verified elsewhere; gives back those whose log has moved since."""
        return self.database.write(lambda connection: bulk.append_verified(connection, runs))

    def drop_payloads(self, hashes: Collection[Hash]) -> int:
        """Forget the payloads of these entries, all but those that prove a lie about their size; how many went."""
        return self.database.write(lambda connection: drop_payloads(connection, hashes))

    # Logs and entries

    def next_place(self, author: PublicKey, log_id: int) -> NextEntry:
        """What the next entry of a log must carry; raises if the log takes no more or lacks an entry to link to."""
        return self.database.read(lambda connection: reading.read_next_entry(connection, author, log_id))

    def entry(self, entry_hash: Hash) -> StoredEntry | None:
        """The entry with this hash."""
        return self.database.read(lambda connection: reading.find_entry(connection, entry_hash))

    def entries_of(
        self, author: PublicKey, log_id: int, first: int = 1, last: int = MAX_STORED_INTEGER
    ) -> list[StoredEntry]:
        """The entries of a part of a log in order, with payloads and evidence."""
        return self.database.read(lambda connection: reading.read_entries(connection, author, log_id, first, last))

    def lines_of(self, log: int, page: int = 100) -> Iterator[tuple[bytes, bytes | None]]:
        """Every entry of a log as bytes, with its payload, in order and evidence included; a page at a time is read.

        Pages follow what is held, not the numbers: a log with few entries may be of any height.
        """
        after = (0, b"")
        while found := self.database.read(partial(reading.read_encoded_entries, log=log, after=after, limit=page)):
            yield from ((line.encoded, line.payload) for line in found)
            after = found[-1].seq_num, found[-1].hash

    def log_state(self, author: PublicKey, log_id: int) -> LogState | None:
        """The log, if anything of it is held."""
        return self.database.read(lambda connection: reading.find_log(connection, author, log_id))

    def logs(self, numbers: Collection[int] | None = None) -> dict[int, LogState]:
        """Logs by the store's own number: those asked for, or all."""
        return self.database.read(lambda connection: reading.read_logs(connection, numbers))

    def heights(self) -> dict[tuple[PublicKey, int], int]:
        """The greatest sequence number held of every log."""
        return {(log.author, log.log_id): log.height for log in self.logs().values()}

    def find_logs(self, names: Collection[bytes]) -> dict[bytes, LogState]:
        """Those of the logs, by author and log id as one key, of which anything is held."""
        return self.database.read(lambda connection: reading.find_logs(connection, names))

    def held_among(self, hashes: Collection[Hash]) -> dict[Hash, bool]:
        """Those of the hashes that are of held entries, each with whether its payload is held too."""
        return self.database.read(lambda connection: bulk.find_held_payloads(connection, hashes))

    def fork_proof(self, author: PublicKey, log_id: int) -> ForkProof | None:
        """The proof of the earliest known fork of a log."""
        return self.database.read(lambda connection: reading.find_fork_proof(connection, author, log_id))

    def verified_among(self, hashes: Collection[Hash]) -> set[Hash]:
        """Those of the hashes that are of verified entries, of whatever log."""
        return self.database.read(lambda connection: reading.verified_among(connection, hashes))

    # What happened

    def read_ingests(self, after: Offset = START, limit: int = 10_000) -> tuple[list[Ingest], Offset]:
        """What happened after an offset, oldest first, and the offset behind it; a reader misses nothing."""
        return self.database.read(lambda connection: read_ingests(connection, after, limit))

    def newest_offset(self) -> Offset:
        """The offset behind everything that readers see now."""
        return self.database.read(newest_offset)

    # Messages

    def messages_of(self, log: int, create_seqs: Collection[int]) -> dict[int, list[LogMessage]]:
        """What is needed to fold instances of one log, as `messages.messages_of` has it, by their `create_seqs`."""
        found = self.messages_of_instances([InstanceKey(log, create_seq) for create_seq in create_seqs])
        return {instance.create_seq: messages for instance, messages in found.items()}

    def messages_of_instances(self, instances: Collection[InstanceKey]) -> dict[InstanceKey, list[LogMessage]]:
        """All that is needed to fold instances of any logs, each in the order of its log.

        Each list holds the messages of the instance, those of the invalid part with its code, and the entry at
        `create_seq` itself, whatever it is and even if its payload is not held. Entries behind the end of a log are
        left out.
        """
        return self.database.read(lambda connection: messages.messages_of(connection, instances))

    def whole_logs(self, first: int, last: int) -> Iterator[tuple[LogState, list[LogMessage]]]:
        """The logs from one of the store's own numbers to another, each with all its messages in order."""
        with self.database.reading() as connection:
            yield from messages.whole_logs(connection, first, last)

    def owners_of(self, log: int, seq_nums: Collection[int]) -> dict[Hash, int]:
        """For the entries at these places, which entry each is folded with."""
        return self.database.read(lambda connection: messages.find_create_seqs(connection, log, seq_nums))

    def messages_between(self, log: int, first: int = 1, last: int = MAX_STORED_INTEGER) -> list[LogMessage]:
        """The messages of a part of a log in order, without those behind its end: what `fold_log` takes."""
        return self.database.read(lambda connection: messages.messages_between(connection, log, first, last))

    def hashes_from(self, log: int, first: int) -> list[Hash]:
        """The entries of a log at or behind a place, whether they count or not."""
        return self.database.read(lambda connection: messages.hashes_from(connection, log, first))

    def create_seqs_from(self, log: int, first: int) -> list[int]:
        """The instances that have a message at or behind `first`: what a fork, a lie or a late end there touches."""
        return self.database.read(lambda connection: messages.create_seqs_from(connection, log, first))

    def waiting_for(self, hashes: Collection[Hash]) -> list[UnresolvedReference]:
        """The messages of any log that name one of these hashes and do not belong to it."""
        return self.database.read(lambda connection: messages.find_unresolved_references(connection, hashes))

    def first_payloads(self, numbers: Collection[int]) -> dict[int, int]:
        """The place of the first payload that is held of each log, if any is."""
        return self.database.read(lambda connection: messages.first_payloads(connection, numbers))

    def count_absent(self, log: int) -> int:
        """How many verified entries of a log have no payload."""
        return self.database.read(lambda connection: reading.count_absent(connection, log))

    # Schemas

    def payloads_of_schema(self, schema: SchemaId) -> SchemaLog:
        """The log that defines a schema."""
        return self.database.read(lambda connection: messages.payloads_of_schema(connection, schema))

    def logs_of_schema(self, schema: SchemaId) -> list[int]:
        """The logs that hold, or held, a message which names the schema."""
        return self.database.read(lambda connection: messages.logs_of_schema(connection, schema))

    def logs_without_schema(self) -> list[int]:
        """The logs of which no message that counts names a schema."""
        return self.database.read(messages.logs_without_schema)

    def schemas_of_logs(self, numbers: Collection[int]) -> dict[int, list[SchemaId]]:
        """The schemas that messages of each log name, or named."""
        return self.database.read(lambda connection: messages.schemas_of_logs(connection, numbers))

    def has_schema_news(self, after: Offset) -> bool:
        """Whether the list of registered schemas or the log of one of them changed after an offset."""
        return self.database.read(lambda connection: has_schema_news(connection, after))

    def schema_of_log(self, log: int) -> SchemaId | None:
        """The schema that the first message of the log's valid part names: that of messages which name none."""
        return self.database.read(lambda connection: messages.find_schema_of_log(connection, log))

    def register(self, schema: SchemaId) -> bool:
        """Put a schema on the list of those to materialise; whether that was news."""
        return self.database.write(lambda connection: registry.register_schema(connection, schema))

    def unregister(self, schema: SchemaId) -> bool:
        """Take a schema off that list; whether it was on it."""
        return self.database.write(lambda connection: registry.unregister_schema(connection, schema))

    def registered(self) -> list[SchemaId]:
        """Every schema on that list, in the order of author and log id."""
        return self.database.read(registry.read_registered)


# Opens a store: creates its tables, brings them up to date, or says why it cannot.


OLDEST: Final = "0007"
"""The first revision of the tables that was released; stores from before it are refused."""
NEWEST: Final = "0007"
"""The revision of the tables that this code works with; the last one in `migrations/versions`."""
MIGRATIONS: Final = "inkgrove.store:migrations"

OLDEST_POSTGRESQL: Final = (15,)
_VERSIONS: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def open_store(place: Path | str, *, create: bool = True) -> LogStore:
    """The log store in a directory (SQLite) or at a PostgreSQL URL, brought up to date if need be.

    One that is not there is made, or with `create=False` refused with `NoStore`, and nothing is written.
    """
    if not create:
        _require_file(place)
    database = Database(parse_store_url(place))
    try:
        with database.reading() as connection:
            _check_server(connection)
            revision = _revision(connection)
        if revision is None and not create:
            raise _no_store(place)
        if revision != NEWEST:
            with database.writing() as connection:
                bring_up_to_date(connection)
        if database.is_postgresql and database.read(is_restored):
            with database.writing() as connection:
                lock_schema_changes(connection)
                if is_restored(connection):
                    adopt_restored(connection)
    except BaseException:
        database.close()
        raise
    return LogStore(database)


def require_store(place: Path | str) -> None:
    """Raise `NoStore` unless there is a store; changes nothing."""
    _require_file(place)
    if "://" in str(place) and read_revision(place) is None:
        raise _no_store(place)


def _require_file(place: Path | str) -> None:
    """For a directory: raise unless it has the file of a store, which SQLite would make by opening it."""
    if isinstance(place, str) and "://" in place:
        return
    file = Path(place) / FILE_NAME
    if not file.is_file() or file.stat().st_size == 0:
        raise _no_store(place)


def _no_store(place: Path | str) -> NoStore:
    where = "in this database" if "://" in str(place) else f"in {place}"
    return NoStore(
        f"there is no store {where}: is the place right (--home, --store)? A new one is made by inkgrove up, serve,"
        " identity create, log ingest, import, bundle read and restore"
    )


def read_revision(place: Path | str) -> str | None:
    """The revision of a store as it is, None if it has no tables yet; changes nothing."""
    database = Database(parse_store_url(place))
    try:
        with database.reading() as connection:
            _check_server(connection)
            return _revision(connection)
    finally:
        database.close()


def _check_server(connection: Connection) -> None:
    version = connection.dialect.server_version_info or ()
    if connection.dialect.name == "postgresql" and version < OLDEST_POSTGRESQL:
        advice = "use PostgreSQL 15 or newer"
        raise StoreUnavailable(f"the server is PostgreSQL {version[0]}, which is too old: {advice}", advice=advice)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.scalar(select(_VERSIONS.c.version_num))


def too_old(revision: str) -> StoreUnavailable:
    """The error for a store, or a backup of one, from before the first revision that was released."""
    advice = "write its logs with the version that made it (inkgrove export), and take them into a new store (import)"
    return StoreUnavailable(
        f"the store has revision {revision}, and this version of Inkgrove knows none before {OLDEST}: {advice}",
        advice=advice,
    )


def bring_up_to_date(connection: Connection, migrations: str = MIGRATIONS) -> None:
    """Make the tables of a new store, or lead those of an older one through the revisions in a folder, to the newest.

    Raises `store.too-new` or `StoreUnavailable` if the store has a revision that is not among them.
    """
    lock_schema_changes(connection)
    # Read here: another process may have been at it while this one waited.
    revision = _revision(connection)
    if revision is None:
        _make_tables(connection)
        return
    if revision < OLDEST:
        raise too_old(revision)
    # Imported here: most openings have nothing to migrate, and Alembic takes longer to load than they take.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", migrations)
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known:
        advice = "use the newer version that wrote it"
        raise StoreError(
            "store.too-new",
            f"the store has revision {revision} and this version of Inkgrove knows none after {NEWEST}: {advice}",
            revision=revision,
            advice=advice,
        )
    command.upgrade(config, "head")


def _make_tables(connection: Connection) -> None:
    # Imported here, for their tables join the metadata: most openings find a store.
    from inkgrove.store.db import node_tables as federation_tables  # noqa: F401, PLC0415
    from inkgrove.store.db.node_tables import create_visibility_triggers  # noqa: PLC0415

    metadata.create_all(connection, checkfirst=False)
    create_visibility_triggers(connection)
    _VERSIONS.create(connection)
    connection.execute(insert(_VERSIONS).values(version_num=NEWEST))
