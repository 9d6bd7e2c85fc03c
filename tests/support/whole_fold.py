"""Folds a whole world with `inkgrove.schema`, as the pipeline does it, to be held against the oracle."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from inkgrove.core import Hash, HeldEntry
from inkgrove.core.errors import Forked, InvalidSince
from inkgrove.messages import SchemaId
from inkgrove.reference import ReferenceView
from inkgrove.reference.control import judge_control
from inkgrove.reference.logs import Log, gather_logs, without_revoked
from inkgrove.schema import LogFold, LogMessage, ViewDefinition, fold_log, fold_schema

Comparable = dict[SchemaId | None, dict[str, Any]]


def _gather(held: Iterable[HeldEntry]) -> dict[tuple[bytes, int], tuple[Log, list[LogMessage]]]:
    """Which messages there are is the store's to say, not the fold's: here the oracle says it."""
    result: dict[tuple[bytes, int], tuple[Log, list[LogMessage]]] = {}
    entries = list(held)
    for key, log in without_revoked(gather_logs(entries), judge_control(entries).ends).items():
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
    logs = _gather(held)
    definitions = {}
    for schema_id in registered:
        log, messages = logs.get(schema_id, (None, []))
        payloads = {m.seq_num: m.payload for m in messages if m.payload is not None and m.invalid_code is None}
        definitions[schema_id] = ViewDefinition(
            fold_schema(schema_id, payloads, log.invalid_from if log else None), registered
        )
    everywhere = {m.hash for _, messages in logs.values() for m in messages if m.invalid_code is None}
    folds: dict[tuple[bytes, int], LogFold] = {
        key: fold_log(key[1], messages, definitions.get, everywhere.__contains__) for key, (_, messages) in logs.items()
    }
    result: Comparable = {
        schema_id: {
            "version": definition.version or None,
            "waits_for": definition.waits_for,
            "rows": {},
            "outcomes": {},
            "absent": 0,
        }
        for schema_id, definition in definitions.items()
    }
    result[None] = {"version": None, "waits_for": [], "rows": {}, "outcomes": {}, "absent": 0}
    deleted: dict[SchemaId, set[Hash]] = defaultdict(set)
    for (author, log_id), fold in folds.items():
        if fold.absent and (fold.schema_id is None or fold.schema_id in definitions):
            result[fold.schema_id]["absent"] += fold.absent
        for entry_hash, (of, ruling) in fold.rulings.items():
            result[of]["outcomes"][entry_hash] = ruling.outcome, ruling.code
        for instance in fold.instances:
            if instance.is_deleted and instance.schema_id in definitions:
                deleted[instance.schema_id].add(instance.instance)
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
    return result


def _cascade(
    result: Comparable, definitions: dict[SchemaId, ViewDefinition], deleted: dict[SchemaId, set[Hash]]
) -> None:
    is_settled = False
    while not is_settled:
        is_settled = True
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
    result: Comparable = {None: {"version": None, "waits_for": [], "rows": {}, "outcomes": {}, "absent": 0}}
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
        }
    return result
