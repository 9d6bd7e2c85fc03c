"""What became of messages, as far as a caller may know it (docs/protocol.md sections 6 and 8)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from sqlalchemy import Connection

from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages.outcomes import Outcome
from inkgrove.node.caller import Caller
from inkgrove.node.errors import BadCursor
from inkgrove.node.node import Node
from inkgrove.node.schemas import find_view_on
from inkgrove.store.outcome_reading import KnownOutcome, Place, count_known_outcomes, read_known_outcomes
from inkgrove.store.visibility import reader_on


def read_outcomes(
    node: Node, caller: Caller, name: str, *, only: Outcome | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """A page of outcomes, with how many there are of each; an administrator knows those of all messages."""
    after = None if cursor is None else _parse(cursor)
    knows_all = caller.is_administrator and caller.grant is None

    def work(connection: Connection) -> dict[str, Any]:
        view = find_view_on(connection, name)
        reader = reader_on(connection, caller.reader_of(view.schema_id), node.clock())
        known = None if knows_all else reader
        wanted = None if only is None else only.value
        found = read_known_outcomes(connection, view, known, only=wanted, after=after, limit=limit + 1)
        return {
            "outcomes": [_document(row) for row in found[:limit]],
            "counts": count_known_outcomes(connection, view, known),
            "cursor": _render(found[limit - 1]) if len(found) > limit else None,
        }

    return node.views.database.read(work)


def _document(row: KnownOutcome) -> dict[str, Any]:
    return {
        "author": row.author.hex(),
        "log_id": row.log_id,
        "seq_num": row.seq_num,
        "hash": row.hash.hex(),
        "outcome": row.outcome,
        "code": row.code,
        "reason": row.reason,
    }


def _render(row: KnownOutcome) -> str:
    place = [row.log, row.seq_num, row.hash.hex()]
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


def _parse(cursor: str) -> Place:
    try:
        log, seq_num, entry_hash = json.loads(urlsafe_b64decode(cursor))
        place = Place(log, seq_num, bytes.fromhex(entry_hash))
    except (ValueError, TypeError, RecursionError):
        raise BadCursor("the cursor is not one of a page of outcomes") from None
    if not all(type(number) is int and 0 <= number <= MAX_STORED_INTEGER for number in place[:2]):
        raise BadCursor("the cursor is not one of a page of outcomes")
    return place
