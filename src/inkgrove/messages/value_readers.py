"""Readers for the parts of decoded CBOR: each returns one value of a known form, or raises an error with a code."""

import re
from binascii import unhexlify
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from inkgrove.core.errors import BadTimestamp, BadValue, MessageError, ParcelError
from inkgrove.core.limits import MAX_NAME_CHARACTERS, MAX_STORED_INTEGER
from inkgrove.messages.cbor import Value
from inkgrove.messages.timestamp import Timestamp, parse_timestamp

Map = dict[str, Any]

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME_CHARACTERS - 1}}}", re.ASCII)
# The last label holds a letter: an address is no name.
_HOST = re.compile(
    r"(?=.{3,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+(?=[0-9-]*[a-z])[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)

_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,253}(/[!-~]{0,500})?", re.ASCII)


class Unset(Enum):
    """Tells a key that is absent from one that holds null."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET


def check_keys(message: Map, required: frozenset[str], allowed: frozenset[str]) -> None:
    """Raise `message.unknown-key` or `message.missing-key` unless a map has the required keys and only allowed ones."""
    keys = message.keys()
    if keys <= allowed and keys >= required:
        return
    if unknown := sorted(keys - allowed):
        raise MessageError("message.unknown-key", f"the key {unknown[0][:60]!r} does not belong here", key=unknown[0])
    missing = min(required - keys)
    raise MessageError("message.missing-key", f"the key {missing!r} is missing", key=missing)


def make_bad_value(key: str, expected: str) -> BadValue:
    """Return the error for a key that should hold something else."""
    return BadValue(f"{key!r} must be {expected}", key=key)


def read_text(value: object, key: str) -> str:
    if type(value) is not str:
        raise make_bad_value(key, "a text")
    return value


def read_name(value: object, key: str) -> str:
    name = read_text(value, key)
    if not _NAME.fullmatch(name):
        raise MessageError(
            "message.bad-name",
            f"{name[:80]!r} is not a name: a letter, then at most 62 letters, digits and _",
            name=name,
        )
    return name


def read_host(value: object, key: str) -> str:
    host = read_text(value, key)
    if not _HOST.fullmatch(host):
        raise make_bad_value(key, "a lower-case domain name such as jane.haiku.ink")
    return host


def read_endpoint(value: object, key: str) -> str:
    endpoint = read_text(value, key)
    if not _ENDPOINT.fullmatch(endpoint):
        raise make_bad_value(key, "a URL such as https://haiku.ink")
    return endpoint


def read_boolean(value: object, key: str) -> bool:
    if type(value) is not bool:
        raise make_bad_value(key, "true or false")
    return value


def read_integer(value: object, key: str, least: int) -> int:
    if type(value) is not int or not least <= value <= MAX_STORED_INTEGER:
        raise make_bad_value(key, f"an integer from {least} to 2^63 - 1")
    return value


def read_bytes_or_hex(value: object, key: str, least: int, most: int) -> bytes:
    """Read a byte string, or its hex as text."""
    if type(value) is str:
        try:
            value = unhexlify(value)
        except ValueError:
            raise make_bad_value(key, "a byte string or its hex") from None
    if type(value) is not bytes:
        # YAML reads an unquoted all-digit key as a number.
        raise make_bad_value(key, "a byte string or its hex (quoted, in YAML)")
    if not least <= len(value) <= most:
        raise make_bad_value(key, f"{least} bytes long" if least == most else f"{least} to {most} bytes long")
    return value


def read_timestamp(value: object, key: str) -> Timestamp:
    """Read a timestamp, or its text."""
    if type(value) is Timestamp:
        return value
    if type(value) is not str:
        raise make_bad_value(key, "a timestamp")
    try:
        return parse_timestamp(value)
    except BadTimestamp as err:
        raise BadTimestamp(f"{key!r}: {err.message}", key=key) from err


def read_list(value: object, key: str, most: int) -> list[Any]:
    if type(value) is not list:
        raise make_bad_value(key, "a list")
    if len(value) > most:
        raise MessageError(
            "message.over-limit", f"{key!r} has {len(value)} elements; at most {most} are allowed", key=key
        )
    return value


def read_map(value: object, key: str) -> Map:
    if type(value) is not dict:
        raise make_bad_value(key, "a map")
    return value


def read_field_list(value: object) -> Mapping[str, Value]:
    """Read `fields`: a list of one-key maps, as it is written, or a plain map."""
    if type(value) is dict:
        return value
    if type(value) is not list:
        raise make_bad_value("fields", "a list of one-key maps, or a map")
    fields: dict[str, Value] = {}
    for item in value:
        if type(item) is not dict or len(item) != 1:
            raise make_bad_value("fields", "a list of maps with one key each")
        for name, content in item.items():
            if name in fields:
                raise MessageError("message.duplicate-field", f"the field {name[:60]!r} is named twice", field=name)
            fields[name] = content
    return fields


def write_fields(fields: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Return `fields` as the specification shows it: a list of one-key maps."""
    return [{name: content} for name, content in fields.items()]


EntryPair = tuple[bytes, bytes | None]
"""An entry on its way between nodes, with its payload or without."""


def read_entry_pair(value: object, code: str) -> EntryPair:
    """Read `[entry]` or `[entry, payload]`; raises a `ParcelError` with the code."""
    if type(value) is not list or not 1 <= len(value) <= 2 or any(type(part) is not bytes for part in value):
        raise ParcelError(code, "an entry comes as [entry] or [entry, payload]")
    return value[0], value[1] if len(value) == 2 else None


def write_entry_pairs(items: Iterable[EntryPair]) -> list[Value]:
    """Return each item as `[entry]` or `[entry, payload]`."""
    return [[entry] if payload is None else [entry, payload] for entry, payload in items]
