"""One field of a schema at a version (docs/protocol.md section 4)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from inkgrove.core.errors import InstanceError
from inkgrove.messages.ids import SchemaId
from inkgrove.schema.conversion import conversion
from inkgrove.schema.types import CHECKS, MISFIT
from inkgrove.schema.validation import Allowance, validator


class FieldId(NamedTuple):
    """What a field is, whatever its name and type become: the version that created it and its place there."""

    version: int
    place: int


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
    if field.validation is not None and not validator(field.validation, field.type)(kept, allowance):
        raise InstanceError(
            "instance.failed-validation",
            f"the value of {field.name!r} does not match {field.validation}",
            field=field.name,
            pattern=field.validation,
        )
    return kept


def carry_value(before: Field, after: Field, value: Any) -> Any:
    """A value carried over a change of its field, or `MISFIT` where the default must stand in. Null stays null.

    It is matched with an allowance of its own, as a default is that is carried on.
    """
    if value is None:
        return None
    carried = conversion(before.type, after.type)(value)
    if carried is MISFIT or after.validation is None:
        return carried
    if after.type == before.type and after.validation == before.validation:
        return carried
    return carried if validator(after.validation, after.type)(carried) else MISFIT
