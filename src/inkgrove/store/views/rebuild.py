"""Builds a view beside the one that is shown: filled from stages, caught up, then swapped in.

docs/protocol.md section 6. Nobody reads its tables before the swap, so they are filled first and indexed afterwards, in
transactions of their own; the swap itself is one transaction that moves little.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection, Index, MetaData, Table, delete, exists, func, insert, select, update

from inkgrove.store.views.catalog import View
from inkgrove.store.views.merge import OpenStage, copy_rows, remove_groups, remove_messages
from inkgrove.store.views.tables import (
    builds,
    deleted,
    deleted_table,
    drop_change_table,
    edge_table,
    edges,
    outcome_indexes,
    outcomes_of,
    outcomes_of_none,
    row_indexes,
    rows_of,
    start_changes,
    views,
)

INDEXED: Final = frozenset({"varchar", "integer", "float", "timestamp", "relation"})
"""Types that are worth an index; a text may be longer than an index of PostgreSQL takes."""


def index_fields(connection: Connection, view: View) -> None:
    """Index a view's table once it is filled: its fields, each with the instance that breaks ties, and expiry."""
    table = view.table().to_metadata(MetaData())  # its own: an index stays with the object
    for number, (name, type_name) in enumerate(view.fields):
        if type_name in INDEXED:
            Index(f"{table.name}_by_{number}", table.c[name], table.c._instance).create(connection)
    has_end = table.c._expires.is_not(None)
    Index(f"{table.name}_by_expiry", table.c._expires, sqlite_where=has_end, postgresql_where=has_end).create(
        connection
    )


KEEP_SECONDS: Final = 60
"""How long tables stay that were replaced: longer than any reader takes from the list of views to the rows."""


@dataclass(frozen=True, slots=True)
class ViewState:
    """What is put on the list of views when one is built."""

    name: str | None
    fingerprint: str
    waits_for: list[tuple[str, int]]
    stopped: str | None


@lru_cache(maxsize=64)
def _deleted_of(view: int, generation: int) -> Table:
    return deleted_table(f"view_{view}_deleted_{generation}", MetaData(), keyed=False)


@lru_cache(maxsize=64)
def _edges_of(view: int, generation: int) -> Table:
    return edge_table(f"view_{view}_edges_{generation}", MetaData())


def shadow_edges(view: View) -> tuple[Table, Table]:
    """The deletions and edges of a view that is being built."""
    return _deleted_of(view.id, view.generation), _edges_of(view.id, view.generation)


def begin_build(
    connection: Connection, old: View, owner: str, fields: tuple[tuple[str, str], ...], cascades: dict[str, int]
) -> View:
    """Make empty tables for the next generation of a view."""
    newest = connection.scalar(select(func.max(builds.c.generation)).where(builds.c.view == old.id)) or 0
    new = replace(old, generation=max(old.generation, newest) + 1, fields=fields, cascades=cascades)
    connection.execute(insert(builds), {"view": new.id, "generation": new.generation, "owner": owner})
    for table in (new.table(), new.outcomes(), *shadow_edges(new)):
        table.create(connection)
    return new


def load_build(connection: Connection, staged: Sequence[OpenStage], new: View) -> None:
    """Fill the tables of a view that has none of these groups yet."""
    for item in staged:
        _add(connection, item, new)


def index_build(connection: Connection, new: View) -> None:
    """Create the indexes of the tables, once they are filled."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA threads=2")  # to sort what is indexed
    for index in (*row_indexes(new.table()), *outcome_indexes(new.outcomes())):
        index.create(connection)
    index_fields(connection, new)


def correct_build(connection: Connection, staged: Sequence[OpenStage], new: View) -> None:
    """Replace the groups that became dirty while the view was built."""
    for item in staged:
        if item.has_news:
            remove_groups(connection, item, *shadow_edges(new))
            remove_messages(connection, item, new.outcomes(), new.table(), new.id)
    for item in staged:
        _add(connection, item, new)


def _add(connection: Connection, staged: OpenStage, new: View) -> None:
    lost, pointing = shadow_edges(new)
    names = {f"rows_{new.id}": new.table(), f"outcomes_{new.id}": new.outcomes(), "deleted": lost, "edges": pointing}
    for name, target in names.items():
        if name in staged.contents:
            copy_rows(connection, staged.table(name), target)


def swap_view(connection: Connection, old: View, new: View, state: ViewState, now: float) -> None:
    """Show the new tables instead of the old ones.

    The old ones stay for a while: a reader of PostgreSQL may have read the list of views and not the rows yet, and
    would find no table; and to free a large one takes SQLite seconds, in which nobody else could write.
    """
    for shared, own in zip((deleted, edges), shadow_edges(new), strict=True):
        connection.execute(delete(shared).where(shared.c.view == old.id))
        copy_rows(connection, own, shared)
    # A message may have belonged to no schema so far.
    ruled = new.outcomes()
    is_ruled = exists().where(*(ruled.c[name] == outcomes_of_none.c[name] for name in ("log", "seq_num", "hash")))
    connection.execute(delete(outcomes_of_none).where(is_ruled))
    fields = [{"name": name, "type": kind, "target": new.cascades.get(name)} for name, kind in new.fields]
    connection.execute(
        update(views)
        .where(views.c.id == new.id)
        .values(
            name=state.name,
            generation=new.generation,
            version=new.version,
            fields=json.dumps(fields),
            fingerprint=state.fingerprint,
            waits_for=json.dumps(state.waits_for),
            stopped=state.stopped,
        )
    )
    if old.is_built:
        retired = {"view": old.id, "generation": old.generation, "owner": "", "retired_at": int(now)}
        connection.execute(insert(builds), retired)
    start_changes(connection, new.id, new.generation, new.fields)
    for table in shadow_edges(new):
        table.drop(connection)
    _forget(connection, new.id, new.generation)


def drop_build(connection: Connection, view: int, generation: int) -> None:
    """Remove the tables of a view that will not be shown."""
    shadows = _deleted_of(view, generation), _edges_of(view, generation)
    tables = (rows_of(view, generation, ()), outcomes_of(view, generation), *shadows)
    for table in tables:
        table.drop(connection, checkfirst=True)
    drop_change_table(connection, view, generation)
    _forget(connection, view, generation)


def _forget(connection: Connection, view: int, generation: int) -> None:
    connection.execute(delete(builds).where(builds.c.view == view, builds.c.generation == generation))


def drop_left_builds(connection: Connection, is_alive: Callable[[str], bool], now: float) -> None:
    """Drop the builds of pipelines that have died, and tables that were replaced some time ago."""
    # What another process is about to remove is left to it.
    for row in connection.execute(select(builds).with_for_update(skip_locked=True)).all():
        is_left = not is_alive(row.owner) if row.retired_at is None else row.retired_at + KEEP_SECONDS <= now
        if is_left:
            drop_build(connection, row.view, row.generation)
