"""Following ingests from a saved offset: each page of what happened is handled once, in order.

A follower has a table of one row with its offset (`id`, `xid`, `position`). The row is locked while a page is handled,
and the offset moves in the transaction that writes the results: several processes may follow under one name, and a
crash neither skips a page nor handles it twice. docs/protocol.md section 6 has the order of ingests. The pipeline keeps
the offset of its stream with the views it merges into (`store/views/catalog`).
"""

from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, Table, select, update

from inkgrove.store.db.connection import insert_new
from inkgrove.store.logs.positions import START, Offset

PAGE_SIZE: Final = 5_000
"""How many ingests are handled in one transaction."""
_Page = TypeVar("_Page")
_Result = TypeVar("_Result")


def follow(
    connection: Connection,
    progress: Table,
    read: Callable[[Connection, Offset, int], tuple[_Page, Offset]],
    handle: Callable[[_Page], _Result],
    limit: int = PAGE_SIZE,
) -> _Result | None:
    """Handle the next page of ingests and save the offset behind it; gives the result of `handle`, or None at the end.

    `read` gives the page after an offset, of at most so many ingests, and the offset behind it: `read_ingests` or
    `read_range`. What it gives for an unchanged offset is not handled.
    """
    before = _lock_offset(connection, progress)
    page, end = read(connection, before, limit)
    if end == before:
        return None
    result = handle(page)
    connection.execute(update(progress).values(xid=end.xid, position=end.position))
    return result


def read_offset(connection: Connection, progress: Table) -> Offset:
    """Read how far a follower has come."""
    row = connection.execute(select(progress.c.xid, progress.c.position)).first()
    return Offset(row.xid, row.position) if row is not None else START


def _lock_offset(connection: Connection, progress: Table) -> Offset:
    query = select(progress.c.xid, progress.c.position).with_for_update()
    row = connection.execute(query).first()
    if row is None:  # there is a row to lock from the very first time
        connection.execute(insert_new(connection, progress), {"id": 1, "xid": START.xid, "position": START.position})
        row = connection.execute(query).one()
    return Offset(row.xid, row.position)
