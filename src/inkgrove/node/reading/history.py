"""The history of an instance, its proof, and the outcomes of messages (docs/protocol.md sections 2, 5, 6 and 8).

All is read from the log store. Who may see the row as it is now may see its history too.
"""

from dataclasses import dataclass
from typing import Any, Final

from inkgrove.core import Hash, union_of_pools
from inkgrove.messages import Delete, InstanceMessage, Outcome, Proof, Unset, decode_if_valid
from inkgrove.node.errors import BadCursor, PastTooLong, ViewError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.reading.query import find_row, show_instance
from inkgrove.node.reading.schemas import resolve_view_on
from inkgrove.node.runtime.node import Node
from inkgrove.schema import LogContext, LogFold, LogMessage, Ruling, ViewDefinition, fold_log
from inkgrove.store.db import Connection
from inkgrove.store.logs import (
    InstanceKey,
    estimate_history_bytes,
    find_log,
    messages_of,
    read_counted_payloads,
    read_valid_entries,
)
from inkgrove.store.views import (
    OutcomeCursor,
    Owner,
    View,
    ViewRow,
    VisibleOutcome,
    count_visible_outcomes,
    drop_lost_elements,
    owners_on,
    read_views,
    read_visible_outcomes,
    reader_on,
)


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message of an instance, with its outcome."""

    seq_num: int
    hash: Hash
    message: InstanceMessage | None
    """None if it is malformed or its payload is not held."""
    ruling: Ruling | None


def show_instance_at(node: Node, caller: Caller, instance: Hash, seq_num: int) -> tuple[View, ViewRow, Owner]:
    """Return an instance as it was after an entry of its log, at the newest version of its schema."""

    def work(connection: Connection) -> tuple[View, ViewRow, Owner]:
        view, row = find_row(node, connection, caller, instance)
        messages = [item for item in _messages(node, row) if item.seq_num <= seq_num]
        folded, definition = _fold(node, connection, view, row, messages)
        fold = next((item for item in folded.instances if item.instance == row.instance), None)
        if fold is None or fold.row is None:
            raise ViewError("view.unknown-instance", f"the instance was not there yet at entry {seq_num} of its log")
        names = [field.name for field in definition.fields]
        then = ViewRow(
            row.instance,
            row.author,
            row.log_id,
            row.seq_num,
            fold.row.last_seq_num,
            fold.row.last_hash,
            fold.row.access,
            fold.row.expires,
            fold.row.copied_from,
            dict(zip(names, fold.row.field_seq_nums, strict=True)),
            dict(zip(names, fold.row.values, strict=True)),
        )
        drop_lost_elements(connection, view, [then], {field.name: field.type for field in definition.fields})
        return view, then, owners_on(connection, [row.author])[row.author]

    return node.views.database.read(work)


def read_history(node: Node, caller: Caller, instance: Hash) -> list[HistoryMessage]:
    """Return every message of an instance in the order of its log; raises `PastTooLong` if they are too many."""

    def work(connection: Connection) -> list[HistoryMessage]:
        view, row = find_row(node, connection, caller, instance)
        messages = _messages(node, row)
        folded, _ = _fold(node, connection, view, row, messages)
        rulings = {name: ruling for name, (_, ruling) in folded.rulings.items()}
        return [HistoryMessage(item.seq_num, item.hash, _decode(item), rulings.get(item.hash)) for item in messages]

    return node.views.database.read(work)


def check_history_size(node: Node, size: int) -> None:
    """Raise `PastTooLong` if so many bytes are more than is read for one answer."""
    limit = node.settings.max_past_bytes
    if size > limit:
        raise PastTooLong(f"the past of this instance is longer than the {limit:,} bytes that are read", limit=limit)


def _messages(node: Node, row: ViewRow) -> list[LogMessage]:
    def work(connection: Connection) -> list[LogMessage]:
        log = find_log(connection, row.author, row.log_id)
        if log is None:
            return []
        key = InstanceKey(log.id, row.seq_num)
        check_history_size(node, estimate_history_bytes(connection, key))
        (messages,) = messages_of(connection, [key]).values()
        return messages

    return node.database.read(work)


def _fold(
    node: Node, connection: Connection, view: View, row: ViewRow, messages: list[LogMessage]
) -> tuple[LogFold, ViewDefinition]:
    registered = read_views(connection)
    definition = ViewDefinition(node.schemas.read(view.schema_id), registered)
    # The row is there, so its log is one of instances, and all its messages are in the list.
    folded = fold_log(
        row.log_id,
        messages,
        lambda schema_id: definition if schema_id == view.schema_id else None,
        lambda _hash: False,
        LogContext(None, view.schema_id),
    )
    return folded, definition


def _decode(item: LogMessage) -> InstanceMessage | None:
    message = decode_if_valid(item.payload)
    return message if isinstance(message, InstanceMessage) else None


def written_fields(message: InstanceMessage) -> dict[str, Any]:
    """Return the fields that a message writes, by their names in its own version."""
    if isinstance(message, Delete) or isinstance(message.fields, Unset):
        return {}
    return dict(message.fields)


# Proofs

_ENTRY_BYTES: Final = 350
"""About the size of an entry."""


def prove_instance(node: Node, caller: Caller, instance: Hash) -> Proof:
    """Return the entries of an instance with payloads, and those that prove them without, as far as they are held.

    Raises `PastTooLong` if they are too many.
    """
    _, row, _ = show_instance(node, caller, instance)
    return node.database.read(lambda connection: _prove(node, connection, row))


def _prove(node: Node, connection: Connection, row: ViewRow) -> Proof:
    log = find_log(connection, row.author, row.log_id)
    assert log is not None, "a row has a log"
    check_history_size(node, estimate_history_bytes(connection, InstanceKey(log.id, row.seq_num)))
    payloads = read_counted_payloads(connection, log, row.seq_num)
    pinned = [log.pinned_seq] if log.pinned_seq is not None else []
    pool = union_of_pools([*payloads, *pinned], log.pinned_seq or log.height)
    check_history_size(node, sum(map(len, payloads.values())) + _ENTRY_BYTES * len(pool))
    encoded = read_valid_entries(connection, log, pool)
    return Proof(row.instance, [(encoded[n], payloads.get(n)) for n in pool if n in encoded])


# Outcomes

_OUTCOME: Final = "outcome"


def list_outcomes(
    node: Node, caller: Caller, name: str, *, only: Outcome | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """Return a page of outcomes and the count of each; an administrator sees those of all messages."""
    after = None if cursor is None else _parse(node, cursor)

    def work(connection: Connection) -> dict[str, Any]:
        view = resolve_view_on(connection, name)
        reader = reader_on(connection, caller.read_as(view.schema_id), node.clock())
        known = None if caller.sees_all else reader
        wanted = None if only is None else only.value
        with node.find_query_limit(caller.identity).on(connection):
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
    return node.vault.encrypt_text(f"{_OUTCOME} {row.log:020d} {row.seq_num:020d} {row.hash.hex()}")


def _parse(node: Node, cursor: str) -> OutcomeCursor:
    parts = (node.vault.decrypt_text(cursor) or "").split(" ")
    if len(parts) != 4 or parts[0] != _OUTCOME:
        raise BadCursor("the cursor is not one of a page of outcomes")
    return OutcomeCursor(int(parts[1]), int(parts[2]), bytes.fromhex(parts[3]))
