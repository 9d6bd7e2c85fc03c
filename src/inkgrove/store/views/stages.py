"""Stages: tasks write their results beside the views, the driver merges them in one transaction.

A stage has these tables, each made when the first rows for it come: what was folded anew (`whole`, `groups`,
`messages`, `ends`, and in `log_views` which views that can touch), and the results
(`rows_<view>`, `outcomes_<view>`, `deleted`, `edges`, `gone`; of a rot run `rot_fresh`, `rot_moves`, `rot_summaries`).
`contents` lists them. On SQLite a stage is a file that the driver attaches, on PostgreSQL a schema of unlogged tables.
A stage whose task failed is never merged.
"""

import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.schema import CreateSchema, CreateTable, DropSchema

from inkgrove.store.db.connection import Database, make_private
from inkgrove.store.db.locks import PipelineRun
from inkgrove.store.db.rot_tables import copies, rot_victims, summaries
from inkgrove.store.views.tables import deleted_table, edge_table, gone_table, outcome_table, row_table


def _rot_columns(name: str) -> Iterator[Column[Any]]:
    """The columns of a rot run's results: new freshness, moves down the ladder, or summaries."""
    source = {"rot_fresh": copies, "rot_moves": rot_victims, "rot_summaries": summaries}[name]
    for column in (source.c[part] for part in _FRESH) if name == "rot_fresh" else source.c:
        if column is not summaries.c.run:  # the same for all of a stage: the merge adds it
            yield Column(column.name, column.type, nullable=column.nullable)
    if name == "rot_fresh":
        yield Column("new_reads", BigInteger, nullable=False)
    elif name == "rot_moves":
        yield Column("is_cooked", BigInteger, nullable=False)


_FRESH: Final = ("instance", "freshness", "reads", "last_read")
PREFIX: Final = "inkgrove_stage_"
MOST_FILES: Final = 8
"""How many stages of a fold SQLite takes: it attaches ten files to a connection, and two may be of the cascade."""
Fields = Mapping[int, tuple[tuple[str, str], ...]]
"""The columns of each view, by its number."""

_PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "whole": ("log",),
    "groups": ("log", "create_seq"),
    "ends": ("log", "ended_at", "last"),
    "log_views": ("log", "view"),
}


@lru_cache(maxsize=4096)
def stage_table(name: str, columns: tuple[tuple[str, str], ...] = (), schema: str | None = None) -> Table:
    """A table of a stage; `columns` are the fields of the view whose rows it holds."""
    target = MetaData(schema=schema)
    kind, _, _view = name.partition("_")
    if name in _PLAIN:
        return Table(name, target, *(Column(column, BigInteger, nullable=False) for column in _PLAIN[name]))
    if name == "messages":
        numbers = (Column(column, BigInteger, nullable=False) for column in ("log", "seq_num"))
        return Table(name, target, *numbers, Column("hash", LargeBinary, nullable=False))
    if name == "contents":
        return Table(name, target, Column("name", Text, nullable=False), Column("count", Integer, nullable=False))
    if kind == "rot":
        return Table(name, target, *_rot_columns(name))
    if kind == "outcomes":
        return outcome_table(name, target)
    if kind == "rows":
        return row_table(name, columns, target)
    makers = {"deleted": deleted_table, "gone": gone_table}
    return makers[name](name, target, keyed=False) if name in makers else edge_table(name, target)


class Stage(Protocol):
    """Where a task puts its results."""

    name: str

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to one of the stage's tables."""

    def finish(self) -> None:
        """Make all of it readable for the driver."""

    def discard(self) -> None:
        """Remove all of it: the task failed."""


def open_stage(stage_url: str, owner: str, fields: Fields) -> Stage:
    """A new stage in a directory, or in the PostgreSQL database of a URL; `owner` is the pipeline run it is for."""
    name = f"{PREFIX}{owner}_{uuid.uuid4().hex[:16]}"
    if stage_url.startswith("postgresql"):
        return _PostgresStage(stage_url, name, fields)
    return _SqliteStage(Path(stage_url), name, fields)


def _columns_of(name: str, fields: Fields) -> tuple[tuple[str, str], ...]:
    kind, _, view = name.partition("_")
    return fields[int(view)] if kind == "rows" else ()


class _SqliteStage:
    def __init__(self, folder: Path, name: str, fields: Fields) -> None:
        self.name = str(folder / f"{name}.db")
        self._fields = fields
        self._counts: dict[str, int] = {}
        self._inserts: dict[str, str] = {}
        make_private(Path(self.name))
        self._connection = sqlite3.connect(self.name, isolation_level=None, cached_statements=1024)
        # The file is thrown away if the task fails: nothing has to survive a crash.
        for pragma in ("page_size=16384", "journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("BEGIN")

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if table not in self._inserts:
            made = stage_table(table, _columns_of(table, self._fields))
            self._connection.execute(str(CreateTable(made).compile(dialect=sqlite.dialect())))
            self._inserts[table] = f"INSERT INTO {table} VALUES ({', '.join('?' * len(made.columns))})"
            self._counts[table] = 0
        self._connection.executemany(self._inserts[table], rows)
        self._counts[table] += len(rows)

    def finish(self) -> None:
        contents = list(self._counts.items())
        self.write("contents", contents)
        for table in ("groups", "messages"):
            if table in self._counts:
                self._connection.execute(f"CREATE INDEX {table}_by_log ON {table} (log)")
        self._connection.execute("COMMIT")
        self._connection.close()

    def discard(self) -> None:
        self._connection.close()
        Path(self.name).unlink(missing_ok=True)


class _PostgresStage:
    def __init__(self, url: str, name: str, fields: Fields) -> None:
        import psycopg  # noqa: PLC0415 - who keeps everything in files does not load it

        self.name = name
        self._fields = fields
        self._counts: dict[str, int] = {}
        self._copies: dict[str, tuple[str, list[str]]] = {}
        self._connection = psycopg.connect(url.replace("postgresql+psycopg", "postgresql", 1))
        self._dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        self._connection.execute(str(CreateSchema(self.name).compile(dialect=self._dialect)))

    def write(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if table not in self._copies:
            made = stage_table(table, _columns_of(table, self._fields), self.name)
            create = str(CreateTable(made).compile(dialect=self._dialect))
            self._connection.execute(create.replace("CREATE TABLE", "CREATE UNLOGGED TABLE", 1))
            target = self._dialect.identifier_preparer.format_table(made)
            types = [_postgres_type(column.type.compile(dialect=self._dialect)) for column in made.columns]
            self._copies[table] = f"COPY {target} FROM STDIN (FORMAT BINARY)", types
            self._counts[table] = 0
        command, types = self._copies[table]
        with self._connection.cursor().copy(command) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
        self._counts[table] += len(rows)

    def finish(self) -> None:
        contents = list(self._counts.items())
        self.write("contents", contents)
        # Without statistics the server takes them for large and reads whole views beside them.
        quote = self._dialect.identifier_preparer.quote
        for table in ("whole", "groups", "messages", "log_views"):
            if table in self._counts:
                self._connection.execute(f"ANALYZE {quote(self.name)}.{quote(table)}")
        self._connection.commit()
        self._connection.close()

    def discard(self) -> None:
        self._connection.rollback()
        self._connection.close()


def _postgres_type(declared: str) -> str:
    """The name that the driver knows a column's type by."""
    name = declared.lower().partition("(")[0].partition(" collate ")[0]
    return {"bigint": "int8", "integer": "int4", "double precision": "float8", "boolean": "bool"}.get(name, name)


def read_contents(connection: Connection, stage: str) -> dict[str, int]:
    """The tables of a stage with how many rows each has."""
    return {row.name: row.count_ for row in connection.execute(_select_contents(stage))}


@lru_cache(maxsize=64)
def _select_contents(stage: str) -> Any:
    contents = stage_table("contents", (), stage)
    return select(contents.c.name, contents.c.count.label("count_"))


@contextmanager
def open_merge_transaction(database: Database, stages: Sequence[str]) -> Iterator[tuple[Connection, list[str]]]:
    """A writing transaction on the views with the stages readable; the names are those of their SQL schemas."""
    if database.is_postgresql:
        with database.writing() as connection:
            yield connection, list(stages)
        return
    names = [f"stage{number}" for number in range(len(stages))]
    with database.writing_with_attached(dict(zip(names, stages, strict=True))) as connection:
        yield connection, names


@contextmanager
def open_stage_transaction(database: Database, stage: str | None) -> Iterator[tuple[Connection, str | None]]:
    """A reading transaction, on a stage or, without one, on the views; with the name of the SQL schema."""
    if stage is None or database.is_postgresql:
        with database.reading() as connection:
            yield connection, stage
        return
    url = f"{Path(stage).as_uri()}?mode=ro"
    engine = create_engine("sqlite+pysqlite://", creator=lambda: sqlite3.connect(url, uri=True))
    try:
        with engine.connect() as connection:
            yield connection, None
    finally:
        engine.dispose()


def drop_stages(database: Database, stages: Sequence[str]) -> None:
    """Remove stages that are merged or not needed."""
    if not database.is_postgresql:
        for stage in stages:
            Path(stage).unlink(missing_ok=True)
    elif stages:
        with database.writing() as connection:
            for stage in stages:
                connection.execute(DropSchema(stage, cascade=True, if_exists=True))


def drop_leftovers(database: Database, run: PipelineRun) -> None:
    """Remove stages of pipelines that have died."""
    if not database.is_postgresql:
        folder = Path(database.url.database or "").parent
        drop_stages(database, [str(file) for file in folder.glob(f"{PREFIX}*.db") if _is_left(file.stem, run)])
        for file in folder.glob("inkgrove_run_*.lock"):
            run.is_dead(int(file.stem.rpartition("_")[2]))  # what a dead run locked goes as well
        return
    query = text("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'inkgrove\\_stage\\_%'")
    names = database.read(lambda connection: list(connection.scalars(query)))
    drop_stages(database, [name for name in names if _is_left(name, run)])


def _is_left(name: str, run: PipelineRun) -> bool:
    owner = name.removeprefix(PREFIX).partition("_")[0]
    return not owner.isdigit() or run.is_dead(int(owner))


def find_stage_url(url: URL) -> str:
    """Where the tasks of a store stage: its directory, or its database."""
    if url.get_backend_name() == "postgresql":
        return url.render_as_string(hide_password=False)
    return str(Path(url.database or "").parent)
