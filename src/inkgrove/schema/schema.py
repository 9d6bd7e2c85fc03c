"""A schema, folded from its log: every version with its fields, and where the known versions end.

docs/protocol.md section 4. Versions form a tree: the parent of version n is n - 1, that of a revert its target.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from inkgrove.core.errors import InkgroveError, InstanceError, SchemaError
from inkgrove.core.limits import MAX_FIELDS
from inkgrove.messages import (
    FieldChange,
    SchemaId,
    SchemaMessage,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Unset,
    decode_message,
)
from inkgrove.schema.types import CHECKS, MISFIT, RELATION_TYPES, VALIDATED_TYPES, find_conversion
from inkgrove.schema.validation import Allowance, check_patterns, make_validator


class FieldId(NamedTuple):
    """A field, whatever its name and type become: the version that created it, and which change there."""

    version: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it is at one version."""

    id: FieldId
    name: str
    type: str
    schema: SchemaId | None = None
    cascade: bool = False
    validation: str | None = None


def check_value(field: Field, value: Any, allowance: Allowance | None = None) -> Any:
    """Return the value in its kept form; raises `instance.wrong-type` or `instance.failed-validation`.

    `allowance`: what the message that holds the value has left for matching; without one, as much as a message has.
    """
    if value is None:
        return None
    kept = CHECKS[field.type](value)
    if kept is MISFIT:
        raise InstanceError(
            "instance.wrong-type", f"the value of {field.name!r} is not of the type {field.type}", field=field.name
        )
    if field.validation is not None and not make_validator(field.validation, field.type)(kept, allowance):
        raise InstanceError(
            "instance.failed-validation",
            f"the value of {field.name!r} does not match {field.validation}",
            field=field.name,
            pattern=field.validation,
        )
    return kept


def carry_value(before: Field, after: Field, value: Any) -> Any:
    """Return a value carried over a change of its field, or `MISFIT` where the default replaces it; null stays null.

    It is matched with an allowance of its own, as defaults are.
    """
    if value is None:
        return None
    carried = find_conversion(before.type, after.type)(value)
    if carried is MISFIT or after.validation is None:
        return carried
    if after.type == before.type and after.validation == before.validation:
        return carried
    return carried if make_validator(after.validation, after.type)(carried) else MISFIT


@dataclass(frozen=True, slots=True)
class FieldUpdate:
    """A field before and after a migration, and the default for values that do not convert or match."""

    before: Field
    after: Field
    default: Any


@dataclass(frozen=True, slots=True)
class Version:
    """A schema at one entry of its log."""

    number: int
    parent: int
    message: SchemaMessage
    fields: tuple[Field, ...] = ()
    created: tuple[tuple[Field, Any], ...] = ()
    """The fields this version adds, each with its default."""
    updated: tuple[FieldUpdate, ...] = ()
    removed: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """All known versions of a schema, oldest first; none if it is not known at all."""

    id: SchemaId
    versions: tuple[Version, ...]
    meta: SchemaMeta | None = None
    stopped_at: int | None = None
    """The version that is invalid and ends the known ones."""
    stopped_by: InkgroveError | None = field(default=None, compare=False)
    invalid_from: int | None = None
    """Where the schema's log is forked, or an entry lies about the size of its payload."""

    def version(self, number: int) -> Version:
        """The known version of that number."""
        return self.versions[number - 1]

    def is_invalid_at(self, number: int) -> bool:
        """Whether a version that is not known can never become known."""
        return any(end is not None and number >= end for end in (self.stopped_at, self.invalid_from))

    def live_path(self, newest: int) -> tuple[int, ...]:
        """The versions from 1 to `newest` along the parents."""
        path = [newest]
        while path[-1] > 1:
            path.append(self.version(path[-1]).parent)
        return tuple(reversed(path))


def fold_schema(
    schema_id: SchemaId, payloads: Mapping[int, bytes], invalid_from: int | None = None, first: Sequence[Version] = ()
) -> Schema:
    """Fold the schema of a log; `payloads` are those held of its verified entries, by sequence number.

    `first`: the versions that its first payloads were folded to before, which is not done again.
    """
    metas = (version.message for version in reversed(first) if isinstance(version.message, SchemaMeta))
    schema = Schema(schema_id, tuple(first), next(metas, None), invalid_from=invalid_from)
    while True:
        number = len(schema.versions) + 1
        if number not in payloads or (invalid_from is not None and number >= invalid_from):
            return schema
        try:
            schema = append_version(schema, decode_message(payloads[number]))
        except InkgroveError as error:
            return replace(schema, stopped_at=number, stopped_by=error)


def append_version(schema: Schema, message: object) -> Schema:
    """Return the schema with one more version; raises a `SchemaError` if the message cannot be that."""
    number = len(schema.versions) + 1
    if not isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
        raise SchemaError("schema.not-a-schema-message", f"entry {number} of a schema's log holds no schema message")
    if number == 1 and not isinstance(message, SchemaMeta):
        raise SchemaError("schema.not-a-schema", "the first entry of a schema's log is a schema-meta")
    parent = number - 1
    meta = schema.meta
    if isinstance(message, SchemaMeta):
        meta = message
        version = Version(number, parent, message, schema.version(parent).fields if parent else ())
    elif isinstance(message, SchemaRevert):
        if message.target >= number:
            raise SchemaError(
                "schema.bad-revert-target",
                f"version {number} can only revert to an earlier one, not to {message.target}",
            )
        version = Version(number, message.target, message, schema.version(message.target).fields)
    else:
        version = _migrate(schema.version(parent), message)
    return replace(schema, versions=(*schema.versions, version), meta=meta)


def patterns_of(message: object) -> list[str]:
    """List the patterns of a migration, which if it is valid are those of one version; none for other messages."""
    if not isinstance(message, SchemaMigration):
        return []
    return [change.validation for change in message.changes if isinstance(change.validation, str)]


def _migrate(before: Version, message: SchemaMigration) -> Version:
    # The number of fields is checked first and patterns last: no field is made, and no pattern compiled, in vain.
    actions = [change.action for change in message.changes]
    left = len(before.fields) + actions.count("create") - actions.count("remove")
    if left > MAX_FIELDS:
        raise SchemaError("schema.too-many-fields", f"a schema has at most {MAX_FIELDS} fields, not {left}")
    number = before.number + 1
    fields = {item.name: item for item in before.fields}
    created, updated, removed = [], [], []
    for ordinal, change in enumerate(message.changes):
        if change.action == "create":
            if any(name.lower() == change.name.lower() for name in fields):
                raise SchemaError("schema.field-exists", f"the field {change.name!r} exists already", field=change.name)
            fields[change.name] = _make_field(Field(FieldId(number, ordinal), change.name, ""), change)
            created.append((fields[change.name], change))
            continue
        existing = fields.get(change.name)
        if existing is None:
            raise SchemaError(
                "schema.no-such-field", f"there is no field {change.name!r} to {change.action}", field=change.name
            )
        if change.action == "remove":
            removed.append(fields.pop(change.name))
        else:
            fields[change.name] = _make_field(existing, change)
            updated.append((existing, fields[change.name], change))
    check_patterns(item.validation for item in fields.values() if item.validation is not None)
    allowance = Allowance()
    return Version(
        number,
        before.number,
        message,
        tuple(fields.values()),
        tuple((field, _read_default(field, change, allowance)) for field, change in created),
        tuple(
            FieldUpdate(existing, field, _read_default(field, change, allowance)) for existing, field, change in updated
        ),
        tuple(removed),
    )


def _make_field(before: Field, change: FieldChange) -> Field:
    """The field after a change; what the change does not name stays, as far as the new type can have it."""
    type_name = change.type if change.type is not None else before.type
    if type_name not in CHECKS:
        raise SchemaError("schema.unknown-type", f"no field can have the type {type_name!r:.60}", field=change.name)
    is_relation, is_validated = type_name in RELATION_TYPES, type_name in VALIDATED_TYPES
    if not is_relation and (change.schema is not None or change.cascade is not None):
        raise SchemaError(
            "schema.relation-only",
            f"{change.name!r} is no relation and takes neither schema nor cascade",
            field=change.name,
        )
    validation = before.validation if isinstance(change.validation, Unset) else change.validation
    if not is_validated:
        if isinstance(change.validation, str):
            raise SchemaError(
                "schema.validation-not-allowed",
                f"a {type_name} such as {change.name!r} takes no validation",
                field=change.name,
            )
        validation = None
    cascade = change.cascade if change.cascade is not None else before.cascade
    return Field(
        before.id,
        change.name,
        type_name,
        (change.schema or before.schema) if is_relation else None,
        cascade and is_relation,
        validation,
    )


def _read_default(target: Field, change: FieldChange, allowance: Allowance) -> Any:
    if isinstance(change.default, Unset):
        return None
    try:
        return check_value(target, change.default, allowance)
    except InkgroveError as err:
        raise SchemaError(
            "schema.bad-default", f"the default of {change.name!r} does not fit: {err.message}", field=change.name
        ) from err
