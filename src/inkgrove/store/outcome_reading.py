"""What became of messages, as far as a reader may know it (docs/protocol.md sections 6 and 8).

Of their own messages everybody knows all; of another's only where they see the row that the message belongs to.
"""

from typing import Any

from sqlalchemy import ColumnElement, Connection, MetaData, exists, func, or_, select, tuple_

from inkgrove.store.query import not_gone
from inkgrove.store.tables import entries
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import outcomes
from inkgrove.store.visibility import Reader

_entries = entries.to_metadata(MetaData(schema="node"))
ORDER = (outcomes.c.author, outcomes.c.log_id, outcomes.c.seq_num, outcomes.c.hash)
Place = tuple[bytes, int, int, bytes]
"""Author, log, sequence number and hash of the last message that was shown."""


def read_known_outcomes(
    connection: Connection, view: View, reader: Reader | None, *, only: str | None, after: Place | None, limit: int
) -> list[Any]:
    """What became of the messages of a view, in the order of authors and logs; without a reader, of all."""
    query = select(outcomes).where(*_known(view, reader))
    if only is not None:
        query = query.where(outcomes.c.outcome == only)
    if after is not None:
        query = query.where(tuple_(*ORDER) > tuple_(*after))
    return list(connection.execute(query.order_by(*ORDER).limit(limit)))


def count_known_outcomes(connection: Connection, view: View, reader: Reader | None) -> dict[str, int]:
    """How many messages had each outcome, as far as the reader may know them."""
    query = select(outcomes.c.outcome, func.count()).where(*_known(view, reader)).group_by(outcomes.c.outcome)
    return {row[0]: row[1] for row in connection.execute(query)}


def _known(view: View, reader: Reader | None) -> list[ColumnElement[bool]]:
    of_view = outcomes.c.view == view.id
    if reader is None:
        return [of_view]
    own = outcomes.c.author.in_(sorted(reader.own_keys))
    if not view.is_built:
        return [of_view, own]
    rows = view.table()
    is_seen = exists().where(
        rows.c._author == outcomes.c.author,
        rows.c._log_id == outcomes.c.log_id,
        _entries.c.hash == outcomes.c.hash,
        rows.c._seq_num == _entries.c.create_seq,
        reader.sees(rows),
        *not_gone(view, rows),
    )
    return [of_view, or_(own, is_seen)]
