"""What became of messages, for whoever has the database: all of it (docs/protocol.md section 6).

What a reader may know of it is in `outcome_reading`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, func, literal, null, select, text, union_all

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import MEANINGS, Outcome, OutcomeCode
from inkgrove.store.view_store import find_view
from inkgrove.store.view_tables import NOT_APPLIED, outcomes_of_none


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


def read_outcomes(connection: Connection, view: int | None, limit: int, only: str | None = None) -> list[OutcomeRow]:
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


def count_outcomes(connection: Connection, view: int | None) -> dict[str, int]:
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
