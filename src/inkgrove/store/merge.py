"""Merging stages into the views, and the cascade that follows; always inside the caller's transaction.

docs/protocol.md section 6. What was folded anew replaces what was there, group by group, so merging twice changes
nothing.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Table,
    and_,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
)

from inkgrove.store.change_tables import drop_changes, start_changes
from inkgrove.store.changes import Folded, recorded
from inkgrove.store.staging import Fields, stage_tables
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import deleted, edges, gone, outcomes


def merge_stages(connection: Connection, stages: Sequence[str], views: Sequence[View]) -> int:
    """Replace the groups that the stages hold; returns how many rows were written."""
    fields: Fields = {view.id: view.fields for view in views}
    staged = [stage_tables(fields, stage) for stage in stages]
    with recorded(connection, views, _folded(staged)):
        return _merge(connection, staged, views)


def _folded(staged: Sequence[dict[str, Table]]) -> Folded:
    """What the stages replace, for those who follow the views."""
    groups = [select(t["groups"].c.author, t["groups"].c.log_id, t["groups"].c.create_seq) for t in staged]

    def is_folded(*place: ColumnElement[Any]) -> ColumnElement[bool]:
        return or_(false(), *(tuple_(*place).in_(some) for some in groups))

    return Folded(
        lambda rows: is_folded(rows.c._author, rows.c._log_id, rows.c._seq_num),
        lambda lost: is_folded(lost.c.author, lost.c.log_id, lost.c.create_seq),
    )


def _merge(connection: Connection, staged: Sequence[dict[str, Table]], views: Sequence[View]) -> int:
    rows = 0
    has_cascade = any(view.cascades for view in views)
    is_cascade_reset = has_cascade and any(
        _loosens_cascade(connection, tables["groups"], tables["deleted"]) for tables in staged
    )
    for tables in staged:
        _remove_groups(connection, tables, views)
    for tables in staged:
        for name, target in (("outcomes", outcomes), ("deleted", deleted), ("edges", edges)):
            _copy(connection, tables[name], target)
        for view in views:
            rows += _copy(connection, tables[f"rows_{view.id}"], view.table())
    if is_cascade_reset:
        connection.execute(delete(gone))
        _spread(connection, None)
    elif has_cascade:
        _spread(connection, staged)
    return rows


def replace_view(connection: Connection, stages: Sequence[str], old: View, new: View, views: Sequence[View]) -> int:
    """Fill the new table of a view, which must exist, from stages, and all that belongs to the view."""
    with recorded(connection, views, None):
        rows = _replace(connection, stages, old, new, views)
    if old.is_built:
        drop_changes(connection, old.id, old.generation)
    start_changes(connection, new.id, new.generation, new.fields)
    return rows


def _replace(connection: Connection, stages: Sequence[str], old: View, new: View, views: Sequence[View]) -> int:
    fields: Fields = {new.id: new.fields}
    for table in (deleted, edges, outcomes):
        connection.execute(delete(table).where(table.c.view == old.id))
    rows = 0
    for stage in stages:
        tables = stage_tables(fields, stage)
        # A message may have belonged to no schema so far.
        connection.execute(delete(outcomes).where(outcomes.c.hash.in_(select(tables["outcomes"].c.hash))))
        for name, target in (("outcomes", outcomes), ("deleted", deleted), ("edges", edges)):
            _copy(connection, tables[name], target)
        rows += _copy(connection, tables[f"rows_{new.id}"], new.table())
    if any(view.cascades for view in (*views, new)) or old.cascades:
        connection.execute(delete(gone))
        _spread(connection, None)
    return rows


def _copy(connection: Connection, source: Table, target: Table) -> int:
    columns = [column.name for column in source.columns]
    return _count(connection, insert(target).from_select(columns, select(source)))


def _count(connection: Connection, statement: Insert) -> int:
    """Run an insert and say how many rows it wrote; drivers forget that unless they are asked."""
    return connection.execute(statement.execution_options(preserve_rowcount=True)).rowcount


def _remove_groups(connection: Connection, tables: dict[str, Table], views: Sequence[View]) -> None:
    groups = tables["groups"]
    folded = select(groups.c.author, groups.c.log_id, groups.c.create_seq)
    connection.execute(delete(outcomes).where(outcomes.c.hash.in_(select(tables["messages"].c.hash))))
    for table in (deleted, edges):
        connection.execute(delete(table).where(tuple_(table.c.author, table.c.log_id, table.c.create_seq).in_(folded)))
    for view in views:
        rows = view.table()
        connection.execute(delete(rows).where(tuple_(rows.c._author, rows.c._log_id, rows.c._seq_num).in_(folded)))


def _loosens_cascade(connection: Connection, groups: Table, staged_deleted: Table) -> bool:
    """Whether a deletion is taken back, or a row that went by cascade was folded anew: then nothing is sure."""
    folded = select(groups.c.author, groups.c.log_id, groups.c.create_seq)
    was_deleted = tuple_(deleted.c.author, deleted.c.log_id, deleted.c.create_seq).in_(folded)
    still = exists().where(staged_deleted.c.view == deleted.c.view, staged_deleted.c.instance == deleted.c.instance)
    taken_back = select(literal(1)).where(was_deleted, ~still).select_from(deleted).limit(1)
    if connection.scalar(taken_back) is not None:
        return True
    was_gone = (
        select(literal(1))
        .select_from(edges.join(gone, and_(gone.c.view == edges.c.view, gone.c.instance == edges.c.instance)))
        .where(tuple_(edges.c.author, edges.c.log_id, edges.c.create_seq).in_(folded))
        .limit(1)
    )
    return connection.scalar(was_gone) is not None


def _spread(connection: Connection, staged: Sequence[dict[str, Table]] | None) -> None:
    """Let rows go whose cascading relation points to what is deleted or gone, to a fixed point.

    With stages, only what they touch is looked at: everything else was settled before.
    """
    before = connection.scalar(select(func.coalesce(func.max(gone.c.round), 0))) or 0
    is_deleted: ColumnElement[bool] = exists().where(
        deleted.c.view == edges.c.target_view, deleted.c.instance == edges.c.target
    )
    fallen = gone.alias("fallen")
    is_gone: ColumnElement[bool] = exists().where(
        fallen.c.view == edges.c.target_view, fallen.c.instance == edges.c.target
    )
    touched: ColumnElement[bool] = false() if staged is not None else edges.c.is_element == edges.c.is_element
    for tables in staged or ():
        groups, lost = tables["groups"], tables["deleted"]
        folded = select(groups.c.author, groups.c.log_id, groups.c.create_seq)
        touched = or_(
            touched,
            tuple_(edges.c.author, edges.c.log_id, edges.c.create_seq).in_(folded),
            tuple_(edges.c.target_view, edges.c.target).in_(select(lost.c.view, lost.c.instance)),
        )
    number = before + 1
    while _insert_gone(connection, and_(touched, or_(is_deleted, is_gone)), number):
        touched = exists().where(
            fallen.c.view == edges.c.target_view, fallen.c.instance == edges.c.target, fallen.c.round == number
        )
        is_deleted, is_gone, number = false(), touched, number + 1


def _insert_gone(connection: Connection, condition: ColumnElement[bool], number: int) -> int:
    known = gone.alias("known")
    is_known = exists().where(known.c.view == edges.c.view, known.c.instance == edges.c.instance)
    falling = (
        select(edges.c.view, edges.c.instance, literal(number))
        .where(~edges.c.is_element, condition, ~is_known)
        .distinct()
    )
    return _count(connection, insert(gone).from_select(["view", "instance", "round"], falling))
