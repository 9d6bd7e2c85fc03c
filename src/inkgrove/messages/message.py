"""A message of any kind, from a payload and to one (docs/protocol.md section 3)."""

from collections.abc import Callable
from typing import Final

from inkgrove.core.errors import MessageError
from inkgrove.core.limits import MAX_PAYLOAD_BYTES
from inkgrove.messages import cbor
from inkgrove.messages.cbor import Value
from inkgrove.messages.identity import (
    IdentityDocument,
    IdentityMessage,
    KeyOf,
    read_identity,
    read_key_of,
    write_identity_message,
)
from inkgrove.messages.instance import (
    InstanceMessage,
    read_create,
    read_delete,
    read_update,
    write_instance_message,
)
from inkgrove.messages.reading import Map
from inkgrove.messages.schema import (
    SchemaMessage,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    read_schema_meta,
    read_schema_migration,
    read_schema_revert,
    write_schema_message,
)

Message = SchemaMessage | InstanceMessage | IdentityMessage

_READERS: Final[dict[str, Callable[[Map], Message]]] = {
    "create": read_create,
    "update": read_update,
    "delete": read_delete,
    "schema-meta": read_schema_meta,
    "schema-migration": read_schema_migration,
    "schema-revert": read_schema_revert,
    "identity": read_identity,
    "key-of": read_key_of,
}


def decode_message(payload: bytes) -> Message:
    """The message that a payload holds, or the reason why it is malformed."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MessageError("message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return message_from_value(cbor.decode(payload))


def message_from_value(value: Value) -> Message:
    """A message from a decoded map, as CBOR or YAML holds it."""
    if type(value) is not dict:
        raise MessageError("message.not-a-map", "a message is a map")
    kind = value.get("kind")
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise MessageError(
            "message.unknown-kind", f"no kind of message: {kind if isinstance(kind, str) else None!r:.60}"
        )
    return reader(value)


def message_to_value(message: Message) -> dict[str, Value]:
    """The map that stands for a message in CBOR."""
    if isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
        return write_schema_message(message)
    if isinstance(message, IdentityDocument | KeyOf):
        return write_identity_message(message)
    return write_instance_message(message)


def encode_message(message: Message) -> bytes:
    """The payload of a message; too large a message is refused here as it would be by every reader."""
    payload = cbor.encode(message_to_value(message))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MessageError("message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return payload
