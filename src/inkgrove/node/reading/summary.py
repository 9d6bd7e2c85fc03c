"""The summary of a view, exact and cooked (docs/protocol.md section 9), and the values that defaults replace (4)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inkgrove.core import Hash, IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Create, Unset, Update, decode_if_valid
from inkgrove.node.identity.caller import Caller
from inkgrove.node.reading.schemas import resolve_view_on
from inkgrove.node.runtime.node import Node
from inkgrove.schema import MISFIT, LogMessage, Schema, carry_value, check_value
from inkgrove.store.db import PUBLIC, Connection, encode_log_key
from inkgrove.store.logs import InstanceKey, find_logs, messages_of
from inkgrove.store.rot import Summary, cooked_summary, exact_summary
from inkgrove.store.views import View, ViewRow, read_page, reader_on


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """Summaries of the rows that the caller may see, and of cooked ones that they might have seen."""

    view: View
    exact: Summary
    cooked: Summary


def summarise(node: Node, caller: Caller, name: str) -> ViewSummary:
    """Return the summary of a view, by `AUTHOR/LOG` or name."""

    def work(connection: Connection) -> tuple[View, IdentityId | None, Summary]:
        view = resolve_view_on(connection, name)
        identity = caller.read_as(view.schema_id)
        with node.find_query_limit(identity).on(connection):
            return view, identity, exact_summary(connection, view, reader_on(connection, identity, node.clock()))

    view, identity, exact = node.views.database.read(work)
    readers = [PUBLIC] if identity is None else [PUBLIC, bytes(identity)]
    cooked = node.database.read(lambda connection: cooked_summary(connection, view, readers))
    return ViewSummary(view, exact, cooked)


# Values that could not be converted by a migration, counted from the present rows and the messages of their values

MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """How many messages have a value that a default replaces, by the version that could not convert it."""

    by_version: Mapping[int, int]
    rows: int
    """How many rows were read."""
    is_all: bool
    """Whether there are no more rows."""


def count_fallbacks(node: Node, caller: Caller, name: str) -> Fallbacks:
    """Count in the newest rows of a view: an administrator in all, others in those that they see."""

    def work(connection: Connection) -> Fallbacks:
        view = resolve_view_on(connection, name)
        reader = reader_on(connection, caller.read_as(view.schema_id), node.clock())
        sort = [("_last_seq_num", True)]
        with node.find_query_limit(caller.identity).on(connection):
            page = read_page(connection, view, sort=sort, limit=MAX_ROWS, reader=None if caller.sees_all else reader)
        schema = node.schemas.read(view.schema_id)
        if not view.version or view.version > len(schema.versions):
            return Fallbacks({}, 0, True)
        path = schema.live_path(view.version)
        messages = node.database.read(lambda logs: _messages(logs, page.rows))
        counts: Counter[int] = Counter()
        for row in page.rows:
            counts.update(_versions_not_passed(schema, path, row, messages[row.instance]))
        return Fallbacks(dict(counts), len(page.rows), page.after is None)

    return node.views.database.read(work)


def _messages(connection: Connection, rows: list[ViewRow]) -> dict[Hash, list[LogMessage]]:
    logs = find_logs(connection, {encode_log_key(row.author, row.log_id) for row in rows})
    keys = {row.instance: InstanceKey(logs[encode_log_key(row.author, row.log_id)].id, row.seq_num) for row in rows}
    found = messages_of(connection, set(keys.values()))
    return {instance: found[key] for instance, key in keys.items()}


def _versions_not_passed(schema: Schema, path: tuple[int, ...], row: ViewRow, messages: list[LogMessage]) -> list[int]:
    """Return, for each message with a value of the row, the versions that replaced some value of it, each once."""
    shown = {field.name: field.id for field in schema.version(path[-1]).fields}
    wanted: dict[int, set[str]] = {}
    for name, seq_num in row.field_seq_nums.items():
        wanted.setdefault(seq_num, set()).add(name)
    found: list[int] = []
    for item in messages:
        names = wanted.get(item.seq_num)
        message = _decode(item) if names else None
        if names is None or message is None or isinstance(message.fields, Unset):
            continue
        ids = {shown[name] for name in names if name in shown}
        own = message.schema.version
        stops: set[int] = set()
        for field in schema.version(own).fields:
            if field.id in ids and field.name in message.fields:
                stops.update(_stops(schema, path[path.index(own) + 1 :], field.name, own, message.fields[field.name]))
        found += sorted(stops)
    return found


def _stops(schema: Schema, later: tuple[int, ...], name: str, version: int, value: object) -> list[int]:
    (field,) = (item for item in schema.version(version).fields if item.name == name)
    try:
        kept = check_value(field, value)
    except InkgroveError:
        return []
    stops = []
    for number in later:
        for update in schema.version(number).updated:
            if update.before.id == field.id:
                carried = carry_value(update.before, update.after, kept)
                if carried is MISFIT:
                    stops.append(number)
                    carried = update.default
                kept = carried
    return stops


def _decode(item: LogMessage) -> Create | Update | None:
    message = decode_if_valid(item.payload) if item.invalid_code is None else None
    return message if isinstance(message, Create | Update) else None
