"""Connections to the database behind a store, transactions, and statements: SQLite by directory, PostgreSQL by URL.

Every failure of the database itself becomes `StoreUnavailable`, which says what to do; the transaction it hit is rolled
back as a whole.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    BindParameter,
    Connection,
    Delete,
    Dialect,
    Engine,
    FromClause,
    Insert,
    SelectBase,
    Table,
    Update,
    UpdateBase,
    bindparam,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from inkgrove.core.errors import StoreUnavailable
from inkgrove.store.files import make_directory, sync_directory

FILE_NAME: Final = "node.db"
BUSY_SECONDS: Final = 30
LIST_SIZE: Final = 10_000
"""How many values go into one list of a query: both databases bound the number of parameters."""

POOL_SIZE: Final = 15
"""How many connections to PostgreSQL a process has open for one store, at most."""
_POOL_KEPT: Final = 5
_POOL_SECONDS: Final = 10
_ATTEMPTS: Final = 10
_SCHEMA_CHANGES: Final = 0x696E6B67726F7665
_Result = TypeVar("_Result")
_ADVICE: Final = (
    (("disk is full", "no space left", "diskfull"), "free some space and try again"),
    (("queuepool limit",), "all connections are in use: try again"),
    (("locked", "busy"), "another process has kept it for too long: end that one or try again"),
    (("unable to open", "readonly", "read-only"), "check that the directory exists and may be written"),
    (("not a database", "malformed"), "the file is damaged or something else: put back a copy"),
    (("deadlock", "serialize"), "try again"),
)


class RetryTransaction(Exception):
    """Raised inside `Database.write`: another writer came in between, so roll back and begin again."""


class Database:
    """An engine with its two kinds of transaction; safe for threads, and for many processes on one database."""

    def __init__(self, url: URL, busy_seconds: float = BUSY_SECONDS, beside: Path | None = None) -> None:
        """`beside`: SQLite only, another file whose tables are read under the schema name `node`."""
        self.url = url
        self.is_postgresql = url.get_backend_name() == "postgresql"
        self.engine: Engine
        self._reader: Engine
        if self.is_postgresql:
            # The ping costs a round trip and saves the first call after the server was restarted.
            # On PostgreSQL the node's tables lie in the same schema as the views.
            # Values never show in errors, and so not in logs: some are secrets.
            # Fewer connections than threads: the server has a hundred for all processes. Who finds none free waits.
            engine = create_engine(
                url,
                pool_pre_ping=True,
                hide_parameters=True,
                pool_size=_POOL_KEPT,
                max_overflow=POOL_SIZE - _POOL_KEPT,
                pool_timeout=_POOL_SECONDS,
            )
            self.engine = engine.execution_options(schema_translate_map={"node": None})
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        else:
            make_private(Path(url.database or ""))
            # A connection is a few open files, and the threads bound how many there are. With a bound of its own the
            # pool would be used up for good by the threads that keep theirs (`read_at_once`).
            self.engine = create_engine(
                url, connect_args={"timeout": busy_seconds}, hide_parameters=True, max_overflow=-1
            )
            _prepare_sqlite(self.engine, beside)
            self._reader = self.engine
        self._driver: Any = self.engine.dialect.loaded_dbapi
        self._kept = threading.local()
        self._all_kept: list[Connection] = []
        self._writer = self.engine.execution_options(inkgrove_writes=True)
        self._durable_writer = self.engine.execution_options(inkgrove_writes=True, inkgrove_durable=True)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads and sees one state of the database throughout."""
        with self.translated(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Connection]:
        """Open a transaction that is committed at the end and rolled back on any error; on SQLite the only writer.

        A `durable` one survives a power failure as soon as it is committed; PostgreSQL's always do.
        """
        writer = self._durable_writer if durable else self._writer
        with self.translated(), writer.begin() as connection:
            yield connection

    @contextmanager
    def writing_with_attached(self, files: dict[str, str]) -> Iterator[Connection]:
        """SQLite: open a transaction as `writing` does, with other files readable under schema names."""
        with self.translated(), self._writer.connect() as connection:
            driver: Any = connection.connection.driver_connection
            try:
                # Attaching is not possible inside a transaction.
                for name, path in files.items():
                    driver.execute(
                        "ATTACH DATABASE ? AS " + connection.dialect.identifier_preparer.quote(name), (path,)
                    )
                with connection.begin():
                    yield connection
            finally:
                connection.invalidate()

    def read(self, query: Callable[[Connection], _Result]) -> _Result:
        """Run a query in a transaction that only reads."""
        with self.reading() as connection:
            return query(connection)

    def read_at_once(self, query: Callable[[Connection], _Result]) -> _Result:
        """SQLite: run a query that only reads, on a connection that this thread keeps.

        For the few threads that read all the time. PostgreSQL's connections are too few to be kept.
        """
        with self.translated():
            connection: Connection | None = getattr(self._kept, "connection", None)
            if connection is None or connection.closed:
                connection = self._kept.connection = self._reader.connect()
                self._all_kept.append(connection)
                # For SQLAlchemy this is one long transaction: to begin and end one through it takes as long as a read.
                connection.begin()
                connection.connection.driver_connection.rollback()  # type: ignore[union-attr]
            driver: Any = connection.connection.driver_connection
            try:
                driver.execute("BEGIN")
                try:
                    return query(connection)
                finally:
                    driver.rollback()
            except (self._driver.Error, DBAPIError):
                connection.close()
                raise

    def write(self, work: Callable[[Connection], _Result], *, durable: bool = False) -> _Result:
        """Run work that writes, again if it raises `RetryTransaction` or PostgreSQL finds a deadlock.

        Raises `StoreUnavailable` after ten attempts.
        """
        for _ in range(_ATTEMPTS):
            try:
                with self.writing(durable=durable) as connection:
                    return work(connection)
            except RetryTransaction:
                continue
            except StoreUnavailable as error:
                if not _is_deadlock(error):
                    raise
        raise StoreUnavailable("too many others write to the same logs: try again", advice="try again")

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._all_kept:
            self._all_kept.pop().close()
        self.engine.dispose()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn failures of the database itself into `StoreUnavailable`; faults of our own statements pass."""
        try:
            yield
        except DatabaseError as err:
            # Its other subclasses are faults of our own: they are not to be explained away.
            if type(err) in (DatabaseError, OperationalError) or err.connection_invalidated:
                raise self._unavailable(err) from err
            raise
        except (InterfaceError, PoolTimeoutError) as err:
            raise self._unavailable(err) from err
        except self._driver.Error as err:  # of a query that the driver ran by itself
            is_of_database = isinstance(err, self._driver.OperationalError | self._driver.InterfaceError)
            if is_of_database or type(err) is self._driver.DatabaseError:
                raise self._unavailable(err) from err
            raise

    def _unavailable(self, err: Exception) -> StoreUnavailable:
        cause = err.orig if isinstance(err, DBAPIError) else err
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        advice = advice_on(reason, is_postgresql=self.is_postgresql)
        where = self.url.render_as_string(hide_password=True)
        return StoreUnavailable(f"the store {where} cannot be used ({reason}): {advice}", advice=advice, where=where)


def advice_on(reason: str, *, is_postgresql: bool) -> str:
    """Say what to do about a failure of the database."""
    usual = "check that the server runs and that the URL is right" if is_postgresql else "look at the file"
    return next((text for signs, text in _ADVICE if any(sign in reason.lower() for sign in signs)), usual)


def _is_deadlock(error: StoreUnavailable) -> bool:
    """Whether PostgreSQL gave up this transaction for another one: trying again is all it takes."""
    cause = error.__cause__
    return getattr(getattr(cause, "orig", cause), "sqlstate", None) in ("40P01", "40001")


def parse_store_url(location: Path | str) -> URL:
    """Parse where a store is: a directory, which is made for its owner alone if need be, or the URL of PostgreSQL.

    Raises `StoreUnavailable` if it is neither, or the directory cannot be made.
    """
    if isinstance(location, Path) or "://" not in location:
        home = Path(location)
        try:
            make_directory(home)
        except OSError as err:
            advice = "check that it may be written"
            raise StoreUnavailable(
                f"the directory {home} cannot be made ({err.strerror}): {advice}", advice=advice, where=str(home)
            ) from err
        return URL.create("sqlite+pysqlite", database=str(home.resolve() / FILE_NAME))
    try:
        url = make_url(location)
        if url.get_backend_name() == "postgresql":
            return url.set(drivername="postgresql+psycopg")
    except (ArgumentError, NoSuchModuleError) as err:
        raise StoreUnavailable("the URL of the store cannot be read; write postgresql://user@host/name") from err
    raise StoreUnavailable("a store is a directory (SQLite) or a URL that begins with postgresql://")


def make_private(file: Path) -> None:
    """Make a file that only its owner reads before SQLite makes it, whose other files get the same mode.

    One that is there is never opened: to close it would take SQLite's locks in this process away.
    """
    with suppress(OSError):  # SQLite says what is wrong with the path
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_directory(file.parent)


def render_store_url(url: URL) -> str:
    """Render what `parse_store_url` makes this URL of."""
    if url.get_backend_name() == "postgresql":
        return url.render_as_string(hide_password=False)
    return str(Path(url.database or "").parent)


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Let readers and the writer not wait for each other; a file stays in this mode once it is."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as err:
            # SQLite does not wait here by itself when another process makes the same file.
            if "locked" not in str(err) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _prepare_sqlite(engine: Engine, beside: Path | None) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins no transactions: we do
        # What lists of bytes and floats in JSON are read with (`filters.is_among`).
        connection.create_function("inkgrove_bytes", 1, bytes.fromhex, deterministic=True)
        connection.create_function("inkgrove_float", 1, float.fromhex, deterministic=True)
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten, in files attached later too
        if beside is not None:
            connection.execute("ATTACH DATABASE ? AS node", (str(beside),))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        driver: Any = connection.connection.driver_connection  # by the driver itself, as everything begins with it
        if not options.get("inkgrove_writes", False):
            driver.execute("BEGIN")  # takes no lock yet
            return
        # NORMAL: in WAL mode a power failure can lose the newest commits and never damages the file; a killed process
        # loses nothing. What others sent can be had again. What we signed ourselves must not be lost once it is
        # sent: we would sign its sequence number again and fork our own log. Hence FULL for durable transactions.
        is_durable = options.get("inkgrove_durable", False)
        driver.execute("PRAGMA synchronous=FULL" if is_durable else "PRAGMA synchronous=NORMAL")
        driver.execute("BEGIN IMMEDIATE")


def insert_new(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Make an insert that passes over rows whose key is there already."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def put_row(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    """Insert a row, or change the one with its key, in one statement: of two writers the later one counts."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    keys = [column.name for column in table.primary_key]
    values = {name: value for name, value in row.items() if name not in keys}
    connection.execute(insert(table).values(row).on_conflict_do_update(index_elements=keys, set_=values))


def lock_schema_changes(connection: Connection) -> None:
    """Lock changes of table definitions until the transaction ends; on SQLite every writer is alone."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_SCHEMA_CHANGES)))


def lock_name(connection: Connection, name: bytes, *, shared: bool = False) -> None:
    """Lock a name until the transaction ends, where there is no row to lock; on SQLite every writer is alone.

    Any number of transactions may have a `shared` lock, and nobody another one meanwhile.
    """
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        connection.execute(select(lock(number)))


def lock_table(connection: Connection, table: Table) -> None:
    """Lock a table that is seldom written against other writers until the transaction ends.

    On SQLite every writer is alone.
    """
    if connection.dialect.name == "postgresql":
        name = connection.dialect.identifier_preparer.format_table(table)
        connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")


def execute_many(connection: Connection, statement: Insert | Update | Delete, rows: Sequence[dict[str, Any]]) -> None:
    """Run one statement for many rows, all with the same keys and with values that the driver takes as they are.

    SQLAlchemy's own way looks at every value of every row again, which takes longer than SQLite takes to write them.
    """
    text, names = _compile(statement, connection.dialect, tuple(rows[0]))
    if names is None:
        connection.exec_driver_sql(text, list(rows))
    else:
        values = itemgetter(*names)
        connection.exec_driver_sql(text, [values(row) for row in rows])


@lru_cache(maxsize=256)
def _compile(
    statement: Insert | Update | Delete, dialect: Dialect, keys: tuple[str, ...]
) -> tuple[str, Sequence[str] | None]:
    """The text of a statement, and the order of its parameters if they have no names in it."""
    compiled = statement.compile(dialect=dialect, column_keys=list(keys))
    return str(compiled), compiled.positiontup


@cache
def table_of_pairs(dialect: str) -> FromClause:
    """Pairs of integers as a table with the columns `first` and `second`, to be run with `pairs_as_parameters`."""
    if dialect == "postgresql":
        columns = (bindparam(f"pairs_{name}", type_=postgresql.ARRAY(BigInteger)) for name in ("first", "second"))
        return func.unnest(*columns).table_valued("first", "second").render_derived()
    value = func.json_each(bindparam("pairs")).table_valued("value").c.value
    both = (func.json_extract(value, f"$[{index}]").label(name) for index, name in enumerate(("first", "second")))
    return select(*both).subquery()


def pairs_as_parameters(dialect: str, pairs: Collection[tuple[int, int]]) -> dict[str, Any]:
    """The parameters of `table_of_pairs`: however many pairs there are, one or two."""
    if dialect == "postgresql":
        return {"pairs_first": [first for first, _ in pairs], "pairs_second": [second for _, second in pairs]}
    return {"pairs": json.dumps(list(pairs))}


def in_lists(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Split values into lists that fit into a query."""
    rest = list(values)
    for start in range(0, len(rest), LIST_SIZE):
        yield rest[start : start + LIST_SIZE]


# Compiled statements. To build, look up and unpack a statement through SQLAlchemy takes many times as long as a read by
# an index: what every request runs is kept as text with the names of its parameters, and run by the driver itself.

_SIZES: Final = (1, 10, 100, 1_000, 10_000)
_PIECE: Final = 100
"""How many rows are had from PostgreSQL at a time, if not all are."""


class _Text(NamedTuple):
    text: str
    constants: Mapping[str, Any]
    order: tuple[str, ...] | None
    """The parameters in the order of the text, if they have no names in it."""


class Compiled:
    """A statement with named parameters; how it is built may differ between databases."""

    def __init__(self, build: Callable[[Connection], SelectBase | UpdateBase]) -> None:
        self.build = build
        self._texts: dict[str, _Text] = {}

    def rows(self, connection: Connection, **parameters: Any) -> list[Any]:
        """Run in the transaction of the connection; all rows, as tuples of the driver."""
        rows: list[Any] = self._execute(connection, parameters).fetchall()
        return rows

    @contextmanager
    def reading(self, connection: Connection, *, limit: int, **parameters: Any) -> Iterator[Iterator[Any]]:
        """Run with a parameter `limit` and give the rows one by one: whoever stops early has not loaded them all."""
        if connection.dialect.name == "postgresql" and limit > _PIECE:
            driver: Any = connection.connection.driver_connection
            text, values = self.prepared(connection, {"limit": limit, **parameters})
            with driver.cursor("pieces") as cursor:
                cursor.itersize = _PIECE
                yield cursor.execute(text, values)
            return
        with closing(self._execute(connection, {"limit": limit, **parameters})) as cursor:
            yield cursor

    def run(self, connection: Connection, **parameters: Any) -> None:
        """Run a change that gives no rows, in the transaction of the connection."""
        self._execute(connection, parameters)

    def _execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Any:
        text, values = self.prepared(connection, parameters)
        driver: Any = connection.connection.driver_connection
        return driver.execute(text, values)

    def prepared(self, connection: Connection, parameters: Mapping[str, Any]) -> tuple[str, Any]:
        """The text and the values as the driver takes them; begins a transaction if there is none."""
        if not connection.in_transaction():
            connection.begin()
        found = self._texts.get(connection.dialect.name) or self._compile(connection)
        values: Any = {**found.constants, **parameters}
        if found.order is not None:
            values = [values[name] for name in found.order]
        return found.text, values

    def first(self, connection: Connection, **parameters: Any) -> Any:
        """The first row; None if there is none."""
        rows = self.rows(connection, **parameters)
        return rows[0] if rows else None

    def _compile(self, connection: Connection) -> _Text:
        names = connection.get_execution_options().get("schema_translate_map")
        compiled = self.build(connection).compile(
            dialect=connection.dialect,
            schema_translate_map=names,
            render_schema_translate=names is not None,
            compile_kwargs={"render_postcompile": True},
        )
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        found = self._texts[connection.dialect.name] = _Text(str(compiled), dict(compiled.params), order)
        return found


class CompiledList:
    """A query about a list of values, `IN` some parameters; for the sizes of lists that there are, a few texts."""

    def __init__(self, build: Callable[[list[BindParameter[Any]]], SelectBase]) -> None:
        self.build = build
        self._by_size: dict[int, Compiled] = {}

    def rows(self, connection: Connection, values: Sequence[Any], **parameters: Any) -> list[Any]:
        """All rows about at most 10,000 values."""
        if not values:
            return []
        size = next(size for size in _SIZES if size >= len(values))
        compiled = self._by_size.get(size)
        if compiled is None:
            compiled = self._by_size[size] = self._compile(size)
        # The last value stands for what is missing: to ask for it twice changes nothing.
        given = {f"item{number}": value for number, value in enumerate(values)}
        given |= {f"item{number}": values[-1] for number in range(len(values), size)}
        return compiled.rows(connection, **given, **parameters)

    def _compile(self, size: int) -> Compiled:
        query = self.build([bindparam(f"item{number}") for number in range(size)])
        return Compiled(lambda _: query)
