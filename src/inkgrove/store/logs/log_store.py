"""The log store: opens it, makes and migrates its tables, and ingests entries (docs/protocol.md sections 2, 5 and 6).

Each call is one transaction; a store can be used from many threads, and one database from many processes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from inkgrove.core import PublicKey
from inkgrove.core.errors import NoStore, StoreError, StoreUnavailable
from inkgrove.schema import LogMessage
from inkgrove.store.db.connection import FILE_NAME, Database, lock_schema_changes, parse_store_url, render_store_url
from inkgrove.store.db.log_tables import metadata
from inkgrove.store.logs import entries as reading
from inkgrove.store.logs import messages
from inkgrove.store.logs.decision import IngestStatus
from inkgrove.store.logs.entries import LogState, read_logs
from inkgrove.store.logs.ingestion import IngestReceipt, ingest_batch
from inkgrove.store.logs.messages import InstanceKey, messages_of
from inkgrove.store.logs.positions import adopt_restored, is_restored
from inkgrove.store.logs.preparation import IngestItem, by_log, prepare_items

_P = ParamSpec("_P")
_R = TypeVar("_R")


class LogStore:
    """All logs of a node."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def place(self) -> str:
        """The directory or URL that opens this store in another process."""
        return render_store_url(self.database.url)

    def read(self, query: Callable[Concatenate[Connection, _P], _R], *args: _P.args, **named: _P.kwargs) -> _R:
        """Call a function of the store, which takes a connection first, in a transaction that only reads."""
        return self.database.read(lambda connection: query(connection, *args, **named))

    def write(self, work: Callable[Concatenate[Connection, _P], _R], *args: _P.args, **named: _P.kwargs) -> _R:
        """Call a function of the store, which takes a connection first, in a transaction that writes."""
        return self.database.write(lambda connection: work(connection, *args, **named))

    def close(self) -> None:
        """Close the store's connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def lines_of(self, log: int, page: int = 100) -> Iterator[tuple[bytes, bytes | None]]:
        """Every entry of a log as bytes, with its payload, in order and evidence included; a page at a time is read.

        Pages follow what is held, not the numbers: a log with few entries may be of any height.
        """
        after = (0, b"")
        while found := self.database.read(partial(reading.read_encoded_entries, log=log, after=after, limit=page)):
            yield from ((line.encoded, line.payload) for line in found)
            after = found[-1].seq_num, found[-1].hash

    def heights(self) -> dict[tuple[PublicKey, int], int]:
        """The greatest sequence number held of every log."""
        return {(log.author, log.log_id): log.height for log in self.read(read_logs).values()}

    def messages_of(self, log: int, create_seqs: Collection[int]) -> dict[int, list[LogMessage]]:
        """Read what is needed to fold instances of one log, by their `create_seqs`; see `messages.messages_of`."""
        found = self.read(messages_of, [InstanceKey(log, create_seq) for create_seq in create_seqs])
        return {instance.create_seq: messages for instance, messages in found.items()}

    def whole_logs(self, first: int, last: int) -> Iterator[tuple[LogState, list[LogMessage]]]:
        """The logs from one of the store's own numbers to another, each with all its messages in order."""
        with self.database.reading() as connection:
            yield from messages.whole_logs(connection, first, last)

    # Schemas


OLDEST: Final = "0007"
"""The first revision of the tables that was released; stores from before it are refused."""
NEWEST: Final = "0013"
"""The revision of the tables that this code works with; the last one in `migrations/versions`."""
MIGRATIONS: Final = "inkgrove.store:migrations"

OLDEST_POSTGRESQL: Final = (15,)
_VERSIONS: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def open_store(location: Path | str, *, create: bool = True) -> LogStore:
    """Open the log store in a directory (SQLite) or at a PostgreSQL URL, brought up to date if need be.

    One that is not there is made, or with `create=False` refused with `NoStore`, and nothing is written.
    """
    if not create:
        _require_file(location)
    database = Database(parse_store_url(location))
    try:
        with database.reading() as connection:
            _check_server(connection)
            revision = _revision(connection)
        if revision is None and not create:
            raise _no_store(location)
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


def require_store(location: Path | str) -> None:
    """Raise `NoStore` unless there is a store; changes nothing."""
    _require_file(location)
    if "://" in str(location) and read_revision(location) is None:
        raise _no_store(location)


def _require_file(location: Path | str) -> None:
    """For a directory: raise unless it has the file of a store, which SQLite would make by opening it."""
    if isinstance(location, str) and "://" in location:
        return
    file = Path(location) / FILE_NAME
    if not file.is_file() or file.stat().st_size == 0:
        raise _no_store(location)


def _no_store(location: Path | str) -> NoStore:
    where = "in this database" if "://" in str(location) else f"in {location}"
    return NoStore(
        f"there is no store {where}: is the place right (--home, --store)? A new one is made by inkgrove up, serve,"
        " identity create, log ingest, import, bundle read and restore"
    )


def read_revision(location: Path | str) -> str | None:
    """Read the revision of a store as it is, None if it has no tables yet; changes nothing."""
    database = Database(parse_store_url(location))
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
    from inkgrove.store.db.node_tables import create_visibility_triggers  # noqa: PLC0415

    metadata.create_all(connection, checkfirst=False)
    create_visibility_triggers(connection)
    _VERSIONS.create(connection)
    connection.execute(insert(_VERSIONS).values(version_num=NEWEST))
