"""An album of pictures on a node: a schema with blobs, and its instances signed and noted as the node does it."""

from typing import Any

from inkgrove.core import Hash, PublicKey, SecretKey, parse_public_key
from inkgrove.messages import Access, Create, Delete, InstanceMessage, SchemaId, SchemaVersion, Update, encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.node.blobs import note_references
from inkgrove.node.runtime import Node
from inkgrove.store.logs import register_schema
from tests.support.logs import LogBuilder, key
from tests.support.plain_views import build_views

SCHEMA = """
kind: schema-meta
name: album
spec: 1
---
kind: schema-migration
fields:
  - caption: {action: create, type: text}
  - picture: {action: create, type: blob}
  - more: {action: create, type: "blob[]"}
"""


class Album:
    """Publishes for the identities of a node; `note` says whether the node takes note, as it does by itself."""

    def __init__(self, node: Node, *, note: bool = True) -> None:
        self.node, self.note = node, note
        schema_log = LogBuilder(key(9), 1)
        for message in parse_messages(SCHEMA):
            schema_log.append(encode_message(message))
        self._ingest(schema_log)
        self.schema_id = SchemaId(key(9).public, 1)
        self.version = SchemaVersion(key(9).public, 1, 2)
        node.store.write(register_schema, self.schema_id)
        self._logs: dict[PublicKey, LogBuilder] = {}

    def create(self, owner: dict[str, Any], fields: dict[str, Any], access: Access | None = None) -> Hash:
        """A new instance of an identity; its id."""
        return self._append(self._secret(owner), Create(self.version, fields, access, salt=b"0" * 16))

    def update(self, owner: dict[str, Any], instance: Hash, **changes: Any) -> None:
        """Change an instance, in the name of whoever says so."""
        self._append(self._secret(owner), Update(self.version, instance, salt=b"0" * 16, **changes), instance)

    def delete(self, owner: dict[str, Any], instance: Hash) -> None:
        """End an instance."""
        self._append(self._secret(owner), Delete(instance, salt=b"0" * 16), instance)

    def build(self) -> None:
        """Bring the view up to date."""
        build_views(self.node)

    def _secret(self, owner: dict[str, Any]) -> SecretKey:
        return self.node.secret_key(parse_public_key(owner["key"]))

    def _append(self, secret: SecretKey, message: InstanceMessage, instance: Hash | None = None) -> Hash:
        log = self._logs.setdefault(secret.public, LogBuilder(secret, 7))
        log.append(encode_message(message))
        self._ingest(log)
        written = instance or log.hash(len(log.entries))
        if self.note:
            with self.node.database.writing() as connection:
                note_references(self.node, connection, written, message, secret.public)
        return written

    def _ingest(self, log: LogBuilder) -> None:
        for receipt in self.node.store.ingest([(item.signed.entry.encoded, item.payload) for item in log.held()]):
            assert receipt.error is None, receipt
