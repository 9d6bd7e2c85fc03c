"""Schemas: the known versions of one, each with its fields, made from the messages of its log.

docs/protocol.md section 4. The first entry that is not held, not valid or does not fit ends the known versions.
"""

import re
from dataclasses import dataclass, replace

from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_FIELDS, MAX_LARGE_PATTERNS, MAX_PATTERNS, MAX_UNICODE_CLASSES
from inkgrove.messages import FieldChange, Message, SchemaId, SchemaMeta, SchemaMigration, SchemaRevert, Unset
from inkgrove.messages.cbor import Value
from inkgrove.reference.logs import Log
from inkgrove.reference.values import (
    FIELD_TYPES,
    RELATION_TYPES,
    TYPES_WITH_VALIDATION,
    ReferenceAllowance,
    Unfit,
    fit,
    is_large_pattern,
    is_pattern,
    matches,
)

FieldId = tuple[int, str]
"""The version that created the field, and its name: a field that is created again is another one."""


@dataclass(frozen=True, slots=True)
class ReferenceField:
    """A field as it is at one version."""

    id: FieldId
    name: str
    type: str
    schema: SchemaId | None
    cascade: bool
    validation: str | None


@dataclass(frozen=True, slots=True)
class ReferenceVersion:
    """A schema at one entry of its log."""

    number: int
    parent: int | None
    is_migration: bool
    fields: tuple[ReferenceField, ...]
    defaults: dict[FieldId, Value]
    """Of the fields that this very version creates or updates."""


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """The known versions of a schema."""

    versions: list[ReferenceVersion]
    """Version n has the index n - 1."""
    invalid_from: int | None
    """From this entry on the schema's log is invalid."""
    fault: str | None
    """What is wrong with the message after the last known version, if that is what ended them."""

    @property
    def stopped(self) -> str | None:
        """Why the known versions end, if something invalid ended them."""
        if self.fault is None and self.invalid_from == len(self.versions) + 1:
            return f"The schema's log is forked or invalid from entry {self.invalid_from} on."
        return self.fault


class _DoesNotFit(Exception):
    """A schema message that is not valid after those before it; never leaves this module."""


def know_schema(log: Log | None) -> KnownSchema:
    """Return the known versions, 1 to k, of the schema that a log defines."""
    versions: list[ReferenceVersion] = []
    if log is None:
        return KnownSchema(versions, None, None)
    while True:
        number = len(versions) + 1
        held = log.valid.get(number)
        if held is None or held.content is None:
            return KnownSchema(versions, log.invalid_from, None)
        try:
            versions.append(_next_version(versions, held.content))
        except _DoesNotFit as misfit:
            return KnownSchema(versions, log.invalid_from, f"Entry {number} of the schema's log {misfit}.")


def _next_version(versions: list[ReferenceVersion], content: Message | InkgroveError) -> ReferenceVersion:
    number = len(versions) + 1
    if isinstance(content, InkgroveError):
        raise _DoesNotFit(f"is malformed ({content.code}): {content.message}")
    if number == 1:
        if not isinstance(content, SchemaMeta):
            raise _DoesNotFit("is not a schema-meta, with which every schema starts")
        return ReferenceVersion(1, None, is_migration=False, fields=(), defaults={})
    fields = versions[-1].fields
    if isinstance(content, SchemaMeta):
        return ReferenceVersion(number, number - 1, is_migration=False, fields=fields, defaults={})
    if isinstance(content, SchemaRevert):
        if content.target >= number:
            raise _DoesNotFit(f"reverts to version {content.target}, which is not an earlier one")
        target = versions[content.target - 1]
        return ReferenceVersion(number, target.number, is_migration=False, fields=target.fields, defaults={})
    if isinstance(content, SchemaMigration):
        fields, defaults = _migrate_fields(number, fields, content)
        return ReferenceVersion(number, number - 1, is_migration=True, fields=fields, defaults=defaults)
    raise _DoesNotFit("is not a schema message")


def _migrate_fields(
    number: int, before: tuple[ReferenceField, ...], migration: SchemaMigration
) -> tuple[tuple[ReferenceField, ...], dict[FieldId, Value]]:
    names = [change.name.lower() for change in migration.changes]
    for name in names:
        if names.count(name) > 1:
            raise _DoesNotFit(f"names the field {name!r} twice, letter case aside")
    fields = list(before)
    allowance = ReferenceAllowance()
    defaults: dict[FieldId, Value] = {}
    for change in migration.changes:
        if change.action == "create":
            field = _create_field(number, fields, change)
            fields.append(field)
            defaults[field.id] = _read_default(field, change, allowance)
            continue
        found = [index for index, field in enumerate(fields) if field.name == change.name]
        if not found:
            raise _DoesNotFit(f"is to {change.action} the field {change.name!r}, which does not exist")
        if change.action == "remove":
            del fields[found[0]]
        else:
            field = _update_field(fields[found[0]], change)
            fields[found[0]] = field
            defaults[field.id] = _read_default(field, change, allowance)
    if len(fields) > MAX_FIELDS:
        raise _DoesNotFit(f"leaves {len(fields)} fields; a schema has at most {MAX_FIELDS}")
    _check_patterns(fields)
    return tuple(fields), defaults


def _check_patterns(fields: list[ReferenceField]) -> None:
    """The bounds on all patterns of a version together; a pattern that several fields have is one."""
    patterns = {field.validation for field in fields if field.validation is not None}
    if len(patterns) > MAX_PATTERNS:
        raise _DoesNotFit(f"leaves {len(patterns)} different validations; a version has at most {MAX_PATTERNS}")
    classes = sum(len(re.findall(r"\\[pP]", pattern)) for pattern in patterns)
    if classes > MAX_UNICODE_CLASSES:
        raise _DoesNotFit(
            f"leaves validations with {classes} Unicode classes; at most {MAX_UNICODE_CLASSES} may stand there"
        )
    large = sum(is_large_pattern(pattern) for pattern in patterns)
    if large > MAX_LARGE_PATTERNS:
        raise _DoesNotFit(
            f"leaves {large} different validations that are large; a version has at most {MAX_LARGE_PATTERNS}"
        )


def _create_field(number: int, fields: list[ReferenceField], change: FieldChange) -> ReferenceField:
    for field in fields:
        if field.name.lower() == change.name.lower():
            raise _DoesNotFit(f"creates the field {change.name!r}, but {field.name!r} exists")
    field_type = _read_type(change)
    _check_settings(field_type, change)
    return ReferenceField(
        id=(number, change.name),
        name=change.name,
        type=field_type,
        schema=change.schema,
        cascade=change.cascade is True,
        validation=None if isinstance(change.validation, Unset) else change.validation,
    )


def _update_field(field: ReferenceField, change: FieldChange) -> ReferenceField:
    field_type = field.type if change.type is None else _read_type(change)
    _check_settings(field_type, change)
    # What is absent stays, unless the new type cannot have it.
    validation = field.validation if isinstance(change.validation, Unset) else change.validation
    schema = field.schema if change.schema is None else change.schema
    cascade = field.cascade if change.cascade is None else change.cascade
    is_relation = field_type in RELATION_TYPES
    return replace(
        field,
        type=field_type,
        schema=schema if is_relation else None,
        cascade=cascade if is_relation else False,
        validation=validation if field_type in TYPES_WITH_VALIDATION else None,
    )


def _read_type(change: FieldChange) -> str:
    if change.type not in FIELD_TYPES:
        raise _DoesNotFit(f"gives the field {change.name!r} the type {change.type!r}, which does not exist")
    return change.type


def _check_settings(field_type: str, change: FieldChange) -> None:
    """What a change sets explicitly must be something the type can have."""
    if isinstance(change.validation, str):
        if field_type not in TYPES_WITH_VALIDATION:
            raise _DoesNotFit(f"gives a validation to the field {change.name!r} of type {field_type}")
        if not is_pattern(change.validation):
            raise _DoesNotFit(f"has a validation for {change.name!r} that is no regular expression of RE2")
    if field_type not in RELATION_TYPES and change.schema is not None:
        raise _DoesNotFit(f"gives a schema to the field {change.name!r} of type {field_type}")
    if field_type not in RELATION_TYPES and change.cascade is not None:
        raise _DoesNotFit(f"gives a cascade to the field {change.name!r} of type {field_type}")


def _read_default(field: ReferenceField, change: FieldChange, allowance: ReferenceAllowance) -> Value:
    default = None if isinstance(change.default, Unset) else fit(change.default, field.type)
    if isinstance(default, Unfit):
        raise _DoesNotFit(f"has a default for {field.name!r} that is no {field.type}")
    if not matches(default, field.validation, allowance):
        raise _DoesNotFit(f"has a default for {field.name!r} that fails the field's own validation")
    return default
