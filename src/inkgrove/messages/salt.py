"""Salt: keeps a small message from being guessed by its hash and size (docs/protocol.md section 3)."""

from collections.abc import Callable
from dataclasses import replace

from inkgrove.core.errors import PayloadTooLarge
from inkgrove.core.limits import MAX_PAYLOAD_BYTES, MAX_SALT_BYTES, MIN_SALT_BYTES, PADDING_BYTES
from inkgrove.messages import cbor
from inkgrove.messages.cbor import Value
from inkgrove.messages.instance import InstanceMessage, write_instance_message


def with_salt(message: InstanceMessage, random_bytes: Callable[[int], bytes]) -> InstanceMessage:
    """The message with at least 16 random bytes of salt, as many as make its payload a multiple of 128 bytes."""
    return replace(message, salt=random_bytes(_salt_size(write_instance_message(replace(message, salt=b"")))))


def encode_salted(message: InstanceMessage, random_bytes: Callable[[int], bytes]) -> bytes:
    """The payload of the message with such a salt."""
    value = write_instance_message(message)
    value["salt"] = b""
    value["salt"] = random_bytes(_salt_size(value))
    return cbor.encode(value)


def _salt_size(value: dict[str, Value]) -> int:
    # The head of a byte string grows at 24 and 256 bytes, so a length may jump over one multiple, never over two.
    bare = cbor.encoded_size(value)
    for size in range(MIN_SALT_BYTES, MAX_SALT_BYTES + 1):
        head_growth = 0 if size < 24 else 1 if size < 256 else 2
        if (bare + size + head_growth) % PADDING_BYTES == 0:
            if bare + size + head_growth > MAX_PAYLOAD_BYTES:
                break
            return size
    raise PayloadTooLarge("the message leaves no room for its salt")
