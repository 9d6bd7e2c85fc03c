"""Hashes with their two-byte header: YAMF BLAKE2b-512, which we write, and YASMF BLAKE3-256, which we also read.

docs/protocol.md section 2.
"""

from binascii import unhexlify
from enum import Enum
from hashlib import blake2b
from typing import Final

from blake3 import blake3

from inkgrove.core.errors import BadHashText, HashError


class Hash(bytes):
    """A hash with its header; of an entry, a payload or a blob."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.hex()


class Flavour(Enum):
    """Which of the two hash formats a log uses; the value is the header."""

    YAMF = b"\x00\x40"
    YASMF = b"\x00\x20"


HASH_BYTES: Final = {Flavour.YAMF: 66, Flavour.YASMF: 34}
_HASH_BYTES_BY_HEADER: Final = {flavour.value: size for flavour, size in HASH_BYTES.items()}


def hash_yamf(data: bytes) -> Hash:
    """BLAKE2b-512 with its YAMF header."""
    return Hash(b"\x00\x40" + blake2b(data).digest())


def hash_yasmf(data: bytes) -> Hash:
    """BLAKE3-256 with its YASMF header."""
    return Hash(b"\x00\x20" + blake3(data).digest())


def hash_bytes(data: bytes, flavour: Flavour = Flavour.YAMF) -> Hash:
    """The hash of `data` in the given flavour."""
    return hash_yamf(data) if flavour is Flavour.YAMF else hash_yasmf(data)


def hash_like(data: bytes, other: bytes) -> Hash:
    """The hash of `data` in the flavour of another, well-formed hash."""
    return hash_yamf(data) if other[1] == 0x40 else hash_yasmf(data)


def flavour_of(value: bytes) -> Flavour:
    """The flavour of a well-formed hash."""
    return Flavour(bytes(value[:2]))


def decode_hash(data: bytes, start: int = 0) -> tuple[Hash, int]:
    """The hash at `start` and the position behind it."""
    size = _HASH_BYTES_BY_HEADER.get(data[start : start + 2])
    if size is None:
        header = data[start : start + 2]
        if header in (b"", b"\x00"):
            raise HashError("hash.truncated", "a hash is missing at the end of the bytes", position=start)
        raise HashError(
            "hash.unknown", f"no hash has the header {header.hex()}; 0040 and 0020 are known", position=start
        )
    end = start + size
    if end > len(data):
        raise HashError("hash.truncated", "a hash is cut off at the end of the bytes", position=start)
    return Hash(data[start:end]), end


def is_hash(value: bytes) -> bool:
    """Whether the bytes are exactly one hash of a known flavour."""
    return _HASH_BYTES_BY_HEADER.get(bytes(value[:2])) == len(value)


def parse_hash(text: str) -> Hash:
    """The hash written as hex."""
    try:
        value = unhexlify(text)
    except ValueError as err:
        raise BadHashText(f"{text!r} is not hex") from err
    if not is_hash(value):
        raise BadHashText(f"{text!r} is not a hash: 66 bytes from 0040 or 34 bytes from 0020 in hex")
    return Hash(value)
