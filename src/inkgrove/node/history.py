"""The past of an instance, folded from its messages in the log store (docs/protocol.md sections 5 and 6).

Who may see the row as it is today may see its past too.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.messages.instance import Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.value_readers import Unset
from inkgrove.node.caller import Caller
from inkgrove.node.errors import PastTooLong, ViewError
from inkgrove.node.node import Node
from inkgrove.node.query import find_row, schemas_of
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.fold import Ruling
from inkgrove.schema.log_fold import LogContext, LogFold, LogMessage, fold_log
from inkgrove.store.logs import InstanceKey, estimate_history_bytes, find_log, messages_of
from inkgrove.store.views import Owner, View, ViewRow, drop_lost_elements, owners_on, read_views


@dataclass(frozen=True, slots=True)
class Event:
    """A message of an instance and what became of it."""

    seq_num: int
    hash: Hash
    message: InstanceMessage | None
    """None if it is malformed or its payload is not held."""
    ruling: Ruling | None


def show_instance_at(node: Node, caller: Caller, instance: Hash, seq_num: int) -> tuple[View, ViewRow, Owner]:
    """An instance as it was after an entry of its log, at the newest version of its schema."""

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


def read_history(node: Node, caller: Caller, instance: Hash) -> list[Event]:
    """Every message of an instance in the order of its log; raises `PastTooLong` if they are too many."""

    def work(connection: Connection) -> list[Event]:
        view, row = find_row(node, connection, caller, instance)
        messages = _messages(node, row)
        folded, _ = _fold(node, connection, view, row, messages)
        rulings = {name: ruling for name, (_, ruling) in folded.rulings.items()}
        return [Event(item.seq_num, item.hash, _decode(item), rulings.get(item.hash)) for item in messages]

    return node.views.database.read(work)


def check_past(node: Node, weight: int) -> None:
    """Refuse what would have to be read as a whole and is too long for that."""
    limit = node.settings.max_past_bytes
    if weight > limit:
        raise PastTooLong(f"the past of this instance is longer than the {limit:,} bytes that are read", limit=limit)


def _messages(node: Node, row: ViewRow) -> list[LogMessage]:
    def work(connection: Connection) -> list[LogMessage]:
        log = find_log(connection, row.author, row.log_id)
        if log is None:
            return []
        key = InstanceKey(log.id, row.seq_num)
        check_past(node, estimate_history_bytes(connection, key))
        (messages,) = messages_of(connection, [key]).values()
        return messages

    return node.database.read(work)


def _fold(
    node: Node, connection: Connection, view: View, row: ViewRow, messages: list[LogMessage]
) -> tuple[LogFold, ViewDefinition]:
    registered = read_views(connection)
    definition = ViewDefinition(schemas_of(node).read(view.schema_id), registered)
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
    if item.payload is None:
        return None
    try:
        message = decode_message(item.payload)
    except InkgroveError:
        return None
    return message if isinstance(message, Create | Update | Delete) else None


def written_fields(message: InstanceMessage) -> dict[str, Any]:
    """What a message says about fields, in the words of its own version."""
    if isinstance(message, Delete) or isinstance(message.fields, Unset):
        return {}
    return dict(message.fields)
