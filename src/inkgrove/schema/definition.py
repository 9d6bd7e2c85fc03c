"""The definition of a view: a schema at the newest version that can be materialised (docs/protocol.md section 6).

For every version that a message may name it has the migration to the view's version, or the outcome without one.
"""

from collections.abc import Container
from functools import cached_property

from inkgrove.messages import OutcomeCode, SchemaId
from inkgrove.schema.migrate import Migration, compile_migration
from inkgrove.schema.schema import Field, Schema, Version


class ViewDefinition:
    """The version that a view is built at: the newest one whose relation schemas are all registered."""

    def __init__(self, schema: Schema, registered: Container[SchemaId]) -> None:
        self.schema = schema
        self.version = max((v.number for v in schema.versions if not _find_unregistered(v, registered)), default=0)
        """The view's version; 0 while nothing of the schema is known."""
        newest = schema.versions[-1] if schema.versions else None
        self.waits_for = sorted(_find_unregistered(newest, registered)) if newest else []
        self.live_path = schema.live_path(self.version) if self.version else ()
        self._on_live_path = frozenset(self.live_path)
        self._migrations: dict[int, Migration | OutcomeCode] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the view."""
        return self.schema.version(self.version).fields if self.version else ()

    @cached_property
    def first_version_with_fields(self) -> int | None:
        """The first version on the live path that has fields."""
        return next((number for number in self.live_path if self.schema.version(number).fields), None)

    @cached_property
    def last_version_without_fields(self) -> int:
        """The last migration on the live path that removed the last field, and so ended all rows before it."""
        return max(
            (n for n in self.live_path if self.schema.version(n).removed and not self.schema.version(n).fields),
            default=0,
        )

    def migration(self, version: int) -> Migration | OutcomeCode:
        """Return how messages that name `version` are migrated to the view's version, or why they are not."""
        found = self._migrations.get(version)
        if found is None:
            found = self._migrations[version] = self._find_migration(version)
        return found

    def _find_migration(self, version: int) -> Migration | OutcomeCode:
        known = len(self.schema.versions)
        if version > known and self.schema.is_invalid_at(version):
            return OutcomeCode.VERSION_INVALID
        if not known:
            return OutcomeCode.SCHEMA_UNKNOWN
        if version > self.version:
            return OutcomeCode.VERSION_UNKNOWN
        if version not in self._on_live_path:
            return OutcomeCode.OFF_LIVE_PATH
        if self.first_version_with_fields is None:
            return OutcomeCode.NO_FIELDS_YET
        return compile_migration(self.schema, max(version, self.first_version_with_fields), self.live_path)

    def is_ended(self, version: int) -> bool:
        """Whether rows created at `version` were ended by the removal of the last field."""
        return max(version, self.first_version_with_fields or 0) < self.last_version_without_fields


def _find_unregistered(version: Version, registered: Container[SchemaId]) -> set[SchemaId]:
    return {item.schema for item in version.fields if item.schema is not None and item.schema not in registered}
