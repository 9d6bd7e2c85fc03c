"""Which rows a merge changes: their images before and after, kept for those who follow a view.

docs/protocol.md section 8. Part of the transaction that merges, so that no change is lost or told twice. A row also
changes when it goes or comes back by cascade, and when an element of a list of it does.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column as Col
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    Table,
    and_,
    delete,
    except_,
    exists,
    insert,
    literal,
    not_,
    select,
    true,
    tuple_,
    union,
    update,
)

from inkgrove.store.change_tables import change_counts, change_table
from inkgrove.store.database import in_lists
from inkgrove.store.query import not_gone
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import deleted, edges, gone

RETAINED: Final = 20_000
"""How many images are kept for each view; whoever is further behind reads the view again."""

_before = Table(
    "inkgrove_lost_before",
    MetaData(),
    Col("view", Integer),
    Col("instance", LargeBinary),
    prefixes=["TEMPORARY"],
)
# Two rows with the same sources have the same values: views of one definition are a pure function of the messages.
_SOURCES: Final = ("_last_seq_num", "_last_hash", "_field_seq_nums", "_access", "_expires")
Lost = set[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Folded:
    """What a merge replaces: conditions on a table of rows and on the table of deletions."""

    rows: Callable[[FromClause], ColumnElement[bool]]
    deleted: Callable[[FromClause], ColumnElement[bool]]


@contextmanager
def recorded(
    connection: Connection, views: Sequence[View], folded: Folded | None, retained: int = RETAINED
) -> Iterator[None]:
    """Keep what happens to rows of the views inside; `folded` is None where rows go and come by cascade alone."""
    built = [view for view in views if view.is_built]
    recorders = [_Recorder(connection, view, number + 1) for view, number in _lock(connection, built)]
    has_cascade = any(view.cascades for view in built)
    if has_cascade:
        _before.create(connection)
        connection.execute(insert(_before).from_select(["view", "instance"], _lost(folded)))
    if folded is not None:
        for recorder in recorders:
            recorder.copy(folded.rows(recorder.rows), is_after=False)
    yield
    went: Lost = set()
    came: Lost = set()
    if has_cascade:
        known = select(_before.c.view, _before.c.instance)
        went = _pairs(connection, except_(_lost(folded), known))
        came = _pairs(connection, except_(known, _lost(folded)))
        _before.drop(connection)
    for recorder in recorders:
        recorder.finish(folded, went, came, retained)


def _pairs(connection: Connection, query: CompoundSelect[Any]) -> Lost:
    found: Sequence[Any] = connection.execute(query).all()
    return {(row[0], bytes(row[1])) for row in found}


def _lock(connection: Connection, views: Sequence[View]) -> list[tuple[View, int]]:
    """The number of the newest change of each view; nobody else adds to them until the end of the transaction."""
    by_id = {view.id: view for view in views}
    query = select(change_counts).where(change_counts.c.view.in_(by_id)).order_by(change_counts.c.view)
    found = connection.execute(query.with_for_update()).all()
    return [(by_id[row.view], row.newest) for row in found if row.generation == by_id[row.view].generation]


def _lost(folded: Folded | None) -> Select[Any]:
    """What counts as deleted for rows that point to it, as far as the merge can change it."""
    is_folded = true() if folded is None else folded.deleted(deleted)
    return select(
        union(
            select(gone.c.view, gone.c.instance), select(deleted.c.view, deleted.c.instance).where(is_folded)
        ).subquery()
    )


class _Recorder:
    """Writes the changes of one view in one merge."""

    def __init__(self, connection: Connection, view: View, number: int) -> None:
        self.connection = connection
        self.view = view
        self.number = number
        self.rows = view.table()
        self.changes = change_table(view.id, view.generation, view.fields)

    def copy(self, condition: ColumnElement[bool], *, is_after: bool, even_gone: bool = False) -> None:
        """Keep the rows as they are now."""
        shown = [] if even_gone else not_gone(self.view, self.rows)
        image = select(literal(self.number), literal(is_after), *self.rows.columns).where(condition, *shown)
        names = [column.name for column in self.changes.columns]
        self.connection.execute(insert(self.changes).from_select(names, image))

    def finish(self, folded: Folded | None, went: Lost, came: Lost, retained: int) -> None:
        """Everything is merged: add what follows, and leave out what did not change."""
        is_folded = folded.rows(self.rows) if folded is not None else None
        if is_folded is not None:
            self.copy(is_folded, is_after=True)
        is_other = not_(is_folded) if is_folded is not None else true()
        shaken = self._shaken(went | came)
        for instances, is_after in ((went, False), (came, True)):
            for some in in_lists(instance for view, instance in instances if view == self.view.id):
                self.copy(and_(self.rows.c._instance.in_(some), is_other), is_after=is_after, even_gone=True)
        # A row that came or went has one image already, and its lists are told with it.
        moved = {instance for view, instance in went | came if view == self.view.id}
        for some in in_lists(shaken - moved):
            for is_after in (False, True):
                self.copy(and_(self.rows.c._instance.in_(some), is_other), is_after=is_after)
        self._drop_unchanged(shaken)
        self._count(retained)

    def _shaken(self, lost: Lost) -> set[bytes]:
        """Rows with lists that lost an element, or got one back."""
        found: set[bytes] = set()
        for some in in_lists(lost if self.view.cascades else ()):
            is_lost = tuple_(edges.c.target_view, edges.c.target).in_(some)
            query = select(edges.c.instance).where(edges.c.view == self.view.id, edges.c.is_element, is_lost)
            found.update(map(bytes, self.connection.scalars(query)))
        return found

    def _drop_unchanged(self, shaken: Collection[bytes]) -> None:
        changes = self.changes
        other = changes.alias("other")
        same = exists().where(
            other.c._change == changes.c._change,
            other.c._instance == changes.c._instance,
            other.c._is_after != changes.c._is_after,
            *(other.c[name].is_not_distinct_from(changes.c[name]) for name in _SOURCES),
        )
        kept = [changes.c._instance.not_in(some) for some in in_lists(shaken)]
        self.connection.execute(delete(changes).where(changes.c._change == self.number, same, *kept))

    def _count(self, retained: int) -> None:
        changes, connection = self.changes, self.connection
        if connection.scalar(select(literal(1)).where(changes.c._change == self.number).limit(1)) is None:
            return
        values: dict[str, Any] = {"newest": self.number}
        by_age = select(changes.c._change).order_by(changes.c._change.desc()).offset(retained).limit(1)
        too_old = connection.scalar(by_age)
        if too_old is not None:
            connection.execute(delete(changes).where(changes.c._change <= too_old))
            values["oldest"] = too_old + 1
        connection.execute(update(change_counts).where(change_counts.c.view == self.view.id).values(values))


__all__ = ["RETAINED", "Folded", "recorded"]
