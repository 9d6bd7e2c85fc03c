"""The change feed of a view: each change of a row that the caller may see, as a JSON Patch (RFC 6902).

docs/protocol.md section 8. The document that is patched is `{"rows": {<instance>: <row>, ...}}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inkgrove.core import PublicKey
from inkgrove.messages import SchemaId
from inkgrove.node.errors import UnknownView
from inkgrove.node.identity.caller import Caller
from inkgrove.node.reading.query import row_document
from inkgrove.node.reading.schemas import resolve_view_on
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import Offset
from inkgrove.store.views import (
    STREAM,
    ChangeCursor,
    ChangesExpired,
    Owner,
    VisibleChange,
    find_newest_cursor,
    next_expiry,
    owners_on,
    parse_change_cursor,
    read_changes_after,
    read_newest_changes,
    read_progress,
    reader_on,
    view_of,
)


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """An event of the stream: a patch, or a reset, after which the view is to be read again."""

    name: Literal["change", "reset"]
    id: str
    patch: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ViewSubscription:
    """A caller that follows a view, and how far they have come."""

    schema_id: SchemaId
    cursor: ChangeCursor | None
    """None: the event id that they gave is not known here."""
    expiry: int | None = None
    """When the next row expires."""


@dataclass(frozen=True, slots=True)
class NewestChanges:
    """How far all views have come: read once for everybody who waits."""

    progress: Offset
    changes: dict[int, tuple[int, int]]
    """Generation and newest change of each view."""
    seen: Offset
    """How far shares and relations have come."""


def read_newest(node: Node) -> NewestChanges:
    """Return how far the views have come."""

    def work(connection: Connection) -> NewestChanges:
        changes, seen = read_newest_changes(connection)
        return NewestChanges(read_progress(connection, STREAM)[1], changes, seen)

    return node.views.database.read(work)


def subscribe_to_view(node: Node, caller: Caller, name: str, last_event_id: str | None) -> ViewSubscription:
    """Subscribe to a view, from now on or from the last event that the caller has seen."""

    def work(connection: Connection) -> ViewSubscription:
        view = resolve_view_on(connection, name)
        caller.read_as(view.schema_id)
        if last_event_id is None:
            return ViewSubscription(view.schema_id, find_newest_cursor(connection, view, node.clock()))
        text = node.vault.decrypt_text(last_event_id)
        return ViewSubscription(view.schema_id, None if text is None else parse_change_cursor(text))

    return node.views.database.read(work)


def read_changes(node: Node, caller: Caller, followed: ViewSubscription) -> tuple[list[ChangeEvent], ViewSubscription]:
    """Return the events since the cursor of a subscription, and the subscription behind them."""

    def work(connection: Connection) -> tuple[list[ChangeEvent], ViewSubscription]:
        view = view_of(connection, followed.schema_id)
        if view is None:
            raise UnknownView(f"the view {followed.schema_id} is no more on this node")
        reader = reader_on(connection, caller.may_read(view.schema_id), node.clock())
        expiry = next_expiry(connection, view, reader.now) if view.is_built else None
        cursor = followed.cursor
        if cursor is not None and not view.is_built and cursor.generation == 0:
            return [], followed
        try:
            if cursor is None:
                raise ChangesExpired
            changes = list(read_changes_after(connection, view, cursor, reader))
        except ChangesExpired:
            cursor = find_newest_cursor(connection, view, reader.now)
            return [ChangeEvent("reset", event_id(node, cursor), [])], ViewSubscription(view.schema_id, cursor, expiry)
        last = changes[-1].cursor
        owners = owners_on(connection, {row.author for item in changes for row, _ in item.shown})
        patches = [(item.cursor, patch) for item in changes if (patch := _patch(item, owners))]
        # The last event has the id of the last change, which may have been empty.
        cursors = [*(at for at, _ in patches[:-1]), last]
        events = [
            ChangeEvent("change", event_id(node, at), patch) for at, (_, patch) in zip(cursors, patches, strict=False)
        ]
        if events:
            caller.record_use("read", view.schema_id)
        return events, ViewSubscription(view.schema_id, last, expiry)

    return node.views.database.read(work)


def event_id(node: Node, cursor: ChangeCursor) -> str:
    """Return a cursor as clients hand it back; encrypted, as its numbers tell how much happens that they do not see."""
    return node.vault.encrypt_text(str(cursor))


def _patch(change: VisibleChange, owners: Mapping[PublicKey, Owner]) -> list[dict[str, Any]]:
    gone = [{"op": "remove", "path": f"/rows/{instance.hex()}"} for instance in change.gone]
    shown = [
        {
            "op": "replace" if had_it else "add",
            "path": f"/rows/{row.instance.hex()}",
            "value": row_document(row, owners[row.author]),
        }
        for row, had_it in change.shown
    ]
    return [*gone, *shown]
