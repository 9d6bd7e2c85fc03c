"""Merging stages into the views, always inside the caller's transaction (docs/protocol.md section 6).

What was folded anew replaces what was there, group by group, so merging twice changes nothing. Only views that the
dirty logs speak of are touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, delete, false, or_, select, tuple_

from inkgrove.store.cascade import is_loosened, spread
from inkgrove.store.changes import Folded, recorded
from inkgrove.store.staging import Fields, read_contents, stage_table
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import NO_VIEW, deleted, edges, gone, outcomes_of_none


@dataclass(frozen=True, slots=True)
class Staged:
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


def open_staged(connection: Connection, stages: Iterable[str], fields: Fields) -> list[Staged]:
    """The stages with what is in them."""
    return [Staged(stage, read_contents(connection, stage), fields) for stage in stages]


def merge_stages(connection: Connection, staged: Sequence[Staged], views: Sequence[View], cascaded: bool) -> int:
    """Replace the groups that the stages hold; returns how many rows were written.

    With `cascaded` the stages say which rows are gone; else the cascade goes on from what they touch.
    """
    built = {view.id: view for view in views if view.is_built}
    news = [item for item in staged if item.has_news]
    touched = {number for item in news for number in _touched(connection, item)}
    # By cascade any row may go.
    has_cascade = any(view.cascades for view in views)
    followed = [view for view in built.values() if has_cascade or view.id in touched]
    with recorded(connection, followed, _folded(news)):
        return _merge(connection, staged, built, cascaded=cascaded, has_cascade=has_cascade)


def _folded(news: Sequence[Staged]) -> Folded:
    """What the stages replace, for those who follow the views."""
    return Folded(
        lambda rows: or_(false(), *(item.is_folded(rows.c._log, rows.c._seq_num) for item in news)),
        lambda lost: or_(false(), *(item.is_folded(lost.c.log, lost.c.create_seq) for item in news)),
    )


def _merge(
    connection: Connection, staged: Sequence[Staged], built: Mapping[int, View], *, cascaded: bool, has_cascade: bool
) -> int:
    rows = 0
    for item in staged:
        if item.has_news:
            remove_groups(connection, item, deleted, edges)
            for touched in _touched(connection, item):
                if touched in built:
                    view = built[touched]
                    remove_messages(connection, item, view.outcomes(), view.table(), touched)
            remove_messages(connection, item, outcomes_of_none, None, NO_VIEW)
    for item in staged:
        for name, count in item.contents.items():
            kind, _, number = name.partition("_")
            if kind == "rows":
                rows += count
                copy(connection, item.table(name), built[int(number)].table())
            elif kind == "outcomes":
                target = built[int(number)].outcomes() if int(number) != NO_VIEW else outcomes_of_none
                copy(connection, item.table(name), target)
            elif name in ("deleted", "edges"):
                copy(connection, item.table(name), {"deleted": deleted, "edges": edges}[name])
    if cascaded:
        replace_gone(connection, staged)
    elif has_cascade:
        spread(connection, [item for item in staged if item.has_news])
    return rows


def loosens_cascade(connection: Connection, staged: Sequence[Staged], views: Sequence[View]) -> bool:
    """Whether the stages take back what rows were gone for: then all of the cascade is computed anew."""
    if not any(view.cascades for view in views):
        return False
    return any(is_loosened(connection, item) for item in staged if item.has_news)


def replace_gone(connection: Connection, staged: Sequence[Staged]) -> None:
    """Put the rows that are gone by what the stages say in the place of those that were."""
    connection.execute(delete(gone))
    for item in staged:
        if "gone" in item.contents:
            copy(connection, item.table("gone"), gone)


def copy(connection: Connection, source: Table, target: Table) -> None:
    """All rows of a stage's table into one with the same columns.

    SQLite copies whole records if the statement has exactly this form, and takes them apart otherwise.
    """
    quote = connection.dialect.identifier_preparer
    connection.exec_driver_sql(f"INSERT INTO {quote.format_table(target)} SELECT * FROM {quote.format_table(source)}")


def remove_groups(connection: Connection, staged: Staged, *tables: Table) -> None:
    """Forget what the groups that were folded anew had put into these tables."""
    for table in tables:
        connection.execute(delete(table).where(staged.is_folded(table.c.log, table.c.create_seq)))


def remove_messages(connection: Connection, staged: Staged, outcomes: Table, rows: Table | None, view: int) -> None:
    """Forget the rows and outcomes of what was folded anew, as far as it can belong to the view."""
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
        place = tuple_(outcomes.c.log, outcomes.c.seq_num, outcomes.c.hash)
        connection.execute(delete(outcomes).where(place.in_(ruled)))
    if "ends" in staged.contents:
        # Entries behind a log's end are held and are no messages: nothing else would take their outcomes away.
        ends = staged.table("ends")
        end = select(ends.c.ended_at).where(ends.c.log == outcomes.c.log).scalar_subquery()
        behind = outcomes.c.log.in_(select(ends.c.log).where(ends.c.log.in_(logs))), outcomes.c.seq_num > end
        connection.execute(delete(outcomes).where(*behind))


def _touched(connection: Connection, staged: Staged) -> list[int]:
    log_views = staged.table("log_views")
    return sorted(connection.scalars(select(log_views.c.view).distinct()))
