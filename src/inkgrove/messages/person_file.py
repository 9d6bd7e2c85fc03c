"""The file of a person: its container, its records and their order (docs/person-file.md).

A file is a CBOR sequence (RFC 8742) of byte strings; each holds one record, a map in the profile of `cbor`. The last
byte string is the seal: how many bytes stand before it, and their BLAKE2b-512. Here is the form alone: whether
signatures, hashes and links hold is checked in `person_verification`. Nothing here reads or writes files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from inkgrove.core import (
    Hash,
    IdentityId,
    PublicKey,
    identity_of,
    is_hash,
)
from inkgrove.core.errors import InkgroveError, PersonFileError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import cbor
from inkgrove.messages.delivery import Parcel
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.value_readers import EntryPair, read_entry_pair, read_host, write_entry_pairs

PERSON_FORMAT: Final = "inkgrove person 1"
PERSON_MEDIA_TYPE: Final = "application/vnd.inkgrove.person+cbor-seq"
MAX_RECORD_BYTES: Final = 24 * 1024 * 1024
"""The largest record: a parcel of the request box is one, and as large as a delivery may be."""
MAX_BLOB_PART: Final = 1024 * 1024
"""How many bytes of a blob are in one record."""
RECORD_BYTES: Final = 256 * 1024
"""A record of entries or rows ends when it has so many bytes."""

_SEAL_MARK: Final = b"INKGROVE"
_SEAL_BYTES: Final = len(_SEAL_MARK) + 8 + 64
SEAL_SIZE: Final = 2 + _SEAL_BYTES
"""How many bytes the seal takes at the end of a file, with its head."""
MAX_HEAD: Final = 5

Record = dict[str, Any]
LogPart = Literal["own", "schema"]


def changed(why: str) -> PersonFileError:
    """Return the error for a file that is not as it was written."""
    return PersonFileError("file.changed", f"{why}: the file was changed or damaged, and nothing of it was taken in")


# The container


def encode_head(size: int) -> bytes:
    """Return the head of a CBOR byte string of so many bytes, in its shortest form."""
    if size < 24:
        return bytes([0x40 + size])
    for code, width in ((0x58, 1), (0x59, 2), (0x5A, 4)):
        if size < 1 << (8 * width):
            return bytes([code]) + size.to_bytes(width, "big")
    raise ValueError("a record of more than 4 GiB")


def decode_head(data: bytes) -> tuple[int, int]:
    """Return how long the head at the beginning of `data` is, and the byte string behind it.

    `data` has `MAX_HEAD` bytes, or fewer at the end of the file. Raises `file.changed` for anything else, and for a
    length above `MAX_RECORD_BYTES`.
    """
    code = data[0] if data else 0
    width = {0x58: 1, 0x59: 2, 0x5A: 4}.get(code, 0)
    if not (0x40 <= code < 0x58 or width) or len(data) < 1 + width:
        raise changed("a record does not begin where it should")
    size = int.from_bytes(data[1 : 1 + width], "big") if width else code - 0x40
    if size > MAX_RECORD_BYTES:
        raise changed(f"a record claims to have {size:,} bytes")
    return 1 + width, size


def encode_seal(size: int, digest: bytes) -> bytes:
    """Return the last item of a file, which has `size` bytes with this BLAKE2b-512 before it."""
    return encode_head(_SEAL_BYTES) + _SEAL_MARK + size.to_bytes(8, "big") + digest


def decode_seal(data: bytes) -> tuple[int, bytes] | None:
    """Return the size and the digest that the last `SEAL_SIZE` bytes of a file say; None if they are no seal."""
    head = encode_head(_SEAL_BYTES) + _SEAL_MARK
    if len(data) != SEAL_SIZE or not data.startswith(head):
        return None
    return int.from_bytes(data[len(head) : len(head) + 8], "big"), data[len(head) + 8 :]


# Records


@dataclass(frozen=True, slots=True)
class PersonHeader:
    """The first record: whose file it is, and when and where it was made."""

    identity: IdentityId
    key: PublicKey
    """The first key, whose thumbprint the identity is."""
    fqdn: str
    endpoint: str
    made: Timestamp


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The record before the entries of a log."""

    part: LogPart
    """`own`: of a key of the identity; `schema`: of somebody else's schema that instances in the file have."""
    author: PublicKey
    log_id: int
    height: int
    """The greatest sequence number in the file."""
    count: int
    """How many entries follow, evidence included."""
    is_whole: bool
    """Whether they are all entries from 1 to `height`, each once."""


@dataclass(frozen=True, slots=True)
class BlobHeader:
    """The record before the bytes of a blob."""

    hash: Hash
    size: int
    media_type: str | None
    """What the identity uploaded it as; None if it came with somebody else's instance."""


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """The first key of the identity, encrypted with a key that Argon2id makes of a passphrase."""

    salt: bytes
    operations: int
    memory: int
    sealed: bytes


SECTIONS: Final = ("person", "own", "copy", "schema", "rows", "secret", "blob", "end")
"""The parts of a file, in their order; each may be missing but the first and the last."""


def encode_record(kind: str, **values: cbor.Value) -> bytes:
    """Encode a record; raises `CborError` for what the profile does not hold."""
    return cbor.encode_unchecked({"kind": kind, **values})


def encode_header(header: PersonHeader) -> bytes:
    """Encode the first record."""
    return encode_record(
        "person",
        form=PERSON_FORMAT,
        identity=bytes(header.identity),
        key=bytes(header.key),
        fqdn=header.fqdn,
        endpoint=header.endpoint,
        made=header.made,
    )


def encode_log(log: LogHeader) -> bytes:
    """Encode the record before the entries of a log."""
    return encode_record(
        "log",
        of=log.part,
        author=bytes(log.author),
        log_id=log.log_id,
        height=log.height,
        count=log.count,
        whole=log.is_whole,
    )


def encode_entries(items: Sequence[EntryPair]) -> bytes:
    """Encode entries of a log with their payloads."""
    return encode_record("entries", entries=write_entry_pairs(items))


def encode_copy(parcel: Parcel, create: bytes | None) -> bytes:
    """Encode a copy that was received, or a further part of it, for which `create` is the entry that it begins with."""
    return encode_record(
        "copy", instance=bytes(parcel.instance), create=create, entries=write_entry_pairs(parcel.entries)
    )


def decode_record(body: bytes) -> Record:
    """Decode a record as far as that it is a map with a kind; raises `file.changed`."""
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise changed(f"a record is no CBOR of ours ({err.message})") from err
    if type(value) is not dict or type(value.get("kind")) is not str:
        raise changed("a record has no kind")
    return value


def read_header(body: bytes) -> PersonHeader:
    """Read the first record; raises `file.unknown-form` if it is not that of a file of a person."""
    unknown = PersonFileError(
        "file.unknown-form", f"this is no file of the form {PERSON_FORMAT!r}: it is something else, or newer"
    )
    try:
        record = decode_record(body)
    except PersonFileError:
        raise unknown from None
    if record["kind"] != "person" or record.get("form") != PERSON_FORMAT:
        raise unknown
    _keys(record, {"form", "identity", "key", "fqdn", "endpoint", "made"})
    made = record["made"]
    if type(made) is not Timestamp:
        raise changed("the time at which it was made is none")
    key = PublicKey(_bytes(record["key"], 32))
    header = PersonHeader(
        IdentityId(_bytes(record["identity"], 32)), key, _text(record["fqdn"]), _text(record["endpoint"]), made
    )
    if identity_of(key) != header.identity:
        raise changed("the identity is not that of its first key")
    return header


def read_log(record: Record) -> LogHeader:
    """Read the record before the entries of a log."""
    _keys(record, {"of", "author", "log_id", "height", "count", "whole"})
    part = record["of"]
    if part not in ("own", "schema"):
        raise changed("a log is of no known part")
    log = LogHeader(
        part,
        PublicKey(_bytes(record["author"], 32)),
        _number(record["log_id"]),
        _number(record["height"]),
        _number(record["count"]),
        _flag(record["whole"]),
    )
    if log.count < 1 or log.height < 1 or (log.is_whole and log.count != log.height):
        raise changed("a log has not as many entries as it says")
    return log


def read_entries(record: Record) -> list[EntryPair]:
    """Read entries of a log with their payloads."""
    _keys(record, {"entries"})
    return [_entry_pair(item) for item in _list(record["entries"])]


def read_copy(record: Record) -> tuple[Hash, bytes | None, list[EntryPair]]:
    """Read a copy: the instance, the entry that it begins with if this is a further part, and the entries."""
    _keys(record, {"instance", "create", "entries"})
    create = record["create"]
    entries = [_entry_pair(item) for item in _list(record["entries"])]
    return _hash(record["instance"]), None if create is None else _bytes(create), entries


def read_blob(record: Record) -> BlobHeader:
    """Read the record before the bytes of a blob."""
    _keys(record, {"hash", "size", "type"})
    media_type = record["type"]
    return BlobHeader(
        _hash(record["hash"]), _number(record["size"]), None if media_type is None else _text(media_type, 255)
    )


def read_part(record: Record) -> bytes:
    """Read bytes of a blob."""
    _keys(record, {"bytes"})
    part = _bytes(record["bytes"])
    if not 1 <= len(part) <= MAX_BLOB_PART:
        raise changed("a part of a blob is empty or too long")
    return part


def read_secret(record: Record) -> SealedSecret:
    """Read the sealed secret."""
    _keys(record, {"salt", "operations", "memory", "sealed"})
    return SealedSecret(
        _bytes(record["salt"], 16),
        _number(record["operations"]),
        _number(record["memory"]),
        _bytes(record["sealed"], 72),
    )


def read_counts(record: Record) -> dict[str, int]:
    """Read how many of each the file holds, from its last record."""
    _keys(record, {"counts"})
    counts = record["counts"]
    if type(counts) is not dict:
        raise changed("the counts are no map")
    return {name: _number(count) for name, count in counts.items()}


# Rows: what a node keeps of a person beside the logs


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_STORED_INTEGER:
        raise changed("a number is none, or too large")
    return value


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise changed("something is neither true nor false")
    return value


def _bytes(value: object, length: int | None = None) -> bytes:
    if type(value) is not bytes or (length is not None and len(value) != length):
        raise changed("a byte string has the wrong type or length")
    return value


def _text(value: object, most: int = 1000) -> str:
    if type(value) is not str or len(value) > most:
        raise changed("a text is none, or too long")
    return value


def _hash(value: object) -> Hash:
    if type(value) is not bytes or not is_hash(value):
        raise changed("a hash is none")
    return Hash(value)


def _list(value: object) -> list[Any]:
    if type(value) is not list or not value:
        raise changed("a list is none, or empty")
    return value


def _keys(record: Record, names: set[str]) -> None:
    if record.keys() != {"kind", *names}:
        raise changed(f"a record {str(record['kind'])[:20]!r} has other keys than it should")


def _entry_pair(value: object) -> EntryPair:
    try:
        return read_entry_pair(value, "parcel.bad")
    except InkgroveError as err:
        raise changed(err.message) from err


def _id(value: object) -> bytes:
    return _bytes(value, 32)


def _optional(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


def _one_of(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise changed("a state is none")
        return str(value)

    return read


def _short(value: object) -> str:
    return _text(value, 253)


def _host(value: object) -> str:
    try:
        return read_host(value, "fqdn")
    except InkgroveError as err:
        raise changed(err.message) from err


_STATES: Final = _one_of("waiting", "delivered", "held", "refused", "given-up")
ROWS: Final[dict[str, dict[str, Callable[[object], Any]]]] = {
    "relations": {
        "follower": _id,
        "followee": _id,
        "state": _one_of("requested", "accepted", "refused", "blocked"),
        "group": _optional(lambda value: _text(value, 64)),
        "changed": _number,
    },
    "shares": {"instance": _hash, "identity": _id, "shared": _number},
    "senders": {"sender": _id, "since": _number},
    "requests": {
        "via": _id,
        "instance": _hash,
        "parcel": _bytes,
        "arrived": _number,
        "schema": _optional(_short),
    },
    "deliveries": {
        "instance": _hash,
        "recipient": _id,
        "wanted": _number,
        "delivered": _number,
        "state": _STATES,
        "code": _optional(lambda value: _text(value, 64)),
        "queued": _number,
        "changed": _number,
    },
    "pending": {
        "name": _short,
        "instance": _hash,
        "state": _one_of("waiting", "refused", "given-up"),
        "code": _optional(lambda value: _text(value, 64)),
        "queued": _number,
        "changed": _number,
    },
    "moves": {
        "other": _id,
        "as_follower": _flag,
        "move": _one_of("request", "end", "accept", "refuse", "remove", "block"),
        "queued": _number,
    },
    "backlogs": {"follower": _id, "queued": _number},
    "pins": {"instance": _hash, "pinned": _number},
    "withheld": {"hash": _hash, "instance": _hash, "author": _id},
    "people": {"identity": _id, "fqdn": _host},
}
"""The tables that a file can hold rows of, in their order, each with its columns."""


def encode_rows(table: str, rows: Sequence[Sequence[cbor.Value]]) -> bytes:
    """Encode rows of a table, whose values are in the order of its columns."""
    return encode_record("rows", table=table, rows=[list(row) for row in rows])


def read_rows(record: Record) -> tuple[str, list[dict[str, Any]]]:
    """Read rows: the table, and each row by column."""
    _keys(record, {"table", "rows"})
    table = record["table"]
    if type(table) is not str or table not in ROWS:
        raise changed("rows are of no known table")
    columns = ROWS[table]
    found = []
    for row in _list(record["rows"]):
        if type(row) is not list or len(row) != len(columns):
            raise changed(f"a row of {table} has more or fewer columns than it should")
        found.append({name: read(value) for (name, read), value in zip(columns.items(), row, strict=True)})
    return table, found
