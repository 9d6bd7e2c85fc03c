"""One consistent copy of a store in a file, taken while others write, and the way back.

The file is a SQLite database with the tables of the store, whichever database it came from: a page-by-page copy of
SQLite's own, or the rows of PostgreSQL as one transaction sees them. Views are not in it: they are built again.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Integer, Table, func, insert, select, text

from inkgrove.core.errors import StoreUnavailable
from inkgrove.store.db import node_tables
from inkgrove.store.db.connection import BUSY_SECONDS, FILE_NAME, Database, lock_schema_changes, parse_store_url
from inkgrove.store.db.log_tables import metadata
from inkgrove.store.files import sync_file
from inkgrove.store.logs.log_store import open_store

OnRows = Callable[[str, int], None]
"""Is called with the name of a table and how many of its rows are copied."""
_AT_ONCE: Final = 1_000
_WRITTEN_BY_TRIGGERS: Final = node_tables.visibility_changes


def _tables() -> list[Table]:
    """Every table, those that others refer to first, what triggers write last."""
    return [table for table in metadata.sorted_tables if table is not _WRITTEN_BY_TRIGGERS] + [_WRITTEN_BY_TRIGGERS]


def write_snapshot(database: Database, folder: Path, on_rows: OnRows = lambda _table, _rows: None) -> Path:
    """Copy a store as it is at one moment into a folder of its own; gives the path of the synced file."""
    file = folder / FILE_NAME
    if database.is_postgresql:
        _copy_rows(database, folder, on_rows)
    else:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            database.translated(),
            closing(sqlite3.connect(database.url.database or "", timeout=BUSY_SECONDS)) as source,
            closing(sqlite3.connect(file)) as target,
        ):
            # In one go: one state of the database, however many write meanwhile.
            source.backup(target, pages=-1)
            target.execute("PRAGMA journal_mode=DELETE")
    sync_file(file)
    return file


def _copy_rows(database: Database, folder: Path, on_rows: OnRows) -> None:
    with open_store(folder) as copy, database.reading() as source, copy.database.writing(durable=True) as target:
        for table in _tables():
            target.execute(table.delete())
            done = 0
            with source.execution_options(yield_per=_AT_ONCE).execute(select(table)) as found:
                for some in found.partitions():
                    target.execute(insert(table), [dict(row._mapping) for row in some])
                    done += len(some)
                    on_rows(table.name, done)
            source.execution_options(yield_per=None)
        for table, name in _numbered(source):
            last = source.scalar(text(f"SELECT last_value FROM {name}"))
            target.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
            target.execute(
                text("INSERT INTO sqlite_sequence VALUES (:name, :last)"), {"name": table.name, "last": last}
            )
    with closing(sqlite3.connect(folder / FILE_NAME)) as file:
        file.execute("PRAGMA journal_mode=DELETE")


def _numbered(connection: Connection) -> Iterator[tuple[Table, str]]:
    """PostgreSQL: the tables whose rows it numbers, each with its sequence."""
    for table in metadata.sorted_tables:
        keys = list(table.primary_key)
        if len(keys) == 1 and isinstance(keys[0].type, Integer | BigInteger):
            name = connection.dialect.identifier_preparer.format_table(table)
            query = select(func.pg_get_serial_sequence(name, keys[0].name))
            sequence = connection.scalar(query)
            if sequence is not None:
                yield table, sequence


def check_snapshot(file: Path) -> dict[str, int]:
    """Count the rows of each table of a copy; raises `StoreUnavailable` if the file is damaged."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            found = [row[0] for row in database.execute("PRAGMA integrity_check")]
            broken = database.execute("PRAGMA foreign_key_check").fetchmany(5)
            if found != ["ok"] or broken:
                raise StoreUnavailable(f"the copy of the database is damaged: {found[:3]} {broken}")
            names = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            known = [table.name for table in metadata.sorted_tables if table.name in names]
            return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in known}
    except sqlite3.Error as err:
        raise StoreUnavailable(f"the copy of the database cannot be read: {err}") from err


def snapshot_revision(file: Path) -> str | None:
    """Read the revision of the tables in a copy; raises `StoreUnavailable` if it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as err:
        raise StoreUnavailable(f"the copy of the database cannot be read: {err}") from err
    return row[0] if row is not None else None


def load_rows(snapshot: Path, connection: Connection, on_rows: OnRows = lambda _table, _rows: None) -> None:
    """PostgreSQL: put the rows of a copy, which has the newest tables, in place of all that are there."""
    lock_schema_changes(connection)
    quote = connection.dialect.identifier_preparer.format_table
    connection.execute(text(f"TRUNCATE {', '.join(quote(table) for table in metadata.sorted_tables)}"))
    source = Database(parse_store_url(snapshot))
    try:
        with source.reading() as rows:
            for table in _tables():
                connection.execute(table.delete())  # what triggers have written
                _load(rows, connection, table, on_rows)
            for table, name in _numbered(connection):
                newest = connection.scalar(select(func.max(next(iter(table.primary_key)))))
                known = rows.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
                last = max(newest or 0, known.scalar() or 0)
                if last:
                    connection.execute(select(func.setval(name, last)))
    finally:
        source.close()


def _load(rows: Connection, connection: Connection, table: Table, on_rows: OnRows) -> None:
    # Transactions of another time count as before all that are to come, in their order.
    newest = rows.scalar(select(func.max(table.c.xid))) if "xid" in table.c else None
    shift = newest + 1 if newest is not None else 0
    names = ", ".join(connection.dialect.identifier_preparer.format_column(column) for column in table.columns)
    name = connection.dialect.identifier_preparer.format_table(table)
    xid_column = list(table.columns).index(table.c.xid) if "xid" in table.c else None
    driver: Any = connection.connection.driver_connection
    done = 0
    with driver.cursor() as cursor, cursor.copy(f"COPY {name} ({names}) FROM STDIN") as copy:
        for row in rows.execution_options(yield_per=_AT_ONCE).execute(select(table)):
            values = list(row)
            if xid_column is not None:
                values[xid_column] -= shift
            copy.write_row(values)
            done += 1
            if done % _AT_ONCE == 0:
                on_rows(table.name, done)
    on_rows(table.name, done)


def count_table_rows(connection: Connection) -> dict[str, int]:
    """How many rows each table of a store has."""
    return {
        table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in metadata.sorted_tables
    }


def others_connected(database: Database) -> int:
    """PostgreSQL: how many others are connected to this database."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return int(database.read(lambda connection: connection.scalar(query)) or 0)


def checkpoint(database: Database) -> None:
    """Bring everything that SQLite keeps beside its file into the file itself, and close the connection."""
    with database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        connection.invalidate()
