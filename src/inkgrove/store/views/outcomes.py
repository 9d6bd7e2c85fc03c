"""What became of messages, as far as a reader may know it (docs/protocol.md sections 6 and 8).

Of their own messages everybody knows all; of another's only where they see the row that the message belongs to. A row
stands for the outcome of its create, which was applied.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    text,
    tuple_,
    union_all,
)

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.messages.outcomes import MEANINGS, Outcome, OutcomeCode
from inkgrove.store.db.log_tables import entries
from inkgrove.store.views.access import Reader, visible_rows
from inkgrove.store.views.catalog import View, find_view
from inkgrove.store.views.tables import NOT_APPLIED, node_table, outcomes_of_none

_entries = node_table(entries)


class OutcomeCursor(NamedTuple):
    """Where a page ends: the log by the store's own number, the sequence number and hash of its last message."""

    log: int
    seq_num: int
    hash: bytes


class VisibleOutcome(NamedTuple):
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
    def place(self) -> OutcomeCursor:
        """Where it stands among the others."""
        return OutcomeCursor(self.log, self.seq_num, self.hash)


def read_visible_outcomes(
    connection: Connection,
    view: View,
    reader: Reader | None,
    *,
    only: str | None,
    after: OutcomeCursor | None,
    limit: int,
) -> list[VisibleOutcome]:
    """What became of the messages of a view, log by log; without a reader, of all."""
    found: list[Any] = []
    for query in _queries(view, reader, only):
        columns = list(query.selected_columns)
        order = columns[:3]
        # Each is found by its index; together they are no more than two pages.
        page = query if after is None else query.where(tuple_(*order) > tuple_(*after))
        found += connection.execute(page.order_by(*order).limit(limit)).all()
    found.sort(key=lambda row: (row[0], row[1], bytes(row[2])))
    return [VisibleOutcome._make([*row[:7], row[7] or MEANINGS.get(row[6], "")]) for row in found[:limit]]


def count_visible_outcomes(connection: Connection, view: View, reader: Reader | None) -> dict[str, int]:
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
        made = made.where(or_(is_own, and_(*visible_rows(rows, view.cascading, reader))))
    return [ruled, made]


def _known(view: View, reader: Reader | None) -> list[ColumnElement[bool]]:
    if reader is None:
        return []
    outcomes, rows = view.outcomes(), view.table()
    is_seen = exists().where(
        rows.c._log == outcomes.c.log,
        _entries.c.hash == outcomes.c.hash,
        rows.c._seq_num == _entries.c.create_seq,
        *visible_rows(rows, view.cascading, reader),
    )
    return [or_(outcomes.c.author.in_(sorted(reader.own_keys)), is_seen)]


# What became of messages, for whoever has the database: all of it (docs/protocol.md section 6).
#
# What a reader may know of it is in `outcome_reading`.


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What became of a message."""

    author: PublicKey
    log_id: int
    seq_num: int
    hash: Hash
    outcome: str
    code: str
    reason: str


def read_all_outcomes(
    connection: Connection, view: int | None, limit: int, only: str | None = None
) -> list[OutcomeRow]:
    """What became of the messages of a view, log by log; None for those of no schema."""
    selects: list[Select[Any]] = []
    for table, is_rows in _tables_of_outcomes(connection, view):
        if is_rows:
            if only not in (None, Outcome.APPLIED.value):
                continue
            place = (table.c._log.label("log"), table.c._seq_num.label("seq_num"), table.c._instance.label("hash"))
            applied = (literal(Outcome.APPLIED.value), literal(OutcomeCode.APPLIED.code), null())
            selects.append(select(*place, table.c._author, table.c._log_id, *applied))
            continue
        query = select(table)
        if only is not None:
            query = query.where(table.c.outcome == only)
        if only not in (None, Outcome.APPLIED.value):
            query = query.where(text(NOT_APPLIED))  # lets the database use the small index
        selects.append(query)
    if not selects:
        return []
    both = union_all(*selects) if len(selects) > 1 else selects[0]
    found = connection.execute(both.order_by(text("log"), text("seq_num"), text("hash")).limit(limit))
    return [
        OutcomeRow(
            PublicKey(author), log_id, seq_num, Hash(entry_hash), outcome, code, reason or MEANINGS.get(code, "")
        )
        for _, seq_num, entry_hash, author, log_id, outcome, code, reason in found
    ]


def count_all_outcomes(connection: Connection, view: int | None) -> dict[str, int]:
    """How many messages of a view had each outcome."""
    counts: Counter[str] = Counter()
    for table, is_rows in _tables_of_outcomes(connection, view):
        if is_rows:
            counts[Outcome.APPLIED.value] += connection.scalar(select(func.count()).select_from(table)) or 0
            continue
        for outcome, count in connection.execute(select(table.c.outcome, func.count()).group_by(table.c.outcome)):
            counts[outcome] += count
    return {outcome: count for outcome, count in counts.items() if count}


def _tables_of_outcomes(connection: Connection, number: int | None) -> list[tuple[Table, bool]]:
    """Where outcomes are found, each with whether it is the rows, which are the outcomes of their creates."""
    if number is None:
        return [(outcomes_of_none, False)]
    view = find_view(connection, number)
    if view is None or not view.is_built:
        return []
    return [(view.outcomes(), False), (view.table(), True)]
