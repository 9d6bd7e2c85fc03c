"""What publishing something would do: everything is checked as if, nothing is signed, stored or sent.

The work plans against a transaction that only reads; in place of a signed entry the plan leaves what it would hold.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Access, Create, Delete, Update
from inkgrove.messages.message import Message, encode_message
from inkgrove.messages.schema import SchemaMeta, SchemaMigration, SchemaRevert
from inkgrove.messages.value_readers import Unset
from inkgrove.node.appending import Appender, LogEnd
from inkgrove.node.caller import Caller
from inkgrove.node.node import Node
from inkgrove.node.schemas import Schemas
from inkgrove.node.sessions import authenticate_on
from inkgrove.node.settled import Settled
from inkgrove.node.values import to_json
from inkgrove.node.writer import Work
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.lint import describe_version
from inkgrove.schema.schema import append_version
from inkgrove.store.logs import read_registered
from inkgrove.store.node import read_keys

_NOTHING = Hash(b"")
"""What is not signed has no entry, and so no hash."""


def try_out(node: Node, schemas: Schemas, token: str, work: Work) -> dict[str, Any]:
    """What the work would append, as JSON; raises whatever it would be refused with."""

    def look(connection: Connection) -> dict[str, Any]:
        caller = authenticate_on(connection, node, token)
        settled = Settled(node)
        settled.schemas = schemas
        trial = _Trial(node, connection, read_keys(connection, caller.require_identity()), settled, work.entries)
        with node.access_log.request():  # and nobody confirms that it took place
            work.plan(trial, caller)
        return {"dry_run": True, "changed": trial.planned is not None, **(trial.planned or {})}

    return node.database.read(look)


class _Trial(Appender):
    """Notes the message that would be signed."""

    planned: dict[str, Any] | None = None

    def sign(self, caller: Caller, end: LogEnd, message: Message, payload: bytes | None = None) -> Hash:
        place = self.next_place(end)
        data = encode_message(message) if payload is None else payload
        self._spending.entry(caller.require_identity(), end.log_id, data, message)
        self.planned = {
            "author": end.author.hex(),
            "log_id": end.log_id,
            "seq_num": place.seq_num,
            "bytes": len(data),
            **self._describe(end, message),
        }
        end.height = place.seq_num
        return _NOTHING

    def send_later(self, instance: Hash, via: IdentityId, access: Access | None, names: Collection[str]) -> None:
        if names and self.planned is not None:
            self.planned["not_found_yet"] = sorted(names)

    def flush(self) -> None:
        """There is nothing to write."""

    def _describe(self, end: LogEnd, message: Message) -> dict[str, Any]:
        if isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
            return self._describe_version(end, message)
        assert isinstance(message, Create | Update | Delete)
        assert message.schema is not None
        facts = {"schema": str(message.schema.schema_id), "version": message.schema.version}
        if isinstance(message, Create):
            return {**facts, "fields": {name: to_json(value) for name, value in message.fields.items()}}
        if isinstance(message, Update) and not isinstance(message.fields, Unset):
            # Only their names: a patch can copy values that a service may not read.
            return {**facts, "fields": sorted(message.fields)}
        return facts

    def _describe_version(self, end: LogEnd, message: SchemaMeta | SchemaMigration | SchemaRevert) -> dict[str, Any]:
        after = append_version(self.schema(SchemaId(end.author, end.log_id)), message)
        report = describe_version(after)
        registered = frozenset(read_registered(self.connection))
        view = ViewDefinition(after, registered)
        return {
            "schema": str(after.id),
            "version": report.version,
            "only_adds": report.only_adds,
            "findings": [
                {"field": item.field, "effect": item.effect, "reason": item.reason} for item in report.findings
            ],
            "materialised": after.id in registered,
            "view_version": view.version,
            "waits_for": [str(schema_id) for schema_id in view.waits_for],
        }
