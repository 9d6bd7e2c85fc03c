"""What became of messages, as far as a reader may know it (docs/protocol.md sections 6 and 8).

Of their own messages everybody knows all; of another's only where they see the row that the message belongs to. A row
stands for the outcome of its create, which was applied.
"""

from collections import Counter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    Select,
    and_,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
)

from inkgrove.messages import MEANINGS, Outcome, OutcomeCode
from inkgrove.store.query import not_gone
from inkgrove.store.tables import entries
from inkgrove.store.view_store import View
from inkgrove.store.visibility import Reader

_entries = entries.to_metadata(MetaData(schema="node"))


class Place(NamedTuple):
    """Where a page ends: the log by the store's own number, the sequence number and hash of its last message."""

    log: int
    seq_num: int
    hash: bytes


class KnownOutcome(NamedTuple):
    """What became of a message."""

    log: int
    seq_num: int
    hash: bytes
    author: bytes
    log_id: int
    outcome: str
    code: str
    reason: str

    @property
    def place(self) -> Place:
        """Where it stands among the others."""
        return Place(self.log, self.seq_num, self.hash)


def read_known_outcomes(
    connection: Connection, view: View, reader: Reader | None, *, only: str | None, after: Place | None, limit: int
) -> list[KnownOutcome]:
    """What became of the messages of a view, log by log; without a reader, of all."""
    found: list[Any] = []
    for query in _queries(view, reader, only):
        columns = list(query.selected_columns)
        order = columns[:3]
        # Each is found by its index; together they are no more than two pages.
        page = query if after is None else query.where(tuple_(*order) > tuple_(*after))
        found += connection.execute(page.order_by(*order).limit(limit)).all()
    found.sort(key=lambda row: (row[0], row[1], bytes(row[2])))
    return [KnownOutcome._make([*row[:7], row[7] or MEANINGS.get(row[6], "")]) for row in found[:limit]]


def count_known_outcomes(connection: Connection, view: View, reader: Reader | None) -> dict[str, int]:
    """How many messages had each outcome, as far as the reader may know them."""
    counts: Counter[str] = Counter()
    for query in _queries(view, reader, None):
        some = query.subquery()
        for outcome, count in connection.execute(select(some.c.outcome, func.count()).group_by(some.c.outcome)):
            counts[outcome] += count
    return dict(counts)


def _queries(view: View, reader: Reader | None, only: str | None) -> list[Select[Any]]:
    if not view.is_built:
        return []
    outcomes, rows = view.outcomes(), view.table()
    ruled = select(outcomes).where(*_known(view, reader))
    if only is not None:
        ruled = ruled.where(outcomes.c.outcome == only)
    if only not in (None, Outcome.APPLIED.value):
        return [ruled]
    applied = (literal(Outcome.APPLIED.value).label("outcome"), literal(OutcomeCode.APPLIED.code), null())
    place = (rows.c._log, rows.c._seq_num, rows.c._instance, rows.c._author, rows.c._log_id)
    made = select(*place, *applied)
    if reader is not None:
        is_own = rows.c._author.in_(sorted(reader.own_keys))
        made = made.where(or_(is_own, and_(reader.sees(rows), *not_gone(view, rows))))
    return [ruled, made]


def _known(view: View, reader: Reader | None) -> list[ColumnElement[bool]]:
    if reader is None:
        return []
    outcomes, rows = view.outcomes(), view.table()
    is_seen = exists().where(
        rows.c._log == outcomes.c.log,
        _entries.c.hash == outcomes.c.hash,
        rows.c._seq_num == _entries.c.create_seq,
        reader.sees(rows),
        *not_gone(view, rows),
    )
    return [or_(outcomes.c.author.in_(sorted(reader.own_keys)), is_seen)]
