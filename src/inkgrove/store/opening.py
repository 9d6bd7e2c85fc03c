"""Opens a store: creates its tables, brings them up to date, or says why it cannot."""

from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from inkgrove.core.errors import NoStore, StoreError, StoreUnavailable
from inkgrove.store.database import FILE_NAME, Database, lock_form, parse_place
from inkgrove.store.ingests import adopt_restored, is_restored
from inkgrove.store.log_store import LogStore
from inkgrove.store.tables import metadata

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
    database = Database(parse_place(place))
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
                lock_form(connection)
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
    database = Database(parse_place(place))
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
    lock_form(connection)
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
    from inkgrove.store import federation_tables, rot_tables  # noqa: F401, PLC0415
    from inkgrove.store.node_tables import create_visibility_triggers  # noqa: PLC0415

    metadata.create_all(connection, checkfirst=False)
    create_visibility_triggers(connection)
    _VERSIONS.create(connection)
    connection.execute(insert(_VERSIONS).values(version_num=NEWEST))
