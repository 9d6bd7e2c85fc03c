"""The cascade of one batch: forward from what it touched, in the transaction that merges it.

docs/protocol.md section 6 rule 4. A batch of a few messages touches a few edges, and the indexes find them. What needs
all edges (a deletion taken back, a view built anew) is done here while they are few, for a job of Spark costs more than
they do; where they are many it is Spark's work, in `inkgrove.pipeline.views.cascade`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
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
    true,
    tuple_,
    union_all,
)

from inkgrove.store.view_tables import deleted, edges, gone

if TYPE_CHECKING:
    from inkgrove.store.merge import Staged


FEW_EDGES: Final = 10_000
"""As many cascading relations the database looks at faster than Spark begins to."""


def is_loosened(connection: Connection, staged: "Staged") -> bool:
    """Whether a deletion is taken back, or a row that went by cascade was folded anew: then nothing is sure."""
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


def spread(connection: Connection, staged: Sequence["Staged"]) -> None:
    """Let rows go whose cascading relation points to what is deleted or gone, to a fixed point.

    Only what the stages touch is looked at: everything else was settled before.
    """
    _spread(connection, _touched(staged))


def spread_anew(connection: Connection) -> None:
    """Compute the whole cascade, whatever was settled before."""
    connection.execute(delete(gone))
    _spread(connection, true())


def has_few_edges(connection: Connection, few: int, *tables: Table) -> bool:
    """Whether there are no more than a few cascading relations in these tables."""
    some = union_all(*(select(literal(1)).select_from(table) for table in tables)).limit(few + 1).subquery()
    return (connection.scalar(select(func.count()).select_from(some)) or 0) <= few


def _touched(staged: Sequence["Staged"]) -> ColumnElement[bool]:
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
