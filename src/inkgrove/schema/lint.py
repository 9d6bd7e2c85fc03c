"""What a migration does to existing data, and how two versions differ (docs/protocol.md section 4).

A migration only adds, keeps everything or may lose something; given messages, the values are counted that would fall
back to the default.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from inkgrove.core.errors import InstanceError
from inkgrove.messages import Create, OutcomeCode, SchemaId, SchemaMigration, SchemaRevert, Unset, Update
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.schema import Field, FieldUpdate, Schema, append_version, carry_value
from inkgrove.schema.types import MISFIT

Effect = Literal["adds", "keeps", "may-lose", "loses"]

# Every value of the first type comes along to the second.
_LOSSLESS = frozenset({("integer", "text"), ("boolean", "text"), ("timestamp", "text"), ("varchar", "text")})


@dataclass(slots=True)
class LintFinding:
    """The effect of a migration on one field."""

    field: str
    effect: Effect
    reason: str
    values: int = 0
    """Values of the field that the messages at hand write."""
    fallbacks: int = 0
    """Those of them that would be replaced by the default, or lost with the field."""


@dataclass(slots=True)
class LintReport:
    """All findings on one migration."""

    version: int
    findings: list[LintFinding] = field(default_factory=list)
    messages: int = 0
    """How many messages were counted; the others do not reach the version before."""

    @property
    def only_adds(self) -> bool:
        """Whether no value that exists can change or go."""
        return all(finding.effect in ("adds", "keeps") for finding in self.findings)


def lint_migration(
    schema: Schema, migration: SchemaMigration, messages: Iterable[Create | Update] = ()
) -> tuple[LintReport, Schema]:
    """Return the report on a migration, and the schema with it; raises a `SchemaError` if the migration is invalid."""
    after = append_version(schema, migration)
    report = describe_version(after)
    _count(report, schema, after, messages)
    return report, after


def describe_version(schema: Schema) -> LintReport:
    """Report what the newest version of a schema does to the data of those before it."""
    version = schema.versions[-1]
    report = LintReport(version.number)
    report.findings += [LintFinding(added.name, "adds", f"a new {added.type}") for added, _ in version.created]
    report.findings += [_describe_update(update) for update in version.updated]
    report.findings += [LintFinding(gone.name, "loses", "the field and its values go") for gone in version.removed]
    if version.removed and not version.fields:
        report.findings.append(LintFinding("*", "loses", "no field is left: every row created before ends"))
    if isinstance(version.message, SchemaRevert):
        before = set(schema.live_path(version.number - 1)) - set(schema.live_path(version.number))
        if before:
            left = ", ".join(map(str, sorted(before)))
            reason = f"messages of versions that leave the live path become obsolete: {left}"
            report.findings.append(LintFinding("*", "may-lose", reason))
    return report


def relations_of(schema: Schema) -> dict[str, SchemaId]:
    """Return the schemas that the relations of the newest version point to, by field."""
    return {item.name: item.schema for item in schema.versions[-1].fields if item.schema is not None}


def _describe_update(update: FieldUpdate) -> LintFinding:
    before, after = update.before, update.after
    name = after.name
    if before.type != after.type:
        change = f"{before.type} becomes {after.type}"
        is_lossless = after.type == f"{before.type}[]" or (before.type, after.type) in _LOSSLESS
        if not is_lossless or after.validation is not None:
            return LintFinding(name, "may-lose", f"{change}: values that do not convert get the default")
        return LintFinding(name, "keeps", f"{change}: every value converts")
    if after.validation is not None and after.validation != before.validation:
        return LintFinding(name, "may-lose", f"values that do not match {after.validation} get the default")
    if after.cascade and not before.cascade:
        return LintFinding(name, "may-lose", "rows whose target has been deleted go")
    if after.cascade and after.schema != before.schema:
        return LintFinding(name, "may-lose", "rows go when an instance of the new schema is deleted")
    return LintFinding(name, "keeps", "no value changes")


class _Everything:
    """All schemas count as registered: a lint does not wait for the administrator."""

    def __contains__(self, item: object) -> bool:
        return True


def _count(report: LintReport, before: Schema, after: Schema, messages: Iterable[Create | Update]) -> None:
    definition = ViewDefinition(before, _Everything())
    version = after.versions[-1]
    columns = {item.id: column for column, item in enumerate(definition.fields)}
    updates = {columns[update.before.id]: update for update in version.updated}
    removed = {columns[gone.id]: gone for gone in version.removed}
    by_name = {finding.field: finding for finding in report.findings}
    for message in messages:
        if message.schema.schema_id != before.id or isinstance(message.fields, Unset):
            continue
        migration = definition.migration(message.schema.version)
        if isinstance(migration, OutcomeCode):
            continue
        try:
            written = migration.read_update(message.fields)
        except InstanceError:
            continue
        report.messages += 1
        for column, value in written.items():
            if value is None:
                continue
            if column in removed:
                by_name[removed[column].name].values += 1
                by_name[removed[column].name].fallbacks += 1
            elif column in updates:
                update = updates[column]
                finding = by_name[update.after.name]
                finding.values += 1
                finding.fallbacks += carry_value(update.before, update.after, value) is MISFIT


# Differences between versions

Kind = Literal["added", "removed", "changed"]


class Difference(NamedTuple):
    """One field that differs between two versions."""

    kind: Kind
    name: str
    before: Field | None
    after: Field | None


def differences(schema: Schema, first: int, second: int) -> list[Difference]:
    """List the fields that differ between two known versions; a field that was created again is another one."""
    before = {field.id: field for field in schema.version(first).fields}
    after = {field.id: field for field in schema.version(second).fields}
    found = [Difference("removed", field.name, field, None) for key, field in before.items() if key not in after]
    found += [
        Difference("changed", field.name, before[key], field)
        for key, field in after.items()
        if key in before and before[key] != field
    ]
    found += [Difference("added", field.name, None, field) for key, field in after.items() if key not in before]
    return found
