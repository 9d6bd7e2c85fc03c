"""What became of messages, as far as a caller may know it (docs/protocol.md sections 6 and 8)."""

from typing import Any, Final

from sqlalchemy import Connection

from inkgrove.messages.outcomes import Outcome
from inkgrove.node.caller import Caller
from inkgrove.node.errors import BadCursor
from inkgrove.node.node import Node
from inkgrove.node.schemas import find_view_on
from inkgrove.store.views import OutcomeCursor, VisibleOutcome, count_visible_outcomes, read_visible_outcomes, reader_on

_OUTCOME: Final = "outcome"


def read_outcomes(
    node: Node, caller: Caller, name: str, *, only: Outcome | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """A page of outcomes, with how many there are of each; an administrator knows those of all messages."""
    after = None if cursor is None else _parse(node, cursor)
    knows_all = caller.is_administrator and caller.grant is None

    def work(connection: Connection) -> dict[str, Any]:
        view = find_view_on(connection, name)
        reader = reader_on(connection, caller.reader_of(view.schema_id), node.clock())
        known = None if knows_all else reader
        wanted = None if only is None else only.value
        with node.limit_for(caller.identity).on(connection):
            found = read_visible_outcomes(connection, view, known, only=wanted, after=after, limit=limit + 1)
            counts = count_visible_outcomes(connection, view, known)
        return {
            "outcomes": [_document(row) for row in found[:limit]],
            "counts": counts,
            "cursor": _render(node, found[limit - 1]) if len(found) > limit else None,
        }

    return node.views.database.read(work)


def _document(row: VisibleOutcome) -> dict[str, Any]:
    return {
        "author": row.author.hex(),
        "log_id": row.log_id,
        "seq_num": row.seq_num,
        "hash": row.hash.hex(),
        "outcome": row.outcome,
        "code": row.code,
        "reason": row.reason,
    }


def _render(node: Node, row: VisibleOutcome) -> str:
    # Hidden, and as long for few logs as for many: the store's own number of a log tells how many there are.
    return node.vault.hide(f"{_OUTCOME} {row.log:020d} {row.seq_num:020d} {row.hash.hex()}")


def _parse(node: Node, cursor: str) -> OutcomeCursor:
    parts = (node.vault.reveal(cursor) or "").split(" ")
    if len(parts) != 4 or parts[0] != _OUTCOME:
        raise BadCursor("the cursor is not one of a page of outcomes")
    return OutcomeCursor(int(parts[1]), int(parts[2]), bytes.fromhex(parts[3]))
