"""Instance messages: `create`, `update`, `delete` (docs/protocol.md section 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from inkgrove.core import Hash, IdentityId
from inkgrove.core.errors import MessageError
from inkgrove.core.limits import MAX_RECIPIENTS, MAX_SALT_BYTES
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import (
    InstanceRef,
    SchemaVersion,
    read_identity_id,
    read_instance_id,
    read_instance_ref,
    read_schema_version,
    write_instance_ref,
    write_schema,
)
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.value_readers import (
    UNSET,
    Map,
    Unset,
    check_keys,
    make_bad_value,
    read_field_list,
    read_list,
    read_map,
    read_timestamp,
    write_fields,
)

AccessMode = Literal["self", "closed", "listed", "relations", "public"]
_MODES = frozenset(get_args(AccessMode))


@dataclass(frozen=True, slots=True)
class Access:
    """Who may see an instance."""

    mode: AccessMode
    to: tuple[IdentityId, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    """The message that starts an instance; the instance's id is the hash of its entry."""

    schema: SchemaVersion
    fields: Mapping[str, Value]
    access: Access | None = None
    expires: Timestamp | None = None
    copied_from: Hash | None = None
    salt: bytes | None = None
    continues: Hash | None = None
    """The instance in whose place this one comes, written by any key of the same identity (section 5.7)."""


@dataclass(frozen=True, slots=True)
class Update:
    """The message that changes some fields, the access or the expiry of an instance; what is not named stays."""

    schema: SchemaVersion
    instance: InstanceRef
    fields: Mapping[str, Value] | Unset = UNSET
    access: Access | None = None
    expires: Timestamp | Unset | None = UNSET
    salt: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The message that ends an instance; with its schema also one that another key of the identity wrote."""

    instance: InstanceRef
    schema: SchemaVersion | None = None
    salt: bytes | None = None


InstanceMessage = Create | Update | Delete

_CREATE_NEEDS = frozenset({"kind", "schema", "fields"})
_CREATE_KEYS = _CREATE_NEEDS | {"access", "expires", "copied_from", "continues", "salt"}
_UPDATE_NEEDS = frozenset({"kind", "schema", "instance"})
_UPDATE_KEYS = _UPDATE_NEEDS | {"fields", "access", "expires", "salt"}
_DELETE_NEEDS = frozenset({"kind", "instance"})
_DELETE_KEYS = _DELETE_NEEDS | {"schema", "salt"}


def read_create(message: Map) -> Create:
    check_keys(message, _CREATE_NEEDS, _CREATE_KEYS)
    expires = message.get("expires")
    return Create(
        read_schema_version(message["schema"]),
        read_field_list(message["fields"]),
        _read_access(message["access"]) if "access" in message else None,
        None if expires is None else read_timestamp(expires, "expires"),
        read_instance_id(message["copied_from"], "copied_from") if "copied_from" in message else None,
        _read_salt(message["salt"]) if "salt" in message else None,
        read_instance_id(message["continues"], "continues") if "continues" in message else None,
    )


def read_update(message: Map) -> Update:
    check_keys(message, _UPDATE_NEEDS, _UPDATE_KEYS)
    if message.keys().isdisjoint(("fields", "access", "expires")):
        raise MessageError("message.empty-update", "an update needs at least one of fields, access and expires")
    expires = message.get("expires", UNSET)
    return Update(
        read_schema_version(message["schema"]),
        read_instance_ref(message["instance"]),
        read_field_list(message["fields"]) if "fields" in message else UNSET,
        _read_access(message["access"]) if "access" in message else None,
        expires if expires is None or expires is UNSET else read_timestamp(expires, "expires"),
        _read_salt(message["salt"]) if "salt" in message else None,
    )


def read_delete(message: Map) -> Delete:
    check_keys(message, _DELETE_NEEDS, _DELETE_KEYS)
    return Delete(
        read_instance_ref(message["instance"]),
        read_schema_version(message["schema"]) if "schema" in message else None,
        _read_salt(message["salt"]) if "salt" in message else None,
    )


def _read_salt(value: object) -> bytes:
    if type(value) is not bytes:
        raise make_bad_value("salt", "a byte string")
    if len(value) > MAX_SALT_BYTES:
        raise MessageError("message.over-limit", f"a salt has at most {MAX_SALT_BYTES} bytes", key="salt")
    return value


def _read_access(value: object) -> Access:
    access = read_map(value, "access")
    check_keys(access, frozenset({"mode"}), frozenset({"mode", "to"}))
    mode = access["mode"]
    if type(mode) is not str or mode not in _MODES:
        raise make_bad_value("access mode", "one of self, closed, listed, relations and public")
    if "to" in access and mode not in ("closed", "listed"):
        raise make_bad_value("access to", f"absent with the mode {mode}")
    if "to" not in access and mode == "closed":
        raise make_bad_value("access to", "a list of identity ids with the mode closed")
    to = read_list(access.get("to", []), "access to", MAX_RECIPIENTS)
    return Access(mode, tuple(read_identity_id(item, "access to") for item in to))  # type: ignore[arg-type]


def write_instance_message(message: InstanceMessage) -> dict[str, Value]:
    """Return the map that is encoded; keys that are not set are left out."""
    value: dict[str, Value] = {"kind": type(message).__name__.lower()}
    if message.schema is not None:
        value["schema"] = write_schema(message.schema)
    if not isinstance(message, Create):
        value["instance"] = write_instance_ref(message.instance)
    if not isinstance(message, Delete):
        if not isinstance(message.fields, Unset):
            value["fields"] = write_fields(message.fields)
        if message.access is not None:
            value["access"] = _write_access(message.access)
    if isinstance(message, Create) and message.expires is not None:
        value["expires"] = message.expires
    if isinstance(message, Create) and message.copied_from is not None:
        value["copied_from"] = bytes(message.copied_from)
    if isinstance(message, Create) and message.continues is not None:
        value["continues"] = bytes(message.continues)
    if isinstance(message, Update) and not isinstance(message.expires, Unset):
        value["expires"] = message.expires
    if message.salt is not None:
        value["salt"] = message.salt
    return value


def _write_access(access: Access) -> Value:
    if access.mode == "closed" or access.to:
        return {"mode": access.mode, "to": [bytes(identity) for identity in access.to]}
    return {"mode": access.mode}
