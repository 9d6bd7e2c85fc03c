"""From held entries to views: a pure function of the set of entries and the registered schemas.

docs/protocol.md section 6. The other modules have parts of the rules; here they are put together, with the cascade
(rule 4): rows that go because what they point to was deleted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from inkgrove.core import Hash, HeldEntry
from inkgrove.messages import SchemaId, SchemaMigration
from inkgrove.messages.cbor import Value
from inkgrove.reference.control import judge_control
from inkgrove.reference.instances import ReferenceInstance, judge_log
from inkgrove.reference.live_path import LiveSchema, live_schema
from inkgrove.reference.logs import (
    HeldMessage,
    Log,
    LogKey,
    find_log_schema,
    gather_logs,
    schema_named_by,
    schema_of_message,
    verified_by_hash,
    without_revoked,
)
from inkgrove.reference.results import ReferenceOutcome, ReferenceRow, ReferenceView, Verdict
from inkgrove.reference.schemas import ReferenceField, know_schema

Target = tuple[SchemaId, Hash]


def apply_cascade(
    instances: list[ReferenceInstance], schemas: Mapping[SchemaId, LiveSchema]
) -> list[tuple[SchemaId, ReferenceRow]]:
    """Return the rows that stay when every deletion has taken what depends on it, with their schemas."""
    deleted = {(instance.schema, instance.row.instance) for instance in instances if instance.is_deleted}
    while True:
        falling = {
            (instance.schema, instance.row.instance)
            for instance in instances
            if any(_falls(instance.row, field, deleted) for field in _cascading(schemas[instance.schema]))
        }
        if falling <= deleted:
            break
        deleted |= falling
    return [
        (instance.schema, _without_elements(instance.row, _cascading(schemas[instance.schema]), deleted))
        for instance in instances
        if (instance.schema, instance.row.instance) not in deleted
    ]


def _cascading(schema: LiveSchema) -> list[ReferenceField]:
    return [field for field in schema.path[-1].fields if field.cascade and field.schema is not None]


def _falls(row: ReferenceRow, field: ReferenceField, deleted: set[Target]) -> bool:
    return field.type == "relation" and _is_deleted(row.fields[field.name], field, deleted)


def _without_elements(row: ReferenceRow, cascading: list[ReferenceField], deleted: set[Target]) -> ReferenceRow:
    """The row with the deleted elements taken out of its cascading `relation[]` fields."""
    fields = dict(row.fields)
    for field in cascading:
        elements = fields[field.name]
        if isinstance(elements, list):
            fields[field.name] = [element for element in elements if not _is_deleted(element, field, deleted)]
    return replace(row, fields=fields)


def _is_deleted(value: Value, field: ReferenceField, deleted: set[Target]) -> bool:
    return isinstance(value, Hash) and field.schema is not None and (field.schema, value) in deleted


def fold_views(held: Iterable[HeldEntry], registered: Collection[SchemaId] | None = None) -> list[ReferenceView]:
    """Return the view of each registered schema in the order of their ids, then that of what belongs to no schema.

    None registers every schema that a held schema log defines, or that a well-formed instance message or a relation
    field names: nothing waits for an administrator.
    """
    entries = list(held)
    logs = without_revoked(gather_logs(entries), judge_control(entries).ends)
    by_hash = verified_by_hash(logs)
    names = _all_schemas(logs) if registered is None else set(registered)
    schemas = {name: live_schema(know_schema(logs.get((name.author, name.log_id))), names) for name in sorted(names)}

    instances: list[ReferenceInstance] = []
    outcomes: list[tuple[SchemaId | None, ReferenceOutcome]] = []
    absent: list[SchemaId | None] = []
    for log in logs.values():
        judged = judge_log(log, by_hash, schemas)
        instances.extend(judged.instances)
        for message in log.messages:
            if message.hash in judged.verdicts:
                outcome = _outcome(message, judged.verdicts[message.hash])
                outcomes.append((schema_of_message(message, log), outcome))
        absent.extend([find_log_schema(log)] * _count_absent(log))
    rows = apply_cascade(instances, schemas)

    views = [
        ReferenceView(
            schema=name,
            version=schema.path[-1].number if schema.path else None,
            waits_for=schema.waits_for,
            stopped=schema.known.stopped,
            rows=sorted((row for owner, row in rows if owner == name), key=_order_of_row),
            outcomes=sorted((outcome for owner, outcome in outcomes if owner == name), key=_order_of_outcome),
            absent=absent.count(name),
        )
        for name, schema in schemas.items()
    ]
    without_schema = sorted((outcome for owner, outcome in outcomes if owner is None), key=_order_of_outcome)
    if without_schema or None in absent:
        views.append(ReferenceView(None, None, [], None, [], without_schema, absent.count(None)))
    return views


def _all_schemas(logs: dict[LogKey, Log]) -> set[SchemaId]:
    defined = {SchemaId(*key) for key, log in logs.items() if log.is_schema_log}
    messages = [message for log in logs.values() for message in log.messages]
    named = {schema_named_by(message) for message in messages}
    for message in messages:
        if isinstance(message.content, SchemaMigration):
            named |= {change.schema for change in message.content.changes}
    return defined | {schema for schema in named if schema is not None}


def _count_absent(log: Log) -> int:
    """The verified entries of an instance log without a payload."""
    if log.log_id == 0 or log.is_schema_log:
        return 0
    return sum(1 for message in log.valid.values() if message.content is None)


def _outcome(message: HeldMessage, verdict: Verdict) -> ReferenceOutcome:
    return ReferenceOutcome(
        author=message.author,
        log_id=message.log_id,
        seq_num=message.seq_num,
        hash=message.hash,
        outcome=verdict.outcome,
        code=verdict.code,
        reason=verdict.reason,
    )


def _order_of_row(row: ReferenceRow) -> tuple[bytes, int, int]:
    return row.author, row.log_id, row.seq_num


def _order_of_outcome(outcome: ReferenceOutcome) -> tuple[bytes, int, int, bytes]:
    return outcome.author, outcome.log_id, outcome.seq_num, outcome.hash
