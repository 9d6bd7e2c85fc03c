"""What lies between two versions of a schema, whatever way leads from one to the other."""

from typing import Literal, NamedTuple

from inkgrove.schema.field import Field
from inkgrove.schema.schema import Schema

Kind = Literal["added", "removed", "changed"]


class Difference(NamedTuple):
    """One field that differs."""

    kind: Kind
    name: str
    before: Field | None
    after: Field | None


def differences(schema: Schema, first: int, second: int) -> list[Difference]:
    """The fields that differ between two known versions; a field created anew is another one."""
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
