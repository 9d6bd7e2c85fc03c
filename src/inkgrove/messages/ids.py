"""The names of things in messages: schemas, their versions, instances (docs/protocol.md sections 3 to 5)."""

from functools import lru_cache
from typing import NamedTuple

from inkgrove.core import KEY_BYTES, Hash, IdentityId, PublicKey, parse_public_key
from inkgrove.core.errors import HashError, InkgroveError
from inkgrove.core.hashing import HASH_BYTES, decode_hash
from inkgrove.core.limits import MAX_INSTANCE_ID_BYTES, MAX_STORED_INTEGER
from inkgrove.messages.cbor import Value
from inkgrove.messages.value_readers import make_bad_value, read_bytes_or_hex, read_integer


class SchemaId(NamedTuple):
    """Author and log id of the log that defines a schema."""

    author: PublicKey
    log_id: int

    def __str__(self) -> str:
        """Render as `AUTHOR/LOG`, which `parse_schema_id` reads."""
        return f"{self.author.hex()}/{self.log_id}"

    @property
    def short(self) -> str:
        """The beginning of the author and the log id, for people."""
        return f"{self.author.hex()[:8]}…/{self.log_id}"


def parse_schema_id(text: str) -> SchemaId | None:
    """Parse `AUTHOR/LOG`, a public key in hex and a log id from 1 to 2^63 - 1; None if the text is anything else."""
    author, _, log_id = text.partition("/")
    if not (log_id.isascii() and log_id.isdigit() and len(log_id) < 20 and 1 <= int(log_id) <= MAX_STORED_INTEGER):
        return None
    try:
        return SchemaId(parse_public_key(author), int(log_id))
    except InkgroveError:
        return None


class SchemaVersion(NamedTuple):
    """A schema id with a version number."""

    author: PublicKey
    log_id: int
    version: int

    @property
    def schema_id(self) -> SchemaId:
        """The schema without the version."""
        return SchemaId(self.author, self.log_id)

    def __str__(self) -> str:
        return f"{self.schema_id}@{self.version}"


InstanceRef = Hash | int
"""What a message calls its instance: the hash of the create's entry, or its sequence number in the same log."""


def read_public_key(value: object, key: str) -> PublicKey:
    return PublicKey(read_bytes_or_hex(value, key, KEY_BYTES, KEY_BYTES))


def read_identity_id(value: object, key: str) -> IdentityId:
    return IdentityId(read_bytes_or_hex(value, key, 32, 32))


def read_hash(value: object, key: str) -> Hash:
    """Read a whole hash with its header, and nothing behind it."""
    data = read_bytes_or_hex(value, key, min(HASH_BYTES.values()), max(HASH_BYTES.values()))
    try:
        read, end = decode_hash(data)
    except HashError:
        raise make_bad_value(key, "a hash with its header") from None
    if end != len(data):
        raise make_bad_value(key, "a hash with its header")
    return read


def read_schema_id(value: object) -> SchemaId:
    """Read `[author, log id]`."""
    if type(value) is not list or len(value) != 2:
        raise make_bad_value("schema", "[author, log id]")
    return SchemaId(read_public_key(value[0], "schema author"), read_integer(value[1], "schema log id", 1))


def read_schema_version(value: object) -> SchemaVersion:
    """Read `[author, log id, version]`."""
    if type(value) is not list or len(value) != 3:
        raise make_bad_value("schema", "[author, log id, version]")
    author, log_id, version = value
    if type(author) is bytes and type(log_id) is int and type(version) is int:
        return _read_schema_version(author, log_id, version)  # most messages name one of few
    return _read_schema_version.__wrapped__(author, log_id, version)


@lru_cache(maxsize=1024)
def _read_schema_version(author: object, log_id: object, version: object) -> SchemaVersion:
    return SchemaVersion(
        read_public_key(author, "schema author"),
        read_integer(log_id, "schema log id", 1),
        read_integer(version, "schema version", 1),
    )


def read_instance_id(value: object, key: str) -> Hash:
    """Read an instance id; one that is no full hash matches nothing."""
    return Hash(read_bytes_or_hex(value, key, 1, MAX_INSTANCE_ID_BYTES))


def read_instance_ref(value: object) -> InstanceRef:
    """Read an instance id, or the sequence number of a create in the same log."""
    return read_integer(value, "instance", 1) if type(value) is int else read_instance_id(value, "instance")


def write_schema(schema: SchemaId | SchemaVersion) -> Value:
    return [bytes(schema[0]), *schema[1:]]


def write_instance_ref(instance: InstanceRef) -> Value:
    return instance if isinstance(instance, int) else bytes(instance)
