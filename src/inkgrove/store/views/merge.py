"""Merges stages into the views, with the cascade, inside the caller's transaction (docs/protocol.md section 6).

What was folded anew replaces what was there, group by group, so merging twice changes nothing. Only views that the
dirty logs speak of are touched.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    Table,
    and_,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy import table as named_table

from inkgrove.store.db.connection import Database
from inkgrove.store.views.catalog import View
from inkgrove.store.views.change_feed import ReplacedRows, record_changes
from inkgrove.store.views.stages import Fields, open_stage_transaction, read_contents, stage_table
from inkgrove.store.views.tables import (
    NO_VIEW,
    deleted,
    deleted_table,
    edge_table,
    edges,
    gone,
    gone_table,
    outcomes_of_none,
)

# The cascade (section 6 rule 4). A batch of a few messages touches a few edges, and the indexes find them. What needs
# all edges (a deletion taken back, a view built anew) is done here while they are few, for a job of Spark costs more
# than they do; where they are many it is done by `inkgrove.pipeline.views.cascade`.

FEW_EDGES: Final = 10_000
"""Up to so many cascading relations the database is faster than starting a job of Spark."""


def has_undone_deletions(connection: Connection, staged: "OpenStage") -> bool:
    """Whether a deletion is taken back, or a row that had gone by cascade was folded anew."""
    was_deleted = staged.is_folded(deleted.c.log, deleted.c.create_seq)
    taken_back = select(literal(1)).select_from(deleted).where(was_deleted)
    if "deleted" in staged.contents:
        still = staged.table("deleted")
        taken_back = taken_back.where(
            ~exists().where(still.c.view == deleted.c.view, still.c.instance == deleted.c.instance)
        )
    if connection.scalar(taken_back.limit(1)) is not None:
        return True
    was_gone = (
        select(literal(1))
        .select_from(edges.join(gone, and_(gone.c.view == edges.c.view, gone.c.instance == edges.c.instance)))
        .where(staged.is_folded(edges.c.log, edges.c.create_seq))
        .limit(1)
    )
    return connection.scalar(was_gone) is not None


def spread_deletions(connection: Connection, staged: Sequence["OpenStage"]) -> None:
    """Mark rows as gone whose cascading relation points to what is deleted or gone, to a fixed point.

    Only what the stages touch is looked at: everything else was decided before.
    """
    _spread(connection, _is_touched(staged))


def recompute_cascade(connection: Connection) -> None:
    """Compute the whole cascade anew."""
    connection.execute(delete(gone))
    _spread(connection, true())


def has_few_edges(connection: Connection, few: int, *tables: Table) -> bool:
    """Whether there are no more than a few cascading relations in these tables."""
    some = union_all(*(select(literal(1)).select_from(table) for table in tables)).limit(few + 1).subquery()
    return (connection.scalar(select(func.count()).select_from(some)) or 0) <= few


def _is_touched(staged: Sequence["OpenStage"]) -> ColumnElement[bool]:
    touched: ColumnElement[bool] = false()
    for item in staged:
        touched = or_(touched, item.is_folded(edges.c.log, edges.c.create_seq))
        if "deleted" in item.contents:
            lost = item.table("deleted")
            touched = or_(
                touched, tuple_(edges.c.target_view, edges.c.target).in_(select(lost.c.view, lost.c.instance))
            )
    return touched


def _spread(connection: Connection, touched: ColumnElement[bool]) -> None:
    number = (connection.scalar(select(func.coalesce(func.max(gone.c.round), 0))) or 0) + 1
    is_deleted = exists().where(deleted.c.view == edges.c.target_view, deleted.c.instance == edges.c.target)
    fallen = gone.alias("fallen")
    is_gone = exists().where(fallen.c.view == edges.c.target_view, fallen.c.instance == edges.c.target)
    condition = and_(touched, or_(is_deleted, is_gone))
    while _insert_gone(connection, condition, number):
        condition = exists().where(
            fallen.c.view == edges.c.target_view, fallen.c.instance == edges.c.target, fallen.c.round == number
        )
        number += 1


def _insert_gone(connection: Connection, condition: ColumnElement[bool], number: int) -> int:
    known = gone.alias("known")
    is_known = exists().where(known.c.view == edges.c.view, known.c.instance == edges.c.instance)
    falling = (
        select(edges.c.view, edges.c.instance, literal(number))
        .where(~edges.c.is_element, condition, ~is_known)
        .distinct()
    )
    statement = insert(gone).from_select(["view", "instance", "round"], falling)
    # Drivers forget how many rows were written unless they are asked.
    return connection.execute(statement.execution_options(preserve_rowcount=True)).rowcount


def is_any_gone(connection: Connection) -> bool:
    """Whether any row has gone by cascade."""
    return connection.scalar(select(literal(1)).select_from(gone).limit(1)) is not None


class CascadeTable(NamedTuple):
    """A table that a cascade is computed from."""

    stage: str | None
    """None: one of those beside the views."""
    name: str
    without_view: int | None = None
    """A view whose rows in it do not count."""


def may_have_rows(connection: Connection, tables: Iterable[CascadeTable]) -> bool:
    """Whether any of the tables has rows; those of stages have, for they are made with their first rows."""
    return any(
        item.stage is not None or connection.scalar(select(literal(1)).select_from(named_table(item.name)).limit(1))
        for item in tables
    )


def read_cascade_table(
    database: Database, source: CascadeTable, of: str, columns: Sequence[str], *, part: int, parts: int
) -> Iterator[Sequence[Sequence[Any]]]:
    """One of so many parts of a table, some thousand rows at a time; `of` says which table it is like.

    `columns` that the table lacks are null.
    """
    with open_stage_transaction(database, source.stage) as (connection, schema):
        found = _TABLES[of](source.name, MetaData()) if source.stage is None else stage_table(source.name, (), schema)
        query = select(*(found.c[name] if name in found.c else null() for name in columns))
        if parts > 1:
            query = query.where(found.c.log % parts == part)
        if source.without_view is not None:
            query = query.where(found.c.view != source.without_view)
        yield from connection.execute(query, execution_options={"yield_per": _ROWS}).partitions(_ROWS)


_TABLES: Final[dict[str, Callable[[str, MetaData], Table]]] = {
    "edges": edge_table,
    "deleted": deleted_table,
    "gone": gone_table,
}
_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class OpenStage:
    """A stage as the merging transaction sees it."""

    schema: str
    contents: Mapping[str, int]
    """Its tables, with how many rows each has."""
    fields: Fields

    def table(self, name: str) -> Table:
        """One of its tables."""
        kind, _, view = name.partition("_")
        return stage_table(name, self.fields[int(view)] if kind == "rows" else (), self.schema)

    def is_folded(self, log: ColumnElement[int], create_seq: ColumnElement[int]) -> ColumnElement[bool]:
        """Whether a group was folded anew."""
        conditions: list[ColumnElement[bool]] = []
        if "whole" in self.contents:
            conditions.append(log.in_(select(self.table("whole").c.log)))
        if "groups" in self.contents:
            groups = self.table("groups")
            conditions.append(tuple_(log, create_seq).in_(select(groups.c.log, groups.c.create_seq)))
        return or_(*conditions)

    @property
    def has_news(self) -> bool:
        """Whether anything was folded anew."""
        return "whole" in self.contents or "groups" in self.contents


def open_stages(connection: Connection, stages: Iterable[str], fields: Fields) -> list[OpenStage]:
    """The stages with their contents."""
    return [OpenStage(stage, read_contents(connection, stage), fields) for stage in stages]


CascadeMode = Literal["forward", "anew", "staged"]
"""How the cascade follows a merge: from what it touched, all of it in the database, or as the stages say."""


def merge_stages(
    connection: Connection, staged: Sequence[OpenStage], views: Sequence[View], cascade: CascadeMode
) -> int:
    """Replace the groups that the stages hold; returns how many rows were written."""
    built = {view.id: view for view in views if view.is_built}
    news = [item for item in staged if item.has_news]
    touched = {number for item in news for number in _find_touched_views(connection, item)}
    # By cascade any row may go.
    has_cascade = any(view.cascades for view in views)
    followed = [view for view in built.values() if has_cascade or view.id in touched]
    with record_changes(connection, followed, _folded(news)):
        return _merge(connection, staged, built, cascade if has_cascade else None)


def _folded(news: Sequence[OpenStage]) -> ReplacedRows:
    """The rows and deletions that the stages replace."""
    return ReplacedRows(
        lambda rows: or_(false(), *(item.is_folded(rows.c._log, rows.c._seq_num) for item in news)),
        lambda lost: or_(false(), *(item.is_folded(lost.c.log, lost.c.create_seq) for item in news)),
    )


def _merge(
    connection: Connection, staged: Sequence[OpenStage], built: Mapping[int, View], cascade: CascadeMode | None
) -> int:
    rows = 0
    for item in staged:
        if item.has_news:
            remove_groups(connection, item, deleted, edges)
            for touched in _find_touched_views(connection, item):
                if touched in built:
                    view = built[touched]
                    remove_messages(connection, item, view.outcomes(), view.table(), touched)
            remove_messages(connection, item, outcomes_of_none, None, NO_VIEW)
    for item in staged:
        for name, count in item.contents.items():
            kind, _, number = name.partition("_")
            if kind == "rows":
                rows += count
                copy_rows(connection, item.table(name), built[int(number)].table())
            elif kind == "outcomes":
                target = built[int(number)].outcomes() if int(number) != NO_VIEW else outcomes_of_none
                copy_rows(connection, item.table(name), target)
            elif name in ("deleted", "edges"):
                copy_rows(connection, item.table(name), {"deleted": deleted, "edges": edges}[name])
    if cascade == "staged":
        replace_gone(connection, staged)
    elif cascade == "anew":
        recompute_cascade(connection)
    elif cascade == "forward":
        spread_deletions(connection, [item for item in staged if item.has_news])
    return rows


def edges_of(staged: Sequence[OpenStage]) -> list[Table]:
    """The cascading relations that the stages bring."""
    return [item.table("edges") for item in staged if "edges" in item.contents]


def has_undone_cascade(connection: Connection, staged: Sequence[OpenStage], views: Sequence[View]) -> bool:
    """Whether the stages take back what made rows go: then the whole cascade is to be computed anew."""
    if not any(view.cascades for view in views):
        return False
    return any(has_undone_deletions(connection, item) for item in staged if item.has_news)


def replace_gone(connection: Connection, staged: Sequence[OpenStage]) -> None:
    """Replace the rows that are gone by those that the stages list."""
    connection.execute(delete(gone))
    for item in staged:
        if "gone" in item.contents:
            copy_rows(connection, item.table("gone"), gone)


def copy_rows(connection: Connection, source: Table, target: Table) -> None:
    """All rows of a stage's table into one with the same columns.

    SQLite copies whole records if the statement has exactly this form, and takes them apart otherwise.
    """
    quote = connection.dialect.identifier_preparer
    connection.exec_driver_sql(f"INSERT INTO {quote.format_table(target)} SELECT * FROM {quote.format_table(source)}")


def remove_groups(connection: Connection, staged: OpenStage, *tables: Table) -> None:
    """Delete what the groups that were folded anew had put into these tables."""
    for table in tables:
        connection.execute(delete(table).where(staged.is_folded(table.c.log, table.c.create_seq)))


def remove_messages(connection: Connection, staged: OpenStage, outcomes: Table, rows: Table | None, view: int) -> None:
    """Delete the rows and outcomes of what was folded anew, as far as it can belong to the view."""
    log_views = staged.table("log_views")
    logs = select(log_views.c.log).where(log_views.c.view == view)
    if "whole" in staged.contents:
        whole = staged.table("whole")
        folded = select(whole.c.log).where(whole.c.log.in_(logs))
        connection.execute(delete(outcomes).where(outcomes.c.log.in_(folded)))
        if rows is not None:
            connection.execute(delete(rows).where(rows.c._log.in_(folded)))
    if "groups" in staged.contents and rows is not None:
        groups = staged.table("groups")
        made = select(groups.c.log, groups.c.create_seq).where(groups.c.log.in_(logs))
        connection.execute(delete(rows).where(tuple_(rows.c._log, rows.c._seq_num).in_(made)))
    if "messages" in staged.contents:
        messages = staged.table("messages")
        ruled = select(messages.c.log, messages.c.seq_num, messages.c.hash).where(messages.c.log.in_(logs))
        message = tuple_(outcomes.c.log, outcomes.c.seq_num, outcomes.c.hash)
        connection.execute(delete(outcomes).where(message.in_(ruled)))
    if "ends" in staged.contents:
        # Entries behind the end of a log or of its key are held and are no messages: nothing else would take their
        # outcomes away.
        ends = staged.table("ends")
        is_behind = exists().where(
            ends.c.log == outcomes.c.log, outcomes.c.seq_num > ends.c.ended_at, outcomes.c.seq_num <= ends.c.last
        )
        is_of_view = outcomes.c.log.in_(select(ends.c.log).where(ends.c.log.in_(logs)))
        connection.execute(delete(outcomes).where(is_of_view, is_behind))


def _find_touched_views(connection: Connection, staged: OpenStage) -> list[int]:
    log_views = staged.table("log_views")
    return sorted(connection.scalars(select(log_views.c.view).distinct()))
