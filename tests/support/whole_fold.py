"""Folds a whole world with `inkgrove.schema`, as the pipeline does it, to be held against the oracle."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from inkgrove.core import Hash, HeldEntry, IdentityId, PublicKey
from inkgrove.core.errors import Forked, InvalidSince
from inkgrove.messages import Create, Delete, SchemaId, SchemaMeta, decode_if_valid
from inkgrove.reference import ReferenceView
from inkgrove.reference.control import ReferenceControl, judge_control
from inkgrove.reference.logs import Log, gather_logs, without_revoked
from inkgrove.schema import End, LogFold, LogMessage, NamedEntry, ViewDefinition, fold_log, fold_schema

Comparable = dict[SchemaId | None, dict[str, Any]]


def _gather(
    held: Iterable[HeldEntry], control: ReferenceControl
) -> dict[tuple[PublicKey, int], tuple[Log, list[LogMessage]]]:
    """Which messages there are is the store's to say, not the fold's: here the oracle says it."""
    result: dict[tuple[PublicKey, int], tuple[Log, list[LogMessage]]] = {}
    for key, log in without_revoked(gather_logs(held), control.ends).items():
        payloads = {item.signed.hash: item.payload for item in log.held}
        messages = [
            LogMessage(item.seq_num, item.hash, payloads[item.hash], _invalid_code(log, item.seq_num))
            for item in log.messages
        ]
        result[key] = log, messages
    return result


def _invalid_code(log: Log, seq_num: int) -> str | None:
    if not log.is_invalid_at(seq_num):
        return None
    return Forked.code if log.forked_at is not None and seq_num >= log.forked_at else InvalidSince.code


def fold_world(held: Iterable[HeldEntry], registered: Collection[SchemaId]) -> Comparable:
    """Rows and outcomes per schema in plain form."""
    held = list(held)
    # Which keys are whose and how far they count is the node's to find out, not the fold's.
    control = judge_control(held)
    logs = _gather(held, control)
    definitions = {}
    for schema_id in registered:
        log, messages = logs.get(schema_id, (None, []))
        payloads = {m.seq_num: m.payload for m in messages if m.payload is not None and m.invalid_code is None}
        definitions[schema_id] = ViewDefinition(
            fold_schema(schema_id, payloads, log.invalid_from if log else None), registered
        )
    world = {key: messages for key, (_, messages) in logs.items()}
    folds: dict[tuple[PublicKey, int], LogFold] = {
        key: fold_log(key[1], messages, definitions.get, _OthersInMemory(key, world, control.owners))
        for key, messages in world.items()
    }
    result: Comparable = {
        schema_id: {
            "version": definition.version or None,
            "waits_for": definition.waits_for,
            "rows": {},
            "outcomes": {},
            "absent": 0,
            "lines": {},
        }
        for schema_id, definition in definitions.items()
    }
    result[None] = {"version": None, "waits_for": [], "rows": {}, "outcomes": {}, "absent": 0, "lines": {}}
    deleted: dict[SchemaId, set[Hash]] = defaultdict(set)
    for (author, log_id), fold in folds.items():
        if fold.absent and (fold.schema_id is None or fold.schema_id in definitions):
            result[fold.schema_id]["absent"] += fold.absent
        for entry_hash, (of, ruling) in fold.rulings.items():
            result[of]["outcomes"][entry_hash] = ruling.outcome, ruling.code
        for instance in fold.instances:
            if instance.is_deleted and instance.schema_id in definitions:
                deleted[instance.schema_id].add(instance.instance)
            if instance.continued_by is not None:
                result[instance.schema_id]["lines"][instance.instance] = instance.continued_by
            if instance.row is not None:
                row = instance.row
                names = [field.name for field in definitions[instance.schema_id].fields]
                result[instance.schema_id]["rows"][row.instance] = {
                    "place": (author, log_id, row.seq_num),
                    "last": (row.last_seq_num, row.last_hash),
                    "fields": dict(zip(names, row.values, strict=True)),
                    "rest": (row.access, row.expires, row.copied_from),
                }
    _cascade(result, definitions, deleted)
    follow_lines(result)
    return result


def follow_lines(views: Comparable) -> None:
    """Lead every line from the next instance to the last one."""
    for view in views.values():
        following = view["lines"]
        for instance, last in list(following.items()):
            while last in following:
                last = following[last]  # noqa: PLW2901
            view["lines"][instance] = last


class _OthersInMemory:
    """The logs of a world as the fold of one of them asks for the others."""

    def __init__(
        self,
        key: tuple[PublicKey, int],
        world: dict[tuple[PublicKey, int], list[LogMessage]],
        owners: dict[PublicKey, IdentityId],
    ) -> None:
        self._key = key
        self._entries = {
            item.hash: (key, item) for key, messages in world.items() for item in messages if item.invalid_code is None
        }
        self._ends: dict[Hash, list[End]] = defaultdict(list)
        own = owners.get(key[0])
        self._same = {key[0]} | {author for author, owner in owners.items() if owner == own}
        self._with_instances = {key for key, messages in world.items() if key[1] != 0 and not _is_schema_log(messages)}
        for (author, log_id), messages in world.items():
            if author not in self._same or (author, log_id) not in self._with_instances:
                continue
            for item in messages:
                message = decode_if_valid(item.payload)
                is_valid = item.invalid_code is None
                if isinstance(message, Create) and message.continues is not None and is_valid:
                    self._ends[message.continues].append(End(item.hash, message))
                elif isinstance(message, Delete) and (author, log_id) != key and isinstance(message.instance, bytes):
                    self._ends[message.instance].append(End(item.hash, message))

    def find_entry(self, entry_hash: Hash) -> NamedEntry | None:
        if entry_hash not in self._entries:
            return None
        key, item = self._entries[entry_hash]
        may_be_ended = key[0] in self._same and key in self._with_instances
        return NamedEntry(may_be_ended, item.payload is not None, decode_if_valid(item.payload))

    def ends_of(self, instance: Hash) -> list[End]:
        return self._ends[instance]


def _is_schema_log(messages: list[LogMessage]) -> bool:
    first = messages[0] if messages and messages[0].seq_num == 1 and messages[0].invalid_code is None else None
    return first is not None and isinstance(decode_if_valid(first.payload), SchemaMeta)


def _cascade(
    result: Comparable, definitions: dict[SchemaId, ViewDefinition], deleted: dict[SchemaId, set[Hash]]
) -> None:
    is_settled = False
    while not is_settled:
        is_settled = True
        for schema_id in definitions:
            for instance, following in result[schema_id]["lines"].items():
                if following in deleted[schema_id] and instance not in deleted[schema_id]:
                    deleted[schema_id].add(instance)
                    is_settled = False
        for schema_id, definition in definitions.items():
            for field in definition.fields:
                if not field.cascade or field.schema is None:
                    continue
                gone = deleted[field.schema]
                for instance, row in list(result[schema_id]["rows"].items()):
                    value = row["fields"][field.name]
                    if isinstance(value, list):
                        row["fields"][field.name] = [element for element in value if element not in gone]
                    elif value in gone:
                        del result[schema_id]["rows"][instance]
                        deleted[schema_id].add(instance)
                        is_settled = False


def comparable(views: Iterable[ReferenceView]) -> Comparable:
    """The oracle's views in the same plain form."""
    result: Comparable = {
        None: {"version": None, "waits_for": [], "rows": {}, "outcomes": {}, "absent": 0, "lines": {}}
    }
    for view in views:
        result[view.schema] = {
            "version": view.version,
            "waits_for": view.waits_for,
            "rows": {
                row.instance: {
                    "place": (row.author, row.log_id, row.seq_num),
                    "last": (row.last_seq_num, row.last_hash),
                    "fields": row.fields,
                    "rest": (row.access, row.expires, row.copied_from),
                }
                for row in view.rows
            },
            "outcomes": {outcome.hash: (outcome.outcome, outcome.code) for outcome in view.outcomes},
            "absent": view.absent,
            "lines": view.lines,
        }
    return result
