"""What a reader of a view learns after a place in its changes: rows that came into sight, changed, or went out of it.

docs/protocol.md section 8. A row comes into sight or goes out of it when it changes, when it was sent to the reader,
when a relation begins or ends, and when it expires; nothing is told of rows that the reader neither saw nor sees.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, exists, func, or_, select, true, tuple_

from inkgrove.core import Hash, IdentityId
from inkgrove.store.change_tables import change_counts, change_table
from inkgrove.store.compiled import Compiled
from inkgrove.store.database import in_lists
from inkgrove.store.ingests import START, Offset, is_settled
from inkgrove.store.query import ViewRow, decode_rows, not_gone
from inkgrove.store.view_store import View
from inkgrove.store.visibility import Earlier, Reader, has_mode, keys_of_identities, visible_rows
from inkgrove.store.visibility import visibility_changes as seen

MAX_AT_ONCE: Final = 1000
"""Rows that come into sight or go out of it together; if there are more, the reader reads the view again."""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader of a view has come."""

    view: int
    generation: int
    settled: int
    """The change up to which everything was told, what came into sight by itself included."""
    change: int
    instance: bytes
    """The last row told of this change; empty if all were."""
    seen: Offset
    """How far shares and relations are taken into account."""
    at: int
    """The time up to which rows that expire are taken into account."""

    def __str__(self) -> str:
        numbers = (self.view, self.generation, self.settled, self.change, *self.seen, self.at)
        # As long for few changes as for many: how long it is can be seen, also when it is hidden.
        return ".".join([*(f"{number:019d}" for number in numbers), self.instance.hex()])


def parse_place(text: str) -> Place | None:
    """A place as it was rendered; None if the text is none."""
    *numbers, instance = text.split(".")
    if len(numbers) != 7 or not all(n.removeprefix("-").isdigit() and n.isascii() and len(n) < 20 for n in numbers):
        return None
    view, generation, settled, change, xid, position, at = map(int, numbers)
    try:
        return Place(view, generation, settled, change, bytes.fromhex(instance), Offset(xid, position), at)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that the reader learns: rows that are there now, and instances that are no more."""

    place: Place
    shown: Sequence[tuple[ViewRow, bool]]
    """Each with whether the reader had it before."""
    gone: Sequence[Hash] = ()


class TooFarBehind(Exception):
    """The changes after the place are not kept: the view is to be read again."""


def newest_place(connection: Connection, view: View, now: int) -> Place:
    """The place behind everything that a reader sees now."""
    row = _newest_change.first(connection, view=view.id)
    newest = 0 if row is None else row[0]
    return Place(view.id, view.generation, newest, newest, b"", _newest_seen(connection), now)


def newest_changes(connection: Connection) -> tuple[dict[int, tuple[int, int]], Offset]:
    """Generation and newest change of every view, and how far shares and relations have come: one look for all."""
    counts = connection.execute(select(change_counts.c.view, change_counts.c.generation, change_counts.c.newest))
    return {row.view: (row.generation, row.newest) for row in counts}, _newest_seen(connection)


def next_expiry(connection: Connection, view: View, after: int) -> int | None:
    """When the next row of a view expires."""
    table = view.table()
    found: int | None = connection.scalar(select(func.min(table.c._expires)).where(table.c._expires > after))
    return found


def _expired_between(connection: Connection, view: View, after: int, until: int) -> bool:
    expiry = next_expiry(connection, view, after)
    return expiry is not None and expiry <= until


def _newest_seen(connection: Connection) -> Offset:
    row = _newest_sight.first(connection)
    return START if row is None else Offset(*row)


def _newest_sight_query(connection: Connection) -> Select[Any]:
    query = select(seen.c.xid, seen.c.id).where(is_settled(connection, seen.c.xid))
    return query.order_by(seen.c.xid.desc(), seen.c.id.desc()).limit(1)


_newest_sight: Final = Compiled(_newest_sight_query)
_newest_change: Final = Compiled(
    lambda _: select(change_counts.c.newest).where(change_counts.c.view == bindparam("view"))
)


def read_after(connection: Connection, view: View, place: Place, reader: Reader) -> Iterator[Told]:
    """All that the reader learns after a place, in order; raises `TooFarBehind`."""
    counts = connection.execute(select(change_counts).where(change_counts.c.view == view.id)).first()
    if counts is None or (place.view, place.generation) != (view.id, view.generation):
        raise TooFarBehind
    if not counts.oldest - 1 <= place.settled <= place.change <= counts.newest:
        raise TooFarBehind
    earlier, moved = _earlier(connection, reader.identity, place.seen)
    if place.change > place.settled and (any(moved) or _expired_between(connection, view, place.at, reader.now)):
        # The reader left in the midst of something, and sees otherwise now: what was told of it can be wrong.
        raise TooFarBehind
    had: dict[bytes, bool] = {}
    told = place
    while told.change < counts.newest or told.instance:
        found = _read_changes(connection, view, told, reader, earlier)
        for (change, instance), images in groupby(found, key=itemgetter("_change", "_instance")):
            told = replace(told, change=change, instance=bytes(instance))
            yield from _tell(connection, view, told, list(images), had)
        if len(found) < _BATCH:
            told = replace(told, change=counts.newest, instance=b"")
    newest = _newest_seen(connection)
    last = replace(told, settled=counts.newest, seen=max(newest, place.seen), at=max(reader.now, place.at))
    yield _come_and_go(connection, view, place, last, reader, earlier, moved)


def _read_changes(
    connection: Connection, view: View, place: Place, reader: Reader, earlier: Earlier
) -> list[dict[str, Any]]:
    """The next images, both of each row."""
    changes, rows = change_table(view.id, view.generation, view.fields), view.table()
    was_seen = visible_rows(changes, reader.identity, reader.own_keys, place.at, earlier)
    is_there = exists().where(rows.c._instance == changes.c._instance, reader.sees(rows), *not_gone(view, rows))
    behind = (
        tuple_(changes.c._change, changes.c._instance) > tuple_(place.change, place.instance)
        if place.instance
        else changes.c._change > place.change
    )
    query = (
        select(changes, _is_true(was_seen, "was_seen"), _is_true(and_(reader.sees(changes), is_there), "is_seen"))
        .where(behind)
        .order_by(changes.c._change, changes.c._instance, changes.c._is_after)
        .limit(_BATCH)
    )
    found = [dict(row._mapping) for row in connection.execute(query)]
    if len(found) == _BATCH and not found[-1]["_is_after"]:
        found.pop()  # its other image may be the next
    return found


def _tell(
    connection: Connection, view: View, place: Place, images: list[dict[str, Any]], had: dict[bytes, bool]
) -> Iterator[Told]:
    before = next((image for image in images if not image["_is_after"]), None)
    after = next((image for image in images if image["_is_after"]), None)
    instance = place.instance
    had_it = had.get(instance, before is not None and bool(before["was_seen"]))
    had[instance] = after is not None and bool(after["is_seen"])
    if after is not None and after["is_seen"]:
        (row,) = decode_rows(connection, view, [after])
        yield Told(place, [(row, had_it)])
    elif had_it:
        yield Told(place, [], [Hash(instance)])


def _earlier(
    connection: Connection, reader: IdentityId | None, after: Offset
) -> tuple[Earlier, tuple[frozenset[bytes], frozenset[bytes]]]:
    """What shares and relations were at an offset, and the instances and identities where that has changed."""
    if reader is None:
        return Earlier(), (frozenset(), frozenset())
    query = (
        select(seen)
        .where(seen.c.reader == reader, tuple_(seen.c.xid, seen.c.id) > tuple_(*after))
        .where(is_settled(connection, seen.c.xid))
        .order_by(seen.c.xid.desc(), seen.c.id.desc())
        .limit(10 * MAX_AT_ONCE + 1)
    )
    found = connection.execute(query).all()
    if len(found) > 10 * MAX_AT_ONCE:
        raise TooFarBehind
    # The first thing that happened tells what was before: the rows come newest first.
    instances = {bytes(row.instance): row.is_gained for row in found if row.instance is not None}
    followees = {bytes(row.followee): row.is_gained for row in found if row.followee is not None}
    earlier = Earlier(
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
    before: Place,
    now: Place,
    reader: Reader,
    earlier: Earlier,
    moved: tuple[Collection[bytes], Collection[bytes]],
) -> Told:
    """Rows that did not change themselves and came into sight, or went out of it."""
    rows, changes = view.table(), change_table(view.id, view.generation, view.fields)
    instances, followees = moved
    choices = [and_(rows.c._expires > before.at, rows.c._expires <= now.at)]
    choices += [rows.c._instance.in_(some) for some in in_lists(instances)]
    if followees:
        choices.append(and_(rows.c._author.in_(keys_of_identities(followees)), has_mode(rows, "relations")))
    was_seen = visible_rows(rows, reader.identity, reader.own_keys, before.at, earlier)
    changed = exists().where(
        changes.c._instance == rows.c._instance, changes.c._change > before.settled, changes.c._change <= now.settled
    )
    sight = select(rows, _is_true(was_seen, "was_seen"), _is_true(reader.sees(rows), "is_seen")).where(
        or_(*choices), ~changed, *not_gone(view, rows)
    )
    both = sight.subquery()
    query = select(both).where(both.c.was_seen != both.c.is_seen).order_by(both.c._instance).limit(MAX_AT_ONCE + 1)
    found = [dict(row._mapping) for row in connection.execute(query)]
    if len(found) > MAX_AT_ONCE:
        raise TooFarBehind
    shown = decode_rows(connection, view, [row for row in found if row["is_seen"]])
    return Told(now, [(row, False) for row in shown], [Hash(row["_instance"]) for row in found if not row["is_seen"]])
