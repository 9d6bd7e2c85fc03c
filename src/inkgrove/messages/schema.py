"""Schema messages: `schema-meta`, `schema-migration`, `schema-revert` (docs/protocol.md section 4).

Their form is checked here; whether a migration fits the schema it changes is for `inkgrove.schema` to say.
"""

from dataclasses import dataclass, fields
from typing import Literal

from inkgrove.core.errors import MessageError
from inkgrove.core.limits import MAX_FIELDS, MAX_PATTERN_BYTES
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import SchemaId, read_schema_id, write_schema
from inkgrove.messages.value_readers import (
    UNSET,
    Map,
    Unset,
    check_keys,
    make_bad_value,
    read_boolean,
    read_field_list,
    read_host,
    read_integer,
    read_map,
    read_name,
    read_text,
    write_fields,
)

SPEC = 1
Action = Literal["create", "update", "remove"]


@dataclass(frozen=True, slots=True)
class SchemaMeta:
    """Sets or replaces what a schema says about itself."""

    name: str
    description: str | None = None
    homepage: str | None = None
    license: str | None = None
    contact: str | None = None
    fqdn: str | None = None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """What a migration does to one field; `UNSET` is what it does not speak of."""

    name: str
    action: Action
    type: str | None = None
    schema: SchemaId | None = None
    cascade: bool | None = None
    validation: str | Unset | None = UNSET
    default: Value | Unset = UNSET


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """A new version of a schema that changes some of its fields."""

    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class SchemaRevert:
    """A new version of a schema that goes on from an earlier one."""

    target: int


SchemaMessage = SchemaMeta | SchemaMigration | SchemaRevert

_META_TEXTS = frozenset({"description", "homepage", "license", "contact"})
_META_NEEDS = frozenset({"kind", "name", "spec"})
_META_KEYS = _META_NEEDS | _META_TEXTS | {"fqdn"}
_CHANGE_KEYS = frozenset({"action", "type", "schema", "cascade", "validation", "default"})


def read_schema_meta(message: Map) -> SchemaMeta:
    check_keys(message, _META_NEEDS, _META_KEYS)
    if type(message["spec"]) is not int or message["spec"] != SPEC:
        raise make_bad_value("spec", f"{SPEC}, the version of the specification")
    return SchemaMeta(
        name=read_name(message["name"], "name"),
        fqdn=read_host(message["fqdn"], "fqdn") if "fqdn" in message else None,
        **{key: read_text(message[key], key) for key in _META_TEXTS & message.keys()},
    )


def read_schema_migration(message: Map) -> SchemaMigration:
    needs = frozenset({"kind", "fields"})
    check_keys(message, needs, needs)
    changes = read_field_list(message["fields"])
    if not changes:
        raise make_bad_value("fields", "not empty")
    if len(changes) > 2 * MAX_FIELDS:
        # A migration can at most remove every field and create as many.
        raise MessageError("message.over-limit", f"a migration changes at most {2 * MAX_FIELDS} fields", key="fields")
    if len({name.lower() for name in changes}) != len(changes):
        raise MessageError("message.duplicate-field", "a field is named twice, in different case")
    return SchemaMigration(tuple(_read_change(name, change) for name, change in changes.items()))


def _read_change(name: str, value: object) -> FieldChange:
    read_name(name, "field name")
    change = read_map(value, name)
    check_keys(change, frozenset({"action"}), _CHANGE_KEYS)
    action = change["action"]
    if action not in ("create", "update", "remove"):
        raise make_bad_value(f"{name} action", "create, update or remove")
    if action == "remove" and len(change) > 1:
        surplus = min(change.keys() - {"action"})
        raise MessageError("message.unknown-key", f"the removal of {name!r} takes no {surplus!r}", key=surplus)
    needed = {"create": "type", "update": "default"}.get(action)
    if needed is not None and needed not in change:
        raise MessageError(
            "message.missing-key", f"to {action} the field {name!r} needs the key {needed!r}", key=needed
        )
    return FieldChange(
        name=name,
        action=action,
        type=read_text(change["type"], f"{name} type") if "type" in change else None,
        schema=read_schema_id(change["schema"]) if "schema" in change else None,
        cascade=read_boolean(change["cascade"], f"{name} cascade") if "cascade" in change else None,
        validation=_read_validation(change["validation"], name) if "validation" in change else UNSET,
        default=change.get("default", UNSET),
    )


def _read_validation(value: object, name: str) -> str | None:
    if value is None:
        return None
    pattern = read_text(value, f"{name} validation")
    if len(pattern.encode()) > MAX_PATTERN_BYTES:
        raise MessageError(
            "message.over-limit", f"the pattern of {name!r} is longer than {MAX_PATTERN_BYTES} bytes", key="validation"
        )
    return pattern


def read_schema_revert(message: Map) -> SchemaRevert:
    needs = frozenset({"kind", "target"})
    check_keys(message, needs, needs)
    return SchemaRevert(read_integer(message["target"], "target", 1))


def write_schema_message(message: SchemaMessage) -> dict[str, Value]:
    """The map that is encoded; keys that are not set are left out."""
    if isinstance(message, SchemaRevert):
        return {"kind": "schema-revert", "target": message.target}
    if isinstance(message, SchemaMigration):
        changes: dict[str, Value] = {change.name: _write_change(change) for change in message.changes}
        return {"kind": "schema-migration", "fields": write_fields(changes)}
    texts = {item.name: getattr(message, item.name) for item in fields(message)}
    return {"kind": "schema-meta", "spec": SPEC, **{key: text for key, text in texts.items() if text is not None}}


def _write_change(change: FieldChange) -> dict[str, Value]:
    value: dict[str, Value] = {"action": change.action}
    if change.type is not None:
        value["type"] = change.type
    if change.schema is not None:
        value["schema"] = write_schema(change.schema)
    if change.cascade is not None:
        value["cascade"] = change.cascade
    if not isinstance(change.validation, Unset):
        value["validation"] = change.validation
    if not isinstance(change.default, Unset):
        value["default"] = change.default
    return value
