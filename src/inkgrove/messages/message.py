"""A message of any kind, from a payload and to one, with salt or without (docs/protocol.md section 3).

The salt keeps a small message from being guessed by its hash and size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from inkgrove.core.errors import InkgroveError, MessageError
from inkgrove.core.limits import MAX_PAYLOAD_BYTES, MAX_SALT_BYTES, MIN_SALT_BYTES, PADDING_BYTES
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
from inkgrove.messages.instance import InstanceMessage, read_create, read_delete, read_update, write_instance_message
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
from inkgrove.messages.value_readers import Map

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
    """Return the message that a payload holds; raises a `CborError` or `MessageError` if it is malformed."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MessageError("message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return message_from_value(cbor.decode(payload))


def decode_if_valid(payload: bytes | None) -> Message | None:
    """Return the message that a payload holds; None if there is no payload or it is malformed."""
    if payload is None:
        return None
    try:
        return decode_message(payload)
    except InkgroveError:
        return None


def message_from_value(value: Value) -> Message:
    """Return the message that a decoded map stands for, from CBOR or YAML; raises a `MessageError`."""
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
    """Return the map that stands for a message in CBOR."""
    if isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
        return write_schema_message(message)
    if isinstance(message, IdentityDocument | KeyOf):
        return write_identity_message(message)
    return write_instance_message(message)


def encode_message(message: Message) -> bytes:
    """Return the payload of a message; raises what every reader would, such as `message.too-large`."""
    payload = cbor.encode(message_to_value(message))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MessageError("message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return payload


# Salt

_EMPTY_SALT = b"\x64salt\x40"
"""The key and an empty byte string, as they are encoded."""


def with_salt(message: InstanceMessage, random_bytes: Callable[[int], bytes]) -> InstanceMessage:
    """Return the message with at least 16 random bytes of salt, as many as make its payload a multiple of 128 bytes."""
    return replace(message, salt=random_bytes(_salt_size(len(_with_empty_salt(message)))))


def encode_salted(message: InstanceMessage, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the payload of the message with such a salt, encoding it once."""
    bare = _with_empty_salt(message)
    salt = random_bytes(_salt_size(len(bare)))
    # Keys are in order of length: before the salt stands `kind` alone, so the first match is the right one.
    start = bare.index(_EMPTY_SALT)
    payload = bare[: start + 5] + _bytes_head(len(salt)) + salt + bare[start + 6 :]
    cbor.decode(payload)  # raises what every reader would
    return payload


def _with_empty_salt(message: InstanceMessage) -> bytes:
    value = write_instance_message(message)
    value["salt"] = b""
    return cbor.encode_unchecked(value)


def _bytes_head(size: int) -> bytes:
    if size < 24:
        return bytes((0x40 + size,))
    return bytes((0x58, size)) if size < 256 else b"\x59" + size.to_bytes(2, "big")


def _salt_size(bare: int) -> int:
    # The head of a byte string grows at 24 and 256 bytes, so a length may jump over one multiple, never over two.
    room = -bare % PADDING_BYTES
    while room <= MAX_SALT_BYTES + 2 and bare + room <= MAX_PAYLOAD_BYTES:
        for head_growth in range(3):
            size = room - head_growth
            if MIN_SALT_BYTES <= size <= MAX_SALT_BYTES and len(_bytes_head(size)) == 1 + head_growth:
                return size
        room += PADDING_BYTES
    raise MessageError("message.too-large", "the message leaves no room for its salt")
