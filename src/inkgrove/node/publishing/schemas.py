"""Publishes schemas by content, and renders them as JSON (docs/protocol.md section 4).

A new schema gets a new log. A version is checked before it is signed: an invalid entry would end the schema for good.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from inkgrove.core import Hash
from inkgrove.messages import (
    FieldChange,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Unset,
    message_from_value,
    parse_schema_id,
    value_to_json,
)
from inkgrove.node.errors import PublishError, RequestError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.publishing.transaction import Appender, LogEnd
from inkgrove.node.publishing.writer import Finish, Reply
from inkgrove.schema import Field, Schema, append_version

_KINDS = {"name": "schema-meta", "fields": "schema-migration", "target": "schema-revert"}


def parse_schema_message(value: Mapping[str, Any]) -> SchemaMeta | SchemaMigration | SchemaRevert:
    """Parse a schema message from JSON; the schema of a relation may be `AUTHOR/LOG`. Raises `request.invalid`."""
    kind = next((kind for key, kind in _KINDS.items() if key in value), None)
    if kind is None or ("kind" in value and value["kind"] != kind):
        raise RequestError(
            "request.invalid",
            "a version is a migration with `fields`, a revert with `target`, or new facts with `name`",
        )
    content: dict[str, Any] = {**value, "kind": kind}
    if kind == "schema-meta":
        content.setdefault("spec", 1)
    elif kind == "schema-migration":
        content["fields"] = _with_schema_ids(content["fields"])
    message = message_from_value(content)
    assert isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert)
    return message


def _with_schema_ids(fields: Any) -> Any:
    if type(fields) is list:
        return [_with_schema_ids(item) for item in fields]
    if type(fields) is not dict:
        return fields
    return {name: _with_schema_id(change) for name, change in fields.items()}


def _with_schema_id(change: Any) -> Any:
    text = change.get("schema") if type(change) is dict else None
    schema = parse_schema_id(text) if type(text) is str else None
    return change if schema is None else {**change, "schema": [schema.author.hex(), schema.log_id]}


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """A new schema in a log of its own."""

    message: SchemaMeta
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Sign its first version."""
        author = appender.find_signing_key(caller.require_identity()).author
        end = appender.begin_log(author)
        return _answer(end, appender.sign(caller, end, self.message))


@dataclass(frozen=True, slots=True)
class AddVersion:
    """The next version of a schema of one's own."""

    schema: SchemaId
    message: SchemaMeta | SchemaMigration | SchemaRevert
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check it against the versions before, and sign it."""
        identity = caller.require_identity()
        before = appender.schema(self.schema)
        if not before.versions:
            raise PublishError("publish.unknown-schema", f"no schema is held at {self.schema}", schema=str(self.schema))
        appender.require_key(self.schema.author, identity)
        if before.stopped_by is not None:
            raise before.stopped_by
        append_version(before, self.message)
        end = appender.find_log_end(*self.schema)
        return _answer(end, appender.sign(caller, end, self.message))


def _answer(end: LogEnd, entry: Hash) -> Finish:
    body = {
        "schema": str(SchemaId(end.author, end.log_id)),
        "version": end.height,
        "entry": entry.hex(),
        "author": end.author.hex(),
        "log_id": end.log_id,
        "seq_num": end.height,
    }
    return lambda: Reply(201, body)


def render_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema with its known versions as JSON."""
    meta = schema.meta
    newest = schema.versions[-1] if schema.versions else None
    return {
        "schema": str(schema.id),
        "author": schema.id.author.hex(),
        "log_id": schema.id.log_id,
        "name": meta.name if meta is not None else None,
        "description": meta.description if meta is not None else None,
        "homepage": meta.homepage if meta is not None else None,
        "license": meta.license if meta is not None else None,
        "contact": meta.contact if meta is not None else None,
        "fqdn": meta.fqdn if meta is not None else None,
        "version": newest.number if newest is not None else 0,
        "fields": [_render_field(field) for field in newest.fields] if newest is not None else [],
        "live_path": list(schema.live_path(newest.number)) if newest is not None else [],
        "versions": [
            {
                "version": version.number,
                "parent": version.parent or None,
                **_render_message(version.message),
                "fields": [_render_field(field) for field in version.fields],
            }
            for version in schema.versions
        ],
        "stopped": schema.stopped_by.code if schema.stopped_by is not None else None,
    }


def _render_field(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "schema": str(field.schema) if field.schema is not None else None,
        "cascade": field.cascade,
        "validation": field.validation,
    }


def _render_message(message: SchemaMeta | SchemaMigration | SchemaRevert) -> dict[str, Any]:
    if isinstance(message, SchemaMeta):
        return {"kind": "schema-meta", "name": message.name}
    if isinstance(message, SchemaRevert):
        return {"kind": "schema-revert", "target": message.target}
    return {"kind": "schema-migration", "changes": [_render_change(change) for change in message.changes]}


def _render_change(change: FieldChange) -> dict[str, Any]:
    shown = {"name": change.name, "action": change.action, "type": change.type}
    return shown if isinstance(change.default, Unset) else {**shown, "default": value_to_json(change.default)}
