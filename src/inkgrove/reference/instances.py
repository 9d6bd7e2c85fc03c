"""The messages of one log: the verdict on each, and the instances they make before any cascade.

docs/protocol.md section 6: the first match decides the outcome; within an instance the later entry wins, field by
field; after a delete nothing is applied.
"""

from collections.abc import Collection
from dataclasses import dataclass

from inkgrove.core import Hash
from inkgrove.messages import Create, Delete, OutcomeCode, SchemaId, Unset, Update
from inkgrove.reference.checks import (
    Erased,
    MayEnd,
    find_create,
    find_erased,
    has_outcome,
    judge_by_create,
    judge_create,
    judge_placement,
    judge_update,
)
from inkgrove.reference.live_path import LiveSchema, Values
from inkgrove.reference.logs import HeldMessage, Log, schema_of_message
from inkgrove.reference.results import ReferenceRow, Verdict, make_verdict


@dataclass(frozen=True, slots=True)
class ReferenceInstance:
    """The row that an applied create and its updates make, and whether a delete ended it."""

    schema: SchemaId
    row: ReferenceRow
    is_deleted: bool
    continued_by: Hash | None = None
    """The create that has come in its place: then it has no row, and is deleted if that one is."""


@dataclass(frozen=True, slots=True)
class JudgedLog:
    """The verdicts on the messages of one log, and its instances."""

    verdicts: dict[Hash, Verdict]
    """By the hash of the message's entry."""
    instances: list[ReferenceInstance]
    erased: set[Erased]
    """The instances that deletes ended of which only the entry is held."""


def judge_log(
    log: Log, by_hash: dict[Hash, HeldMessage], schemas: dict[SchemaId, LiveSchema], may_end: MayEnd
) -> JudgedLog:
    """Judge all messages of a log that get an outcome; `schemas` are the registered ones."""
    messages = [held for held in log.messages if has_outcome(held, log) and _is_ours(held, log, schemas)]
    verdicts: dict[Hash, Verdict] = {}
    for held in messages:
        fault = judge_placement(held, log)
        if fault is not None:
            verdicts[held.hash] = fault

    # Each on its own, against the version it names.
    values: dict[Hash, Values] = {}
    for held in messages:
        if held.hash in verdicts:
            continue
        if isinstance(held.content, Create):
            result = judge_create(held.content, schemas[held.content.schema.schema_id])
        elif isinstance(held.content, Update):
            result = judge_update(held.content, schemas[held.content.schema.schema_id])
        else:
            continue
        if isinstance(result, Verdict):
            verdicts[held.hash] = result
        else:
            values[held.hash] = result

    # The first delete of an instance without content erases it, what comes later comes too late.
    erasing: dict[Erased, int] = {}
    for held in messages:
        if held.hash in verdicts or isinstance(held.content, Create):
            continue
        erased = find_erased(held, log, by_hash)
        if erased in erasing:
            verdicts[held.hash] = make_verdict(
                OutcomeCode.AFTER_DELETE, f"The instance that it names was deleted by entry {erasing[erased]}."
            )
        elif erased is not None and isinstance(held.content, Delete):
            erasing[erased] = held.seq_num
            verdicts[held.hash] = make_verdict(
                OutcomeCode.ERASED, f"Entry {held.seq_num} deleted an instance whose content is not held."
            )

    # Updates and deletes by what they are about.
    about: dict[Hash, Hash] = {}
    for held in messages:
        if held.hash in verdicts or isinstance(held.content, Create):
            continue
        create = find_create(held, log, by_hash, may_end)
        if isinstance(create, Verdict):
            verdicts[held.hash] = create
        elif (create.author, create.log_id) != (log.author, log.log_id):
            verdicts[held.hash] = _judge_end(create, schemas)
        elif (shared := judge_by_create(create, verdicts.get(create.hash))) is not None:
            verdicts[held.hash] = shared
        else:
            about[held.hash] = create.hash

    deleted_in_invalid_part = _deleted_in_invalid_part(log, by_hash, may_end)
    instances: list[ReferenceInstance] = []
    for held in messages:
        if held.hash in verdicts or not isinstance(held.content, Create):
            continue
        schema = schemas[held.content.schema.schema_id]
        others = [other for other in messages if about.get(other.hash) == held.hash]
        verdicts |= _judge_instance(held, others, values)
        is_deleted = any(isinstance(other.content, Delete) for other in others)
        applied = [other for other in others if verdicts[other.hash].code == OutcomeCode.APPLIED.code]
        instances.append(
            ReferenceInstance(
                held.content.schema.schema_id,
                _fold_row(held, applied, values, schema),
                is_deleted or held.hash in deleted_in_invalid_part,
            )
        )
    return JudgedLog(verdicts, instances, set(erasing) | _erased_in_invalid_part(log, by_hash))


def _is_ours(held: HeldMessage, log: Log, registered: Collection[SchemaId]) -> bool:
    schema = schema_of_message(held, log)
    return schema is None or schema in registered


def _judge_end(create: HeldMessage, schemas: dict[SchemaId, LiveSchema]) -> Verdict:
    """The verdict on a delete of an instance of another log; between logs there is no order, so none comes too late."""
    assert isinstance(create.content, Create)
    alone = judge_create(create.content, schemas[create.content.schema.schema_id])
    shared = judge_by_create(create, alone if isinstance(alone, Verdict) else None)
    if shared is not None:
        return shared
    return make_verdict(
        OutcomeCode.APPLIED, f"It ended the instance that entry {create.seq_num} of another log created."
    )


def _deleted_in_invalid_part(log: Log, by_hash: dict[Hash, HeldMessage], may_end: MayEnd) -> set[Hash]:
    """The creates in the valid part that a delete in the invalid part names: nobody undeletes by forking."""
    creates = [find_create(held, log, by_hash, may_end) for held in log.invalid if isinstance(held.content, Delete)]
    return {create.hash for create in creates if isinstance(create, HeldMessage)}


def _erased_in_invalid_part(log: Log, by_hash: dict[Hash, HeldMessage]) -> set[Erased]:
    if log.log_id == 0 or log.is_schema_log:
        return set()
    found = [find_erased(held, log, by_hash) for held in log.invalid if isinstance(held.content, Delete)]
    return {erased for erased in found if erased is not None}


def _judge_instance(create: HeldMessage, others: list[HeldMessage], values: dict[Hash, Values]) -> dict[Hash, Verdict]:
    """The verdicts on a create that is applied and on the updates and deletes that are about it."""
    verdicts = {create.hash: make_verdict(OutcomeCode.APPLIED, f"Entry {create.seq_num} created the instance.")}
    # A delete in the invalid part comes after every entry here and so makes none of them obsolete.
    first_delete = min((other.seq_num for other in others if isinstance(other.content, Delete)), default=None)
    for other in others:
        if first_delete is not None and other.seq_num > first_delete:
            verdicts[other.hash] = make_verdict(
                OutcomeCode.AFTER_DELETE,
                f"The instance that entry {create.seq_num} created was deleted by entry {first_delete}.",
            )
        elif isinstance(other.content, Update) and _writes_nothing(other.content, values[other.hash]):
            verdicts[other.hash] = make_verdict(
                OutcomeCode.NOTHING_LEFT,
                f"None of the fields it writes at version {other.content.schema.version} is left at the newest.",
            )
        else:
            deed = "deleted" if isinstance(other.content, Delete) else "changed"
            verdicts[other.hash] = make_verdict(
                OutcomeCode.APPLIED, f"Entry {other.seq_num} {deed} the instance that entry {create.seq_num} created."
            )
    return verdicts


def _writes_nothing(update: Update, left: Values) -> bool:
    return not left and update.access is None and isinstance(update.expires, Unset)


def _fold_row(
    create: HeldMessage, applied: list[HeldMessage], values: dict[Hash, Values], schema: LiveSchema
) -> ReferenceRow:
    """The row after the create and the applied updates, which come in the order of the log."""
    assert isinstance(create.content, Create)
    current = dict(values[create.hash])
    access, expires, last = create.content.access, create.content.expires, create
    for held in applied:
        update = held.content
        if not isinstance(update, Update):
            continue
        current |= values[held.hash]
        if update.access is not None:
            access = update.access
        if not isinstance(update.expires, Unset):
            expires = update.expires
        last = held
    return ReferenceRow(
        instance=create.hash,
        author=create.author,
        log_id=create.log_id,
        seq_num=create.seq_num,
        last_seq_num=last.seq_num,
        last_hash=last.hash,
        fields={field.name: current[field.id] for field in schema.path[-1].fields},
        access=access,
        expires=expires,
        copied_from=create.content.copied_from,
    )
