"""The list of views, how far their stream has come, and how it is doing (docs/protocol.md section 6).

The tables of views follow from the logs and can be dropped at any time. On SQLite they live in a file of their own, so
that a big write to a view never blocks a publish; on PostgreSQL beside the logs.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Connection, MetaData, Table, bindparam, delete, insert, inspect, select

from inkgrove.core import PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import Compiled, Database, insert_new, lock_schema_changes, parse_store_url, put_row
from inkgrove.store.db.locks import hold_merge_lock
from inkgrove.store.logs.positions import START, Offset
from inkgrove.store.views.tables import (
    FORMAT,
    deleted,
    drop_changes,
    edges,
    gone,
    metadata,
    outcomes_of,
    progress,
    pulses,
    rows_of,
    view_format,
    views,
)

FILE_NAME: Final = "views.db"
_OF_ONE_VIEW: Final = re.compile(r"view_\d+_")
STREAM: Final = "views"


@dataclass(frozen=True, slots=True)
class View:
    """A view as it is registered and built."""

    id: int
    schema_id: SchemaId
    name: str | None
    generation: int
    version: int
    fields: tuple[tuple[str, str], ...]
    """Name and type of each column."""
    cascades: dict[str, int]
    """The cascading relations among them, each with the view it points to."""
    fingerprint: str | None
    waits_for: tuple[SchemaId, ...]
    stopped: str | None

    @property
    def is_built(self) -> bool:
        """Whether there is a table to read."""
        return self.generation > 0

    @property
    def cascading(self) -> int | None:
        """Its number if rows of it can go by cascade; None if none can."""
        return self.id if self.cascades else None

    def table(self) -> Table:
        """The table of its rows."""
        return rows_of(self.id, self.generation, self.fields)

    def outcomes(self) -> Table:
        """The table of the outcomes of its messages, without the creates of its rows."""
        return outcomes_of(self.id, self.generation)


class ViewStore:
    """The database of all views of a node."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def views(self) -> dict[SchemaId, View]:
        """Every view, built or waiting."""
        return self.database.read(read_views)

    def progress(self, stream: str = STREAM) -> tuple[int, Offset]:
        """The last batch that is in the views, and the offset behind it."""
        return self.database.read(lambda connection: read_progress(connection, stream))

    def sync(self, registered: list[SchemaId]) -> dict[SchemaId, View]:
        """Add views for registered schemas, not built yet, and drop those of other schemas; returns all views."""

        def work(connection: Connection) -> dict[SchemaId, View]:
            known = read_views(connection)
            for schema_id, view in known.items():
                if schema_id not in registered:
                    drop_view(connection, view)
            missing = [{"author": s.author, "log_id": s.log_id} for s in registered if s not in known]
            if missing:
                connection.execute(insert_new(connection, views), missing)
            return read_views(connection)

        known = self.views()
        if set(known) == set(registered):
            return known
        with hold_merge_lock(self.database):  # nobody merges into a table that goes, or drops it too
            return self.database.write(work)


def open_views(store_url: Path | str, *, with_node: bool = False) -> ViewStore:
    """Open the views of a store, in its directory or at its URL; those of another format are dropped, to be rebuilt.

    `with_node`: transactions see the tables of the node as well, which must exist (`tables.node_table`).
    """
    url, beside = parse_store_url(store_url), None
    if url.get_backend_name() == "sqlite":
        beside = Path(url.database or "") if with_node else None
        url = url.set(database=str(Path(url.database or "").with_name(FILE_NAME)))
    database = Database(url, beside=beside)
    try:
        if database.read(_format) != FORMAT:
            database.write(_drop_old_format)
    except BaseException:
        database.close()
        raise
    return ViewStore(database)


def _format(connection: Connection) -> int | None:
    if not inspect(connection).has_table(view_format.name):
        return None
    return connection.scalar(select(view_format.c.format))


def _drop_old_format(connection: Connection) -> None:
    lock_schema_changes(connection)
    if _format(connection) != FORMAT:
        drop_all_views(connection)


def drop_all_views(connection: Connection) -> None:
    """Drop the tables of all views and begin with none: they are built again."""
    if inspect(connection).has_table(views.name):
        for name in inspect(connection).get_table_names():
            if _OF_ONE_VIEW.match(name):
                Table(name, MetaData()).drop(connection)
        metadata.drop_all(connection)
    metadata.create_all(connection)
    connection.execute(insert(view_format), {"format": FORMAT})


def read_views(connection: Connection) -> dict[SchemaId, View]:
    """Every view by its schema."""
    found = {}
    for row in connection.execute(select(*VIEW_COLUMNS).order_by(views.c.author, views.c.log_id)):
        view = make_view(*row)
        found[view.schema_id] = view
    return found


def view_of(connection: Connection, schema_id: SchemaId) -> View | None:
    """The view of a registered schema."""
    row = _of_schema.first(connection, author=schema_id.author, log_id=schema_id.log_id)
    return None if row is None else make_view(*row)


def views_called(connection: Connection, name: str) -> list[View]:
    """The views of schemas that call themselves this."""
    return [make_view(*row) for row in _called.rows(connection, name=name)]


VIEW_COLUMNS: Final = (
    views.c.id,
    views.c.author,
    views.c.log_id,
    views.c.name,
    views.c.generation,
    views.c.version,
    views.c.fields,
    views.c.fingerprint,
    views.c.waits_for,
    views.c.stopped,
)
_of_schema: Final = Compiled(
    lambda _: select(*VIEW_COLUMNS).where(views.c.author == bindparam("author"), views.c.log_id == bindparam("log_id"))
)
_called: Final = Compiled(
    lambda _: select(*VIEW_COLUMNS).where(views.c.name == bindparam("name")).order_by(views.c.author, views.c.log_id)
)


@lru_cache(maxsize=4096)
def make_view(
    number: int,
    author: bytes,
    log_id: int,
    name: str | None,
    generation: int,
    version: int,
    fields: str,
    fingerprint: str | None,
    waits_for: str,
    stopped: str | None,
) -> View:
    """A view from its `VIEW_COLUMNS`, cached by them."""
    items = json.loads(fields)
    return View(
        number,
        SchemaId(PublicKey(author), log_id),
        name,
        generation,
        version,
        tuple((item["name"], item["type"]) for item in items),
        {item["name"]: item["target"] for item in items if item.get("target") is not None},
        fingerprint,
        tuple(SchemaId(PublicKey.fromhex(author), log_id) for author, log_id in json.loads(waits_for)),
        stopped,
    )


def read_progress(connection: Connection, stream: str) -> tuple[int, Offset]:
    """The last batch of a stream and the offset behind it; -1 and the start if there was none."""
    row = connection.execute(select(progress).where(progress.c.stream == stream)).first()
    return (row.batch, Offset(row.xid, row.position)) if row is not None else (-1, START)


def write_progress(connection: Connection, stream: str, batch: int, offset: Offset) -> None:
    """Record that a batch is in the views; part of the transaction that merges it."""
    put_row(connection, progress, {"stream": stream, "batch": batch, "xid": offset.xid, "position": offset.position})


def drop_view(connection: Connection, view: View) -> None:
    """Remove a view with all that belongs to it."""
    for table in (deleted, edges, gone):
        connection.execute(delete(table).where(table.c.view == view.id))
    if view.is_built:
        for table in (view.table(), view.outcomes()):
            table.drop(connection, checkfirst=True)
        drop_changes(connection, view.id, view.generation)
    connection.execute(delete(views).where(views.c.id == view.id))


# The status of a stream is only shown to people; the offset that counts is in `view_progress`.


_LONGEST_MESSAGE = 2_000


@dataclass(frozen=True, slots=True)
class PipelineFailure:
    """What ended a pipeline."""

    at: int
    """In microseconds since 1970."""
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The last batch of a stream, and what ended it last."""

    at: int | None = None
    """When the batch was merged, in microseconds since 1970; None if there was none."""
    moved: int = 0
    """How many positions it took."""
    micros: int = 0
    """How long it took, from reading to merging."""
    failure: PipelineFailure | None = None

    @property
    def rate(self) -> float | None:
        """Positions per second in the last batch."""
        return None if self.at is None or not self.micros else self.moved * 1_000_000 / self.micros


def record_batch(connection: Connection, stream: str, *, at: int, moved: int, micros: int) -> None:
    """Record when a batch was merged and how long it took; part of the transaction that merges it."""
    put_row(connection, pulses, {"stream": stream, "at": at, "moved": moved, "micros": micros})


def record_pipeline_failure(connection: Connection, stream: str, failure: PipelineFailure) -> None:
    """Record what ended a pipeline."""
    values = {"trouble_at": failure.at, "code": failure.code, "message": failure.message[:_LONGEST_MESSAGE]}
    put_row(connection, pulses, {"stream": stream, **values})


def read_stream_status(connection: Connection, stream: str) -> StreamStatus:
    """The status of a stream; empty if it never ran."""
    row = connection.execute(select(pulses).where(pulses.c.stream == stream)).first()
    if row is None:
        return StreamStatus()
    failure = None if row.trouble_at is None else PipelineFailure(row.trouble_at, row.code, row.message)
    return StreamStatus(row.at, row.moved or 0, row.micros or 0, failure)
