"""The changes of a view: recorded by each merge, and read by those who follow the view (docs/protocol.md section 8).

A merge keeps the rows it changes as images from before it, without their values, and from after it. After a cursor, a
reader gets the rows that became visible, changed or became invisible to them: because the row changed, was sent to
them, expired, or because a relation began or ended. They get nothing of rows that they neither saw nor see.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
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
    bindparam,
    delete,
    except_,
    exists,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
    union,
    update,
)

from inkgrove.core import Hash, IdentityId
from inkgrove.store.db.connection import Compiled, in_lists
from inkgrove.store.db.node_tables import visibility_changes
from inkgrove.store.logs.positions import START, Offset, is_in_final_order
from inkgrove.store.views.access import EarlierVisibility, Reader, has_mode, keys_of_identities, visible_rows
from inkgrove.store.views.catalog import View
from inkgrove.store.views.query import ViewRow, decode_rows
from inkgrove.store.views.tables import ROW_COLUMNS, change_counts, change_table, deleted, edges, gone, node_table

seen = node_table(visibility_changes)
MAX_AT_ONCE: Final = 1000
"""Rows that become visible or invisible together; if there are more, the reader reads the view again."""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """How far a reader of a view has come."""

    view: int
    generation: int
    complete: int
    """The change up to which everything was reported, also rows that became visible without a change."""
    change: int
    instance: bytes
    """The last row reported of this change; empty if all were."""
    seen: Offset
    """How far shares and relations are taken into account."""
    at: int
    """The time up to which rows that expire are taken into account."""

    def __str__(self) -> str:
        numbers = (self.view, self.generation, self.complete, self.change, *self.seen, self.at)
        # As long for few changes as for many: how long it is can be seen, also when it is hidden.
        return ".".join([*(f"{number:019d}" for number in numbers), self.instance.hex()])


def parse_change_cursor(text: str) -> ChangeCursor | None:
    """A cursor from its text; None if the text is none."""
    *numbers, instance = text.split(".")
    if len(numbers) != 7 or not all(n.removeprefix("-").isdigit() and n.isascii() and len(n) < 20 for n in numbers):
        return None
    view, generation, complete, change, xid, position, at = map(int, numbers)
    try:
        return ChangeCursor(view, generation, complete, change, bytes.fromhex(instance), Offset(xid, position), at)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class VisibleChange:
    """What the reader gets at once: rows that are visible now, and instances that are not any more."""

    cursor: ChangeCursor
    shown: Sequence[tuple[ViewRow, bool]]
    """Each with whether the reader had it before."""
    gone: Sequence[Hash] = ()


class ChangesExpired(Exception):
    """The changes after the cursor are not kept: the view is to be read again."""


def find_newest_cursor(connection: Connection, view: View, now: int) -> ChangeCursor:
    """The cursor behind everything that a reader sees now."""
    row = _newest_change.first(connection, view=view.id)
    newest = 0 if row is None else row[0]
    return ChangeCursor(view.id, view.generation, newest, newest, b"", _newest_visibility(connection), now)


def read_newest_changes(connection: Connection) -> tuple[dict[int, tuple[int, int]], Offset]:
    """Generation and newest change of every view, and how far shares and relations have come, in one query each."""
    counts = connection.execute(select(change_counts.c.view, change_counts.c.generation, change_counts.c.newest))
    return {row.view: (row.generation, row.newest) for row in counts}, _newest_visibility(connection)


def next_expiry(connection: Connection, view: View, after: int) -> int | None:
    """When the next row of a view expires."""
    table = view.table()
    found: int | None = connection.scalar(select(func.min(table.c._expires)).where(table.c._expires > after))
    return found


def _expired_between(connection: Connection, view: View, after: int, until: int) -> bool:
    expiry = next_expiry(connection, view, after)
    return expiry is not None and expiry <= until


def _newest_visibility(connection: Connection) -> Offset:
    row = _newest_visibility_row.first(connection)
    return START if row is None else Offset(*row)


def _select_newest_visibility(connection: Connection) -> Select[Any]:
    query = select(seen.c.xid, seen.c.id).where(is_in_final_order(connection, seen.c.xid))
    return query.order_by(seen.c.xid.desc(), seen.c.id.desc()).limit(1)


_newest_visibility_row: Final = Compiled(_select_newest_visibility)
_newest_change: Final = Compiled(
    lambda _: select(change_counts.c.newest).where(change_counts.c.view == bindparam("view"))
)


def read_changes_after(
    connection: Connection, view: View, cursor: ChangeCursor, reader: Reader
) -> Iterator[VisibleChange]:
    """All that the reader gets after a cursor, in order; raises `ChangesExpired`."""
    counts = connection.execute(select(change_counts).where(change_counts.c.view == view.id)).first()
    if counts is None or (cursor.view, cursor.generation) != (view.id, view.generation):
        raise ChangesExpired
    if not counts.oldest - 1 <= cursor.complete <= cursor.change <= counts.newest:
        raise ChangesExpired
    earlier, moved = _earlier(connection, reader.identity, cursor.seen)
    if cursor.change > cursor.complete and (any(moved) or _expired_between(connection, view, cursor.at, reader.now)):
        # The reader left in the midst of a change, and sees other rows now: what was reported of it can be wrong.
        raise ChangesExpired
    had: dict[bytes, bool] = {}
    reached = cursor
    while reached.change < counts.newest or reached.instance:
        found = _read_changes(connection, view, reached, reader, earlier)
        for (change, instance), images in groupby(found, key=itemgetter("_change", "_instance")):
            reached = replace(reached, change=change, instance=bytes(instance))
            yield from _compare_images(connection, view, reached, list(images), had)
        if len(found) < _BATCH:
            reached = replace(reached, change=counts.newest, instance=b"")
    newest = _newest_visibility(connection)
    last = replace(reached, complete=counts.newest, seen=max(newest, cursor.seen), at=max(reader.now, cursor.at))
    yield _come_and_go(connection, view, cursor, last, reader, earlier, moved)


def _read_changes(
    connection: Connection, view: View, cursor: ChangeCursor, reader: Reader, earlier: EarlierVisibility
) -> list[dict[str, Any]]:
    """The next images, both of each row."""
    changes, rows = change_table(view.id, view.generation, view.fields), view.table()
    was_seen = and_(*visible_rows(changes, None, replace(reader, now=cursor.at), earlier))
    is_there = exists().where(rows.c._instance == changes.c._instance, *visible_rows(rows, view.cascading, reader))
    is_seen = and_(*visible_rows(changes, None, reader), is_there)
    behind = (
        tuple_(changes.c._change, changes.c._instance) > tuple_(cursor.change, cursor.instance)
        if cursor.instance
        else changes.c._change > cursor.change
    )
    query = (
        select(changes, _is_true(was_seen, "was_seen"), _is_true(is_seen, "is_seen"))
        .where(behind)
        .order_by(changes.c._change, changes.c._instance, changes.c._is_after)
        .limit(_BATCH)
    )
    found = [dict(row._mapping) for row in connection.execute(query)]
    if len(found) == _BATCH and not found[-1]["_is_after"]:
        found.pop()  # its other image may be the next
    return found


def _compare_images(
    connection: Connection, view: View, cursor: ChangeCursor, images: list[dict[str, Any]], had: dict[bytes, bool]
) -> Iterator[VisibleChange]:
    """The change of one row; `had` says which rows the reader has by what was reported before."""
    before = next((image for image in images if not image["_is_after"]), None)
    after = next((image for image in images if image["_is_after"]), None)
    instance = cursor.instance
    had_it = had.get(instance, before is not None and bool(before["was_seen"]))
    had[instance] = after is not None and bool(after["is_seen"])
    if after is not None and after["is_seen"]:
        (row,) = decode_rows(connection, view, [after])
        yield VisibleChange(cursor, [(row, had_it)])
    elif had_it:
        yield VisibleChange(cursor, [], [Hash(instance)])


def _earlier(
    connection: Connection, reader: IdentityId | None, after: Offset
) -> tuple[EarlierVisibility, tuple[frozenset[bytes], frozenset[bytes]]]:
    """The shares and relations at an offset, and the instances and identities where they have changed since."""
    if reader is None:
        return EarlierVisibility(), (frozenset(), frozenset())
    query = (
        select(seen)
        .where(seen.c.reader == reader, tuple_(seen.c.xid, seen.c.id) > tuple_(*after))
        .where(is_in_final_order(connection, seen.c.xid))
        .order_by(seen.c.xid.desc(), seen.c.id.desc())
        .limit(10 * MAX_AT_ONCE + 1)
    )
    found = connection.execute(query).all()
    if len(found) > 10 * MAX_AT_ONCE:
        raise ChangesExpired
    # The oldest row of each says what was before: they come newest first.
    instances = {bytes(row.instance): row.is_gained for row in found if row.instance is not None}
    followees = {bytes(row.followee): row.is_gained for row in found if row.followee is not None}
    earlier = EarlierVisibility(
        sent=_those(instances, is_gained=False),
        not_sent=_those(instances, is_gained=True),
        followed=_those(followees, is_gained=False),
        not_followed=_those(followees, is_gained=True),
    )
    return earlier, (frozenset(instances), frozenset(followees))


def _is_true(condition: ColumnElement[bool], name: str) -> ColumnElement[bool]:
    """A condition as a column, in which a comparison with null is false rather than null."""
    return condition.is_(true()).label(name)


def _those(found: dict[bytes, bool], *, is_gained: bool) -> frozenset[bytes]:
    return frozenset(name for name, gained in found.items() if bool(gained) == is_gained)


def _come_and_go(
    connection: Connection,
    view: View,
    before: ChangeCursor,
    now: ChangeCursor,
    reader: Reader,
    earlier: EarlierVisibility,
    moved: tuple[Collection[bytes], Collection[bytes]],
) -> VisibleChange:
    """Rows that did not change themselves and became visible, or invisible."""
    rows, changes = view.table(), change_table(view.id, view.generation, view.fields)
    instances, followees = moved
    choices = [and_(rows.c._expires > before.at, rows.c._expires <= now.at)]
    choices += [rows.c._instance.in_(some) for some in in_lists(instances)]
    if followees:
        choices.append(and_(rows.c._author.in_(keys_of_identities(followees)), has_mode(rows, "relations")))
    was_seen = and_(*visible_rows(rows, view.cascading, replace(reader, now=before.at), earlier))
    is_seen = and_(*visible_rows(rows, view.cascading, reader))
    changed = exists().where(
        changes.c._instance == rows.c._instance, changes.c._change > before.complete, changes.c._change <= now.complete
    )
    images = select(rows, _is_true(was_seen, "was_seen"), _is_true(is_seen, "is_seen"))
    both = images.where(or_(*choices), ~changed).subquery()
    query = select(both).where(both.c.was_seen != both.c.is_seen).order_by(both.c._instance).limit(MAX_AT_ONCE + 1)
    found = [dict(row._mapping) for row in connection.execute(query)]
    if len(found) > MAX_AT_ONCE:
        raise ChangesExpired
    shown = decode_rows(connection, view, [row for row in found if row["is_seen"]])
    return VisibleChange(
        now, [(row, False) for row in shown], [Hash(row["_instance"]) for row in found if not row["is_seen"]]
    )


# Recording, in the transaction that merges, so that no change is lost or reported twice. A row also changes when it
# goes or comes back by cascade, and when an element of a list of it does.


RETAINED: Final = 20_000
"""How many images are kept for each view; a reader who is further behind reads the view again."""

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
class ReplacedRows:
    """What a merge replaces: conditions on a table of rows and on the table of deletions."""

    rows: Callable[[FromClause], ColumnElement[bool]]
    deleted: Callable[[FromClause], ColumnElement[bool]]


@contextmanager
def record_changes(
    connection: Connection, views: Sequence[View], folded: ReplacedRows | None, retained: int = RETAINED
) -> Iterator[None]:
    """Record what the block does to rows of the views; `folded` is None where rows go and come by cascade alone."""
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


def _lost(folded: ReplacedRows | None) -> Select[Any]:
    """Instances that are deleted or gone, for rows that point to them, as far as the merge can change them."""
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
        """Keep the rows as they are now; from before a change only who saw them: nobody is told their old values."""
        shown = visible_rows(self.rows, None if even_gone else self.view.cascading, None)
        columns = [column for column in self.rows.columns if is_after or column.name in ROW_COLUMNS]
        image = select(literal(self.number), literal(is_after), *columns).where(condition, *shown)
        names = ["_change", "_is_after", *(column.name for column in columns)]
        self.connection.execute(insert(self.changes).from_select(names, image))

    def finish(self, folded: ReplacedRows | None, went: Lost, came: Lost, retained: int) -> None:
        """Add the images from after the merge and those of the cascade, and leave out what did not change."""
        is_folded = folded.rows(self.rows) if folded is not None else None
        if is_folded is not None:
            self.copy(is_folded, is_after=True)
        is_other = not_(is_folded) if is_folded is not None else true()
        with_lists = self._lists_changed(went | came)
        for instances, is_after in ((went, False), (came, True)):
            for some in in_lists(instance for view, instance in instances if view == self.view.id):
                self.copy(and_(self.rows.c._instance.in_(some), is_other), is_after=is_after, even_gone=True)
        # A row that came or went has one image already, and its lists are in it.
        moved = {instance for view, instance in went | came if view == self.view.id}
        for some in in_lists(with_lists - moved):
            for is_after in (False, True):
                self.copy(and_(self.rows.c._instance.in_(some), is_other), is_after=is_after)
        self._drop_unchanged(with_lists)
        self._count(retained)

    def _lists_changed(self, lost: Lost) -> set[bytes]:
        """Rows with lists that lost an element, or got one back."""
        found: set[bytes] = set()
        for some in in_lists(lost if self.view.cascades else ()):
            is_lost = tuple_(edges.c.target_view, edges.c.target).in_(some)
            query = select(edges.c.instance).where(edges.c.view == self.view.id, edges.c.is_element, is_lost)
            found.update(map(bytes, self.connection.scalars(query)))
        return found

    def _drop_unchanged(self, with_lists: Collection[bytes]) -> None:
        changes = self.changes
        other = changes.alias("other")
        same = exists().where(
            other.c._change == changes.c._change,
            other.c._instance == changes.c._instance,
            other.c._is_after != changes.c._is_after,
            *(other.c[name].is_not_distinct_from(changes.c[name]) for name in _SOURCES),
        )
        kept = [changes.c._instance.not_in(some) for some in in_lists(with_lists)]
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
