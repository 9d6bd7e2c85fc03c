"""The version a view is built at, the live path to it, and how the values of a message migrate along it.

docs/protocol.md section 4 (`schema-revert`, actions), section 5 (versions before the first field), section 6 rule 1.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from inkgrove.messages import OutcomeCode, SchemaId, SchemaVersion
from inkgrove.messages.cbor import Value
from inkgrove.reference.results import Verdict, make_verdict, quote_schema
from inkgrove.reference.schemas import FieldId, KnownSchema, ReferenceField, ReferenceVersion
from inkgrove.reference.values import ReferenceAllowance, Unfit, convert, matches

Values = dict[FieldId, Value]
"""The values of some fields of one version."""


@dataclass(frozen=True, slots=True)
class LiveSchema:
    """A schema as this node materialises it."""

    known: KnownSchema
    path: list[ReferenceVersion]
    """The live path from version 1 up to the version of the view; empty if no version is known."""
    waits_for: list[SchemaId]


def live_schema(known: KnownSchema, registered: Collection[SchemaId]) -> LiveSchema:
    """Return the schema at its newest version whose relation schemas are all registered."""
    buildable = [version for version in known.versions if not _unregistered(version, registered)]
    if not buildable:
        return LiveSchema(known, [], [])
    path = [buildable[-1]]
    while path[0].parent is not None:
        path.insert(0, known.versions[path[0].parent - 1])
    return LiveSchema(known, path, _unregistered(known.versions[-1], registered))


def _unregistered(version: ReferenceVersion, registered: Collection[SchemaId]) -> list[SchemaId]:
    named = {field.schema for field in version.fields if field.schema is not None}
    return sorted(schema for schema in named if schema not in registered)


def read_version(named: SchemaVersion, schema: LiveSchema) -> ReferenceVersion | Verdict:
    """Return the version that a create or update is read at, or the verdict on it if there is none."""
    known, path, number = schema.known, schema.path, named.version
    name = f"version {number} of schema {quote_schema(named.schema_id)}"
    if number > len(known.versions):
        if known.invalid_from is not None and number >= known.invalid_from:
            return make_verdict(
                OutcomeCode.VERSION_INVALID,
                f"It names {name}, but the schema's log is invalid from entry {known.invalid_from} on.",
            )
        if known.fault is not None:
            return make_verdict(OutcomeCode.VERSION_INVALID, f"It names {name}, which is not valid. {known.fault}")
        if not known.versions:
            return make_verdict(OutcomeCode.SCHEMA_UNKNOWN, f"It names {name}; nothing of this schema is known yet.")
        return make_verdict(
            OutcomeCode.VERSION_UNKNOWN, f"It names {name}; only versions up to {len(known.versions)} are known yet."
        )
    newest = path[-1].number
    if number > newest:
        return make_verdict(
            OutcomeCode.VERSION_UNKNOWN,
            f"It names {name}; the view is at version {newest} until the schemas of all relations are registered.",
        )
    on_path = [version for version in path if version.number == number]
    if not on_path:
        return make_verdict(
            OutcomeCode.OFF_LIVE_PATH, f"It names {name}, which a revert left behind on the way to version {newest}."
        )
    with_fields = [version for version in path if version.fields]
    if not with_fields:
        return make_verdict(
            OutcomeCode.NO_FIELDS_YET, f"It names {name}; up to version {newest} there are no fields yet."
        )
    return with_fields[0] if number < with_fields[0].number else on_path[0]


def ending_migration(version: ReferenceVersion, schema: LiveSchema) -> ReferenceVersion | None:
    """The migration on the live path that removed the last field and so ended all rows created at `version`."""
    for later in schema.path:
        if later.number > version.number and later.is_migration and not later.fields:
            return later
    return None


def migrate_values(
    values: Values, version: ReferenceVersion, schema: LiveSchema, allowance: ReferenceAllowance
) -> Values:
    """The values of a message of one version, as they are at the newest; one goes all the way before the next."""
    left = {field.id for field in schema.path[-1].fields}
    migrated: Values = {}
    for field_id, value in values.items():
        if field_id not in left:
            continue
        migrated[field_id] = value
        for before, after in pairwise(schema.path):
            if before.number >= version.number:
                migrated[field_id] = _migrate_value(migrated[field_id], field_id, before, after, allowance)
    return migrated


def carry_defaults(version: ReferenceVersion, schema: LiveSchema) -> Values:
    """The defaults of the fields that were created after a version, as they are at the newest."""
    values: Values = {}
    for before, after in pairwise(schema.path):
        if before.number < version.number:
            continue
        known = {field.id for field in before.fields}
        values = {
            field.id: _migrate_value(values[field.id], field.id, before, after, ReferenceAllowance())
            if field.id in known
            else after.defaults[field.id]
            for field in after.fields
            if field.id in values or field.id not in known
        }
    return values


def _migrate_value(
    value: Value, field_id: FieldId, before: ReferenceVersion, after: ReferenceVersion, allowance: ReferenceAllowance
) -> Value:
    old, new = _field(before, field_id), _field(after, field_id)
    if (old.type, old.validation) == (new.type, new.validation):
        return value
    converted = convert(value, old.type, new.type)
    if isinstance(converted, Unfit) or not matches(converted, new.validation, allowance):
        return after.defaults[new.id]
    return converted


def _field(version: ReferenceVersion, field_id: FieldId) -> ReferenceField:
    return next(field for field in version.fields if field.id == field_id)
