"""Migrations, compiled: one function per version a message may name (docs/protocol.md section 4).

Reading a message checks it against its own version and carries its values along the live path in one go. Each field's
steps are gathered once; fields that only appear on the way, with their defaults, are computed once and not per message.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from inkgrove.core.errors import InstanceError
from inkgrove.schema.schema import Field, FieldId, FieldUpdate, Schema, carry_value
from inkgrove.schema.types import CHECKS, MISFIT, find_conversion
from inkgrove.schema.validation import Allowance, make_quick_validator, make_validator

Step = Callable[[Any, Allowance], Any]
"""Carries a value that is not null over changes of its field."""
NOT_LEFT = -1
"""Stands for the column of a field that a later migration removed."""


class Migration:
    """Reads the fields of messages of one version as values of another."""

    __slots__ = ("_readers", "_template", "columns")

    def __init__(self, columns: tuple[str, ...], template: list[Any], readers: dict[str, "_FieldReader"]) -> None:
        self.columns = columns
        self._template = template
        self._readers = readers

    def read_create(self, fields: Mapping[str, Any]) -> list[Any]:
        """Return the whole content of a row, in the order of `columns`; raises an `InstanceError`."""
        row = self._template.copy()
        for column, value in self._read(fields):
            if column != NOT_LEFT:
                row[column] = value
        return row

    def read_update(self, fields: Mapping[str, Any]) -> dict[int, Any]:
        """Return the values to write, by column; raises an `InstanceError`."""
        written = dict(self._read(fields))
        written.pop(NOT_LEFT, None)
        return written

    def _read(self, fields: Mapping[str, Any]) -> list[tuple[int, Any]]:
        read = []
        readers = self._readers
        allowance = Allowance()
        for name, value in fields.items():
            reader = readers.get(name)
            if reader is None:
                raise InstanceError("instance.unknown-field", f"the version has no field {name[:80]!r}", field=name)
            if value is None:
                read.append((reader, None))
                continue
            kept = reader.check(value)
            if kept is MISFIT:
                raise InstanceError(
                    "instance.wrong-type", f"the value of {name!r} is not of the type {reader.field.type}", field=name
                )
            if reader.matches is not None and not reader.matches(kept, allowance):
                raise InstanceError(
                    "instance.failed-validation",
                    f"the value of {name!r} does not match {reader.field.validation}",
                    field=name,
                )
            read.append((reader, kept))
        return [(reader.column, _carry(kept, reader.steps, allowance)) for reader, kept in read]


def _carry(value: Any, steps: Sequence[Step], allowance: Allowance) -> Any:
    for step in steps:
        if value is None:
            return None
        value = step(value, allowance)
    return value


class _FieldReader:
    """What happens to the values of one field of the message's own version."""

    __slots__ = ("check", "column", "field", "matches", "steps")

    def __init__(self, field: Field, column: int, steps: Sequence[Step]) -> None:
        self.field = field
        self.column = column
        self.check = CHECKS[field.type]
        self.matches = make_validator(field.validation, field.type) if field.validation is not None else None
        self.steps = steps


def compile_migration(schema: Schema, version: int, live_path: Sequence[int]) -> Migration:
    """Compile the migration of messages of `version`, which lies on the live path, to the path's end."""
    target = schema.version(live_path[-1]).fields
    columns = {field.id: column for column, field in enumerate(target)}
    template: dict[FieldId, Any] = {}
    updates: dict[FieldId, list[FieldUpdate]] = {field.id: [] for field in schema.version(version).fields}
    for number in live_path[live_path.index(version) + 1 :]:
        passed = schema.version(number)
        template.update((field.id, default) for field, default in passed.created)
        for update in passed.updated:
            if update.before.id in template:
                template[update.before.id] = _carry_or_default(update, template[update.before.id])
            else:
                updates[update.before.id].append(update)
    readers = {
        field.name: _FieldReader(
            field, columns.get(field.id, NOT_LEFT), _compile_steps(updates[field.id]) if field.id in columns else ()
        )
        for field in schema.version(version).fields
    }
    return Migration(tuple(field.name for field in target), [template.get(field.id) for field in target], readers)


def _carry_or_default(update: FieldUpdate, value: Any) -> Any:
    carried = carry_value(update.before, update.after, value)
    return update.default if carried is MISFIT else carried


def _compile_steps(updates: Sequence[FieldUpdate]) -> list[Step]:
    """The steps over all changes of a field, for values that are not null; changes of the pattern alone become one."""
    steps: list[Step] = []
    for is_of_pattern, group in groupby(filter(_changes_values, updates), key=lambda u: u.before.type == u.after.type):
        changes = list(group)
        compiled = [_compile_step(update) for update in changes]
        steps += [_fuse(changes, compiled)] if is_of_pattern and len(changes) > 1 else compiled
    return steps


def _changes_values(update: FieldUpdate) -> bool:
    before, after = update.before, update.after
    return before.type != after.type or after.validation not in (None, before.validation)


def _compile_step(update: FieldUpdate) -> Step:
    before, after, default = update.before, update.after, update.default
    convert = find_conversion(before.type, after.type)
    matches = None if after.validation is None else make_validator(after.validation, after.type)

    def step(value: Any, allowance: Allowance) -> Any:
        carried = convert(value)
        if carried is MISFIT or (matches is not None and not matches(carried, allowance)):
            return default
        return carried

    return step


def _fuse(updates: Sequence[FieldUpdate], steps: Sequence[Step]) -> Step:
    """Several changes of the pattern in one step: a value that matches all of them stays as it is."""
    patterns = [update.after.validation for update in updates if update.after.validation is not None]
    passes = make_quick_validator(patterns, updates[-1].after.type)

    def fused(value: Any, allowance: Allowance) -> Any:
        return value if passes(value, allowance) else _carry(value, steps, allowance)

    return fused
