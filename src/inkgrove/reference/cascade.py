"""Cascade: rows that go because what they point to was deleted (docs/protocol.md section 6 rule 4)."""

from collections.abc import Mapping
from dataclasses import replace

from inkgrove.core.hashing import Hash
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import SchemaId
from inkgrove.reference.instances import Instance
from inkgrove.reference.live_path import LiveSchema
from inkgrove.reference.schemas import Field
from inkgrove.reference.view import ReferenceRow

Target = tuple[SchemaId, Hash]


def cascade(instances: list[Instance], schemas: Mapping[SchemaId, LiveSchema]) -> list[tuple[SchemaId, ReferenceRow]]:
    """The rows that stay when every deletion has taken what depends on it, with their schemas."""
    deleted = {(instance.schema, instance.row.instance) for instance in instances if instance.is_deleted}
    while True:
        falling = {
            (instance.schema, instance.row.instance)
            for instance in instances
            if any(_falls(instance.row, field, deleted) for field in _cascading(schemas[instance.schema]))
        }
        if falling <= deleted:
            break
        deleted |= falling
    return [
        (instance.schema, _without_elements(instance.row, _cascading(schemas[instance.schema]), deleted))
        for instance in instances
        if (instance.schema, instance.row.instance) not in deleted
    ]


def _cascading(schema: LiveSchema) -> list[Field]:
    return [field for field in schema.path[-1].fields if field.cascade and field.schema is not None]


def _falls(row: ReferenceRow, field: Field, deleted: set[Target]) -> bool:
    return field.type == "relation" and _is_deleted(row.fields[field.name], field, deleted)


def _without_elements(row: ReferenceRow, cascading: list[Field], deleted: set[Target]) -> ReferenceRow:
    """The row with the deleted elements taken out of its cascading `relation[]` fields."""
    fields = dict(row.fields)
    for field in cascading:
        elements = fields[field.name]
        if isinstance(elements, list):
            fields[field.name] = [element for element in elements if not _is_deleted(element, field, deleted)]
    return replace(row, fields=fields)


def _is_deleted(value: Value, field: Field, deleted: set[Target]) -> bool:
    return isinstance(value, Hash) and field.schema is not None and (field.schema, value) in deleted
