"""Outcomes of messages, as far as a reader may know them (docs/protocol.md sections 6 and 8).

Readers know all outcomes of their own messages; of others' only where they see the row that the message belongs to. A
row itself is the outcome of its create, which was applied.
"""

from collections import Counter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, exists, func, literal, null, or_, select, text, tuple_

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import MEANINGS, Outcome, OutcomeCode
from inkgrove.store.db.log_tables import entries
from inkgrove.store.views.access import Reader, visible_rows
from inkgrove.store.views.catalog import View
from inkgrove.store.views.tables import NOT_APPLIED, node_table, outcomes_of_none

_entries = node_table(entries)


class OutcomeCursor(NamedTuple):
    """Where a page ends: the log by the store's own number, the sequence number and hash of its last message."""

    log: int
    seq_num: int
    hash: bytes


class VisibleOutcome(NamedTuple):
    """The outcome of a message."""

    log: int
    seq_num: int
    hash: Hash
    author: PublicKey
    log_id: int
    outcome: str
    code: str
    reason: str


def read_visible_outcomes(
    connection: Connection,
    view: View | None,
    reader: Reader | None = None,
    *,
    only: str | None = None,
    after: OutcomeCursor | None = None,
    limit: int,
) -> list[VisibleOutcome]:
    """The outcomes of the messages of a view, log by log; None is for messages of no schema.

    Without a reader those of all messages; `only` chooses one outcome.
    """
    found: list[Any] = []
    for query in _select_outcomes(view, reader, only):
        order = list(query.selected_columns)[:3]
        # Each is found by its index; together they are no more than two pages.
        page = query if after is None else query.where(tuple_(*order) > tuple_(*after))
        found += connection.execute(page.order_by(*order).limit(limit)).all()
    found.sort(key=lambda row: (row[0], row[1], bytes(row[2])))
    return [
        VisibleOutcome(
            log, seq_num, Hash(entry_hash), PublicKey(author), log_id, outcome, code, reason or MEANINGS.get(code, "")
        )
        for log, seq_num, entry_hash, author, log_id, outcome, code, reason in found[:limit]
    ]


def count_visible_outcomes(connection: Connection, view: View | None, reader: Reader | None = None) -> dict[str, int]:
    """How many messages had each outcome, of those that `read_visible_outcomes` gives."""
    counts: Counter[str] = Counter()
    queries = [query.subquery() for query in _select_outcomes(view, reader, None)]
    for outcomes in queries[:1]:
        for outcome, count in connection.execute(select(outcomes.c.outcome, func.count()).group_by(outcomes.c.outcome)):
            counts[outcome] += count
    for creates in queries[1:]:
        counts[Outcome.APPLIED.value] += connection.scalar(select(func.count()).select_from(creates)) or 0
    return {outcome: count for outcome, count in counts.items() if count}


def _select_outcomes(view: View | None, reader: Reader | None, only: str | None) -> list[Select[Any]]:
    if view is not None and not view.is_built:
        return []
    outcomes = outcomes_of_none if view is None else view.outcomes()
    query = select(outcomes)
    if only is not None:
        query = query.where(outcomes.c.outcome == only)
    has_applied = only in (None, Outcome.APPLIED.value)
    if not has_applied:
        query = query.where(text(NOT_APPLIED))  # lets the database use the small index
    if view is None:
        return [query]
    rows = view.table()
    applied = (literal(Outcome.APPLIED.value).label("outcome"), literal(OutcomeCode.APPLIED.code), null())
    creates = select(rows.c._log, rows.c._seq_num, rows.c._instance, rows.c._author, rows.c._log_id, *applied)
    if reader is not None:
        is_visible = visible_rows(rows, view.cascading, reader)
        own_keys = sorted(reader.own_keys)
        is_of_row = (
            rows.c._log == outcomes.c.log,
            _entries.c.hash == outcomes.c.hash,
            rows.c._seq_num == _entries.c.create_seq,
        )
        query = query.where(or_(outcomes.c.author.in_(own_keys), exists().where(*is_of_row, *is_visible)))
        creates = creates.where(or_(rows.c._author.in_(own_keys), and_(*is_visible)))
    return [query, creates] if has_applied else [query]
