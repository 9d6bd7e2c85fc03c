"""Staging: tasks write what they folded beside the views, the driver merges it in one transaction.

A stage holds the same tables whatever the database: `groups` and `messages` (what was folded anew), `rows_<view>`,
`outcomes`, `deleted` and `edges`. On SQLite it is a file that the driver attaches, on PostgreSQL a schema of unlogged
tables. A stage whose task failed is never merged.
"""

import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import psycopg
from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.schema import CreateSchema, CreateTable, DropSchema

from inkgrove.store.database import Database
from inkgrove.store.runs import Run
from inkgrove.store.view_tables import deleted_table, edge_table, group_columns, outcome_table, row_table

PREFIX: Final = "inkgrove_stage_"
_MERGE_LOCK: Final = 0x696E6B6D65726765
Fields = Mapping[int, Sequence[tuple[str, str]]]
"""The columns of each view, by its number."""


def stage_tables(fields: Fields, schema: str | None = None) -> dict[str, Table]:
    """The tables of a stage; without keys, for merging looks at all of them."""
    target = MetaData(schema=schema)
    tables = [
        Table("groups", target, *group_columns()),
        Table("messages", target, Column("hash", LargeBinary, nullable=False)),
        outcome_table("outcomes", target, keyed=False),
        deleted_table("deleted", target, keyed=False),
        edge_table("edges", target),
        *(row_table(f"rows_{view}", columns, target, keyed=False) for view, columns in fields.items()),
    ]
    return {table.name: table for table in tables}


class Stage(Protocol):
    """Where a task puts its results."""

    name: str

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to one of the stage's tables."""

    def finish(self) -> None:
        """Make all of it readable for the driver."""

    def discard(self) -> None:
        """The task failed: leave nothing behind."""


class StagePlace(NamedTuple):
    """Where the tasks of a run stage."""

    where: str
    """The directory of the views, or the URL of their database."""
    run: int

    def new_name(self) -> str:
        """A name for a stage that says whose it is."""
        return f"{PREFIX}{self.run}_{uuid.uuid4().hex}"


def open_stage(place: StagePlace, fields: Fields) -> Stage:
    """A new stage in a directory, or in the PostgreSQL database of a URL."""
    if place.where.startswith("postgresql"):
        return _PostgresStage(place, fields)
    return _SqliteStage(place, fields)


class _SqliteStage:
    def __init__(self, place: StagePlace, fields: Fields) -> None:
        self.name = str(Path(place.where) / f"{place.new_name()}.db")
        self._connection = sqlite3.connect(self.name, isolation_level=None)
        # The file is thrown away if the task fails: nothing has to survive a crash.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("BEGIN")
        self._inserts = {}
        for name, table in stage_tables(fields).items():
            self._connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
            self._inserts[name] = str(table.insert().compile(dialect=sqlite.dialect()))

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(self._inserts[table], rows)

    def finish(self) -> None:
        self._connection.execute("COMMIT")
        self._connection.close()

    def discard(self) -> None:
        self._connection.close()
        Path(self.name).unlink(missing_ok=True)


class _PostgresStage:
    def __init__(self, place: StagePlace, fields: Fields) -> None:
        self.name = place.new_name()
        self._connection = psycopg.connect(place.where.replace("postgresql+psycopg", "postgresql", 1))
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        self._connection.execute(str(CreateSchema(self.name).compile(dialect=dialect)))
        self._copies = {}
        for name, table in stage_tables(fields, self.name).items():
            create = str(CreateTable(table).compile(dialect=dialect)).replace(
                "CREATE TABLE", "CREATE UNLOGGED TABLE", 1
            )
            self._connection.execute(create)
            quote = dialect.identifier_preparer
            columns = ", ".join(quote.quote(column.name) for column in table.columns)
            self._copies[name] = f"COPY {quote.format_table(table)} ({columns}) FROM STDIN"

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._connection.cursor().copy(self._copies[table]) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self) -> None:
        self._connection.commit()
        self._connection.close()

    def discard(self) -> None:
        self._connection.rollback()
        self._connection.close()


@contextmanager
def merging(database: Database, stages: Sequence[str]) -> Iterator[tuple[Connection, list[str]]]:
    """A writing transaction on the views with the stages readable; the names are those of their SQL schemas."""
    if database.is_postgresql:
        with database.writing() as connection:
            # One merge at a time: what it reads first (position, views) must still be true when it commits.
            connection.execute(select(func.pg_advisory_xact_lock(_MERGE_LOCK)))
            yield connection, list(stages)
            for stage in stages:
                connection.execute(DropSchema(stage, cascade=True, if_exists=True))
        return
    names = [f"stage{number}" for number in range(len(stages))]
    with database.writing_with_attached(dict(zip(names, stages, strict=True))) as connection:
        yield connection, names
    for stage in stages:
        Path(stage).unlink(missing_ok=True)


def drop_leftovers(database: Database, run: Run) -> None:
    """Remove the stages of runs that have ended; those of living ones stay."""
    if not database.is_postgresql:
        folder = Path(database.url.database or "").parent
        for file in folder.glob(f"{PREFIX}*.db"):
            if _is_left(file.name, run):
                file.unlink(missing_ok=True)
        for file in folder.glob("inkgrove_run_*.lock"):
            run.is_dead(int(file.stem.rpartition("_")[2]))  # what a dead run locked goes as well
        return
    query = text("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'inkgrove\\_stage\\_%'")
    for name in database.read(lambda connection: list(connection.scalars(query))):
        if _is_left(name, run):
            with database.writing() as connection:
                connection.execute(DropSchema(name, cascade=True, if_exists=True))


def _is_left(name: str, run: Run) -> bool:
    owner = re.match(PREFIX + r"(\d+)_", name)
    return owner is None or run.is_dead(int(owner[1]))


def stage_place(url: URL, run: int) -> StagePlace:
    """Where the tasks of a run stage: the directory of its views, or their database."""
    if url.get_backend_name() == "postgresql":
        return StagePlace(url.render_as_string(hide_password=False), run)
    return StagePlace(str(Path(url.database or "").parent), run)
