"""Identity messages, which only log 0 of a key holds: `identity` and `key-of` (docs/protocol.md section 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.core.errors import MessageError
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import read_hash, read_identity_id, read_public_key
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


@dataclass(frozen=True, slots=True, order=True)
class RevokedLog:
    """A log of a revoked key, and how far it still counts."""

    log_id: int
    last: int
    """The last sequence number that still counts; 0 for none."""
    hash: Hash | None = None
    """The hash of the entry at `last`, which pins the branch that counts; None if the end pins nothing."""


@dataclass(frozen=True, slots=True)
class FurtherKey:
    """A key that a document lists: a further one, or the first one if its logs end."""

    key: PublicKey
    revoked: tuple[RevokedLog, ...] | None = None
    """For a revoked key: the ends of those of its logs that still count; None while it counts."""
    label: str | None = None
    """What people call it, such as `phone`."""


@dataclass(frozen=True, slots=True)
class IdentityDocument:
    """The document of an identity; the newest valid one counts."""

    fqdn: str
    endpoint: str
    name: str | None = None
    profile: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[FurtherKey, ...] = ()
    controller: PublicKey | None = None
    """The further key whose log 0 goes on with documents in place of the first key's."""
    under: Hash | None = None
    """In log 0 of a controller: the hash of the entry whose document named it."""
    closed: bool = False
    """Whether the account is closed for good."""


@dataclass(frozen=True, slots=True)
class KeyOf:
    """A further key names the identity that it belongs to."""

    identity: IdentityId


IdentityMessage = IdentityDocument | KeyOf

_ADOPTION = b"inkgrove adopt identity v1\0"
"""No entry begins so: the first byte of an entry is its tag, 0 or 1."""
_MANDATE = b"inkgrove fetch my logs v1\0"


def adoption_claim(identity: IdentityId, fqdn: str, endpoint: str, entry: bytes, challenge: str) -> bytes:
    """The bytes that the first key of an identity signs to be hosted by a node, under a name, with an entry of log 0.

    docs/protocol.md section 7.8.
    """
    claimed = (identity.hex(), fqdn, endpoint, sha256(entry).hexdigest(), challenge)
    return _ADOPTION + "\n".join(claimed).encode()


def mandate_claim(identity: IdentityId, key: PublicKey, until: int) -> bytes:
    """The bytes that the first key of an identity signs to let another key fetch all that nodes hold of its logs.

    `until` are seconds since 1970. docs/protocol.md section 8.12.
    """
    return _MANDATE + "\n".join((identity.hex(), key.hex(), str(until))).encode()


_IDENTITY_NEEDS = frozenset({"kind", "fqdn", "endpoint"})
_IDENTITY_KEYS = _IDENTITY_NEEDS | {"name", "profile", "keys", "controller", "under", "closed"}


def read_identity(message: Map) -> IdentityDocument:
    check_keys(message, _IDENTITY_NEEDS, _IDENTITY_KEYS)
    profile = read_map(message.get("profile", {}), "profile")
    keys = tuple(_read_key(item) for item in read_list(message.get("keys", []), "keys", MAX_ARRAY_ELEMENTS))
    if len({item.key for item in keys}) != len(keys):
        raise MessageError("message.duplicate-field", "one key is listed twice", field="keys")
    if message.get("closed", True) is not True:
        raise make_bad_value("closed", "true, or left out")
    return IdentityDocument(
        fqdn=read_host(message["fqdn"], "fqdn"),
        endpoint=read_endpoint(message["endpoint"], "endpoint"),
        name=read_text(message["name"], "name") if "name" in message else None,
        profile={label: read_text(text, f"profile {label[:60]}") for label, text in profile.items()},
        keys=keys,
        controller=read_public_key(message["controller"], "controller") if "controller" in message else None,
        under=read_hash(message["under"], "under") if "under" in message else None,
        closed="closed" in message,
    )


def _read_key(value: object) -> FurtherKey:
    item = read_map(value, "keys")
    check_keys(item, frozenset({"key"}), frozenset({"key", "label", "revoked"}))
    key = read_public_key(item["key"], "key")
    label = read_text(item["label"], "label") if "label" in item else None
    if "revoked" not in item:
        return FurtherKey(key, label=label)
    ends = [_read_end(end) for end in read_list(item["revoked"], "revoked", MAX_ARRAY_ELEMENTS)]
    if len({end.log_id for end in ends}) != len(ends):
        raise MessageError("message.duplicate-field", "one log is listed twice", field="revoked")
    return FurtherKey(key, tuple(ends), label)


def _read_end(value: object) -> RevokedLog:
    if type(value) is not list or len(value) not in (2, 3):
        raise make_bad_value("revoked", "a list of [log id, last sequence number] or [..., hash]")
    log_id = read_integer(value[0], "revoked log id", 0)
    if len(value) == 2:
        return RevokedLog(log_id, read_integer(value[1], "revoked sequence number", 0))
    return RevokedLog(log_id, read_integer(value[1], "pinned sequence number", 1), read_hash(value[2], "pinned hash"))


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
    if message.controller is not None:
        value["controller"] = bytes(message.controller)
    if message.under is not None:
        value["under"] = bytes(message.under)
    if message.closed:
        value["closed"] = True
    return value


def _write_key(item: FurtherKey) -> Value:
    value: dict[str, Value] = {"key": bytes(item.key)}
    if item.label is not None:
        value["label"] = item.label
    if item.revoked is not None:
        value["revoked"] = [_write_end(end) for end in item.revoked]
    return value


def _write_end(end: RevokedLog) -> Value:
    return [end.log_id, end.last] if end.hash is None else [end.log_id, end.last, bytes(end.hash)]
