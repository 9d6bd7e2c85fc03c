"""Opens a store: creates its tables, brings them up to date, or says why it cannot."""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, inspect, select, table
from sqlalchemy.sql import column

from inkgrove.core.errors import StoreTooNew, StoreUnavailable
from inkgrove.store.database import Database, lock_form, parse_place
from inkgrove.store.ingests import adopt_restored, is_restored
from inkgrove.store.log_store import LogStore

NEWEST: Final = "0006"
"""The revision of the tables that this code works with; the last one in `migrations/versions`."""

OLDEST_POSTGRESQL: Final = (15,)
_VERSIONS: Final = table("alembic_version", column("version_num"))


def open_store(place: Path | str) -> LogStore:
    """The log store in a directory (SQLite) or at a PostgreSQL URL, made or brought up to date if need be."""
    database = Database(parse_place(place))
    try:
        with database.reading() as connection:
            _check_server(connection)
            revision = _revision(connection)
        if revision != NEWEST:
            with database.writing() as connection:
                _migrate(connection)
        if database.is_postgresql and database.read(is_restored):
            with database.writing() as connection:
                lock_form(connection)
                if is_restored(connection):
                    adopt_restored(connection)
    except BaseException:
        database.close()
        raise
    return LogStore(database)


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
        raise StoreUnavailable(f"the server is PostgreSQL {version[0]}; Inkgrove needs 15 or newer")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.scalar(select(_VERSIONS.c.version_num))


def _migrate(connection: Connection) -> None:
    # Imported here: most openings have nothing to migrate, and Alembic takes longer to load than they take.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    lock_form(connection)
    config = Config()
    config.set_main_option("script_location", "inkgrove.store:migrations")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    # Read again: another process may have migrated while this one waited.
    revision = _revision(connection)
    if revision is not None and revision not in known:
        raise StoreTooNew(
            f"the store has revision {revision} and this version of Inkgrove knows none after {NEWEST}:"
            " use the newer version that wrote it",
            revision=revision,
        )
    command.upgrade(config, "head")
