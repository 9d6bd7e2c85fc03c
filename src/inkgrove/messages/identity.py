"""Identity messages, which only log 0 of a key holds: `identity` and `key-of` (docs/protocol.md section 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from inkgrove.core import IdentityId, PublicKey
from inkgrove.core.errors import MessageError
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import read_identity_id, read_public_key
from inkgrove.messages.value_readers import (
    Map,
    check_keys,
    make_bad_value,
    read_endpoint,
    read_host,
    read_integer,
    read_list,
    read_map,
    read_text,
)


@dataclass(frozen=True, slots=True)
class FurtherKey:
    """A key that the identity uses besides its first one."""

    key: PublicKey
    revoked: tuple[tuple[int, int], ...] | None = None
    """For a revoked key: (log id, last sequence number that still counts) of each of its logs."""


@dataclass(frozen=True, slots=True)
class IdentityDocument:
    """The document of an identity; the newest valid one counts."""

    fqdn: str
    endpoint: str
    name: str | None = None
    profile: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[FurtherKey, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyOf:
    """A further key names the identity that it belongs to."""

    identity: IdentityId


IdentityMessage = IdentityDocument | KeyOf

_ADOPTION = b"inkgrove adopt identity v1\0"
"""No entry begins so: the first byte of an entry is its tag, 0 or 1."""


def adoption_claim(identity: IdentityId, fqdn: str, endpoint: str, entry: bytes, challenge: str) -> bytes:
    """The bytes that the first key of an identity signs to be hosted by a node, under a name, with an entry of log 0.

    docs/protocol.md section 7.8.
    """
    claimed = (identity.hex(), fqdn, endpoint, sha256(entry).hexdigest(), challenge)
    return _ADOPTION + "\n".join(claimed).encode()


_IDENTITY_NEEDS = frozenset({"kind", "fqdn", "endpoint"})
_IDENTITY_KEYS = _IDENTITY_NEEDS | {"name", "profile", "keys"}


def read_identity(message: Map) -> IdentityDocument:
    check_keys(message, _IDENTITY_NEEDS, _IDENTITY_KEYS)
    profile = read_map(message.get("profile", {}), "profile")
    keys = tuple(_read_key(item) for item in read_list(message.get("keys", []), "keys", MAX_ARRAY_ELEMENTS))
    if len({item.key for item in keys}) != len(keys):
        raise MessageError("message.duplicate-field", "one key is listed twice", field="keys")
    return IdentityDocument(
        fqdn=read_host(message["fqdn"], "fqdn"),
        endpoint=read_endpoint(message["endpoint"], "endpoint"),
        name=read_text(message["name"], "name") if "name" in message else None,
        profile={label: read_text(text, f"profile {label[:60]}") for label, text in profile.items()},
        keys=keys,
    )


def _read_key(value: object) -> FurtherKey:
    item = read_map(value, "keys")
    check_keys(item, frozenset({"key"}), frozenset({"key", "revoked"}))
    key = read_public_key(item["key"], "key")
    if "revoked" not in item:
        return FurtherKey(key)
    ends = [_read_end(end) for end in read_list(item["revoked"], "revoked", MAX_ARRAY_ELEMENTS)]
    if len({log_id for log_id, _ in ends}) != len(ends):
        raise MessageError("message.duplicate-field", "one log is listed twice", field="revoked")
    return FurtherKey(key, tuple(ends))


def _read_end(value: object) -> tuple[int, int]:
    if type(value) is not list or len(value) != 2:
        raise make_bad_value("revoked", "a list of [log id, last sequence number]")
    return read_integer(value[0], "revoked log id", 0), read_integer(value[1], "revoked sequence number", 0)


def read_key_of(message: Map) -> KeyOf:
    needs = frozenset({"kind", "identity"})
    check_keys(message, needs, needs)
    return KeyOf(read_identity_id(message["identity"], "identity"))


def write_identity_message(message: IdentityMessage) -> dict[str, Value]:
    """Return the map that is encoded; keys that are not set are left out."""
    if isinstance(message, KeyOf):
        return {"kind": "key-of", "identity": bytes(message.identity)}
    value: dict[str, Value] = {"kind": "identity", "fqdn": message.fqdn, "endpoint": message.endpoint}
    if message.name is not None:
        value["name"] = message.name
    if message.profile:
        value["profile"] = dict(message.profile)
    if message.keys:
        value["keys"] = [_write_key(item) for item in message.keys]
    return value


def _write_key(item: FurtherKey) -> Value:
    if item.revoked is None:
        return {"key": bytes(item.key)}
    return {"key": bytes(item.key), "revoked": [list(end) for end in item.revoked]}
