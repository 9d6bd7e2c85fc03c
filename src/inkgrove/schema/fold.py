"""The fold of one instance: its messages in, a row and their outcomes out (docs/protocol.md sections 5 and 6).

A pure function of the messages and the view's definition; what crosses instances (cascade) comes later.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from inkgrove.core import Hash
from inkgrove.core.errors import InstanceError
from inkgrove.messages import Access, Create, Delete, Outcome, OutcomeCode, SchemaId, Timestamp, Unset, Update
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.migrate import Migration
from inkgrove.schema.other_logs import End

Definitions = Callable[[SchemaId], ViewDefinition | None]
"""Finds the definition of a registered schema's view."""


class Ruling(NamedTuple):
    """The outcome of one message."""

    outcome: Outcome
    code: str
    reason: str


class InstanceChange(NamedTuple):
    """An update or delete of an instance, with its sequence number and entry hash."""

    seq_num: int
    hash: Hash
    message: Update | Delete
    is_valid: bool = True
    """False for a delete in the invalid part of a log: it counts, and has an outcome already."""


@dataclass(slots=True)
class FoldedRow:
    """An instance after all its messages."""

    seq_num: int
    instance: Hash
    values: list[Any]
    """In the order of the view's columns."""
    field_seq_nums: list[int]
    """The sequence number of the message that wrote each value; that of the create for a default or null."""
    last_seq_num: int
    last_hash: Hash
    access: Access | None = None
    expires: Timestamp | None = None
    copied_from: Hash | None = None


@dataclass(slots=True)
class InstanceFold:
    """The result of folding one instance."""

    instance: Hash
    schema_id: SchemaId
    row: FoldedRow | None = None
    is_deleted: bool = False
    """Whether its author deleted it: only then do rows that depend on it go too."""
    continued_by: Hash | None = None
    """The create with which its line goes on: it counts as deleted if that one does."""


def make_ruling(code: OutcomeCode, reason: str | None = None) -> Ruling:
    """Return the ruling for a listed code."""
    return Ruling(code.outcome, code.code, reason or code.meaning)


_APPLIED = make_ruling(OutcomeCode.APPLIED)
_CREATE_IS: dict[Outcome, Ruling] = {
    Outcome.PENDING: make_ruling(OutcomeCode.CREATE_PENDING),
    Outcome.QUARANTINED: make_ruling(OutcomeCode.CREATE_QUARANTINED),
    Outcome.OBSOLETE: make_ruling(OutcomeCode.CREATE_OBSOLETE),
}


def fold_instance(
    seq_num: int,
    instance: Hash,
    create: Create,
    changes: Iterable[InstanceChange],
    definitions: Definitions,
    rulings: dict[Hash, tuple[SchemaId | None, Ruling]],
) -> InstanceFold:
    """Fold a create and the changes of its instance, given in the order of their log; adds to `rulings`."""
    schema_id = create.schema.schema_id
    result = InstanceFold(instance, schema_id)
    definition = definitions(schema_id)
    created = _read_create(create, definition) if definition is not None else None
    if isinstance(created, Ruling):
        rulings[instance] = schema_id, created
    elif created is not None:
        rulings[instance] = schema_id, _APPLIED
        result.row = FoldedRow(
            seq_num,
            instance,
            created,
            [seq_num] * len(created),
            seq_num,
            instance,
            create.access,
            create.expires,
            create.copied_from,
        )
    for change in changes:
        _apply(change, created, result, definitions, rulings)
    if result.is_deleted:
        result.row = None
    return result


def apply_ends(fold: InstanceFold, ends: Iterable[End], definitions: Definitions) -> None:
    """End an instance that has a row, or was deleted, as messages of its identity's keys in other logs say."""
    definition = definitions(fold.schema_id)
    if definition is None or (fold.row is None and not fold.is_deleted):
        return
    for end in ends:
        message = end.message
        if message.schema is None or message.schema.schema_id != fold.schema_id:
            continue
        if isinstance(message, Delete):
            fold.is_deleted = True
        elif not isinstance(_read_create(message, definition), Ruling):
            fold.continued_by = end.hash if fold.continued_by is None else min(fold.continued_by, end.hash)
    if fold.continued_by is not None:
        fold.is_deleted = False
    if fold.is_deleted or fold.continued_by is not None:
        fold.row = None


def rule_on_end(create: Create, definition: ViewDefinition) -> Ruling:
    """Return the outcome of a delete of an instance of another log; between logs there is no order."""
    created = _read_create(create, definition)
    return _CREATE_IS[created.outcome] if isinstance(created, Ruling) else _APPLIED


def fold_further(before: InstanceFold, changes: Iterable[InstanceChange], definitions: Definitions) -> InstanceFold:
    """Return the fold of an instance that has a row with changes that came since; `before` is not changed."""
    row = before.row
    assert row is not None
    own = replace(row, values=[*row.values], field_seq_nums=[*row.field_seq_nums])
    result = replace(before, row=own)
    for change in changes:
        _apply(change, own.values, result, definitions, {})
    if result.is_deleted:
        result.row = None
    return result


def _read_create(create: Create, definition: ViewDefinition) -> list[Any] | Ruling:
    migration = definition.migration(create.schema.version)
    if isinstance(migration, OutcomeCode):
        return make_ruling(migration, f"{migration.meaning} (version {create.schema.version})")
    try:
        values = migration.read_create(create.fields)
    except InstanceError as error:
        return Ruling(Outcome.QUARANTINED, error.code, error.message)
    return make_ruling(OutcomeCode.ENDED_BY_MIGRATION) if definition.is_ended(create.schema.version) else values


def _apply(
    change: InstanceChange,
    created: list[Any] | Ruling | None,
    result: InstanceFold,
    definitions: Definitions,
    rulings: dict[Hash, tuple[SchemaId | None, Ruling]],
) -> None:
    message = change.message
    named = message.schema.schema_id if message.schema is not None else result.schema_id
    if not change.is_valid:
        result.is_deleted |= result.row is not None and named == result.schema_id
        return
    definition = definitions(named)
    if definition is None:
        return
    written: dict[int, Any] = {}
    if isinstance(message, Update):
        read = read_update_values(message, definition)
        if isinstance(read, Ruling):
            rulings[change.hash] = named, read
            return
        written = read
    rulings[change.hash] = named, _rule_change(change, named, created, written, result)


def read_update_values(message: Update, definition: ViewDefinition) -> dict[int, Any] | Ruling:
    """Return what an update writes, by column, or its outcome if its version or a value is not in order."""
    migration: Migration | OutcomeCode = definition.migration(message.schema.version)
    if isinstance(migration, OutcomeCode):
        return make_ruling(migration, f"{migration.meaning} (version {message.schema.version})")
    try:
        return {} if isinstance(message.fields, Unset) else migration.read_update(message.fields)
    except InstanceError as error:
        return Ruling(Outcome.QUARANTINED, error.code, error.message)


def _rule_change(
    change: InstanceChange,
    named: SchemaId,
    created: list[Any] | Ruling | None,
    written: dict[int, Any],
    result: InstanceFold,
) -> Ruling:
    message = change.message
    if named != result.schema_id:
        return make_ruling(OutcomeCode.OTHER_SCHEMA)
    if isinstance(created, Ruling):
        return _CREATE_IS[created.outcome]
    if result.is_deleted:
        return make_ruling(OutcomeCode.AFTER_DELETE)
    if isinstance(message, Delete):
        result.is_deleted = True
        return _APPLIED
    if not written and message.access is None and isinstance(message.expires, Unset):
        return make_ruling(OutcomeCode.NOTHING_LEFT)
    row = result.row
    assert row is not None
    for column, value in written.items():
        row.values[column] = value
        row.field_seq_nums[column] = change.seq_num
    if message.access is not None:
        row.access = message.access
    if not isinstance(message.expires, Unset):
        row.expires = message.expires
    row.last_seq_num, row.last_hash = change.seq_num, change.hash
    return _APPLIED
