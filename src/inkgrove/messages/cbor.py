"""The CBOR profile of messages: core-deterministic out, strict in (docs/protocol.md section 3).

cbor2 reads what it and a check of its result find clean. Everything else goes to `decode_strictly`, which reads the
bytes itself, allocates nothing on the word of a length prefix, and names the first fault. A property test holds
the two to the same answers.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from math import isfinite
from typing import Any, Final, NoReturn, Union

from cbor2 import CBORDecodeError, CBORDecoder, CBORTag, dumps

from inkgrove.core.errors import BadTimestamp, CborError
from inkgrove.core.limits import MAX_CBOR_DEPTH
from inkgrove.messages.timestamp import Timestamp, parse_timestamp, render_timestamp, timestamp_from_seconds

Value = Union[bool, int, float, str, bytes, Timestamp, Sequence["Value"], Mapping[str, "Value"], None]  # noqa: UP007
"""What a field can hold before its schema has been asked."""


def encode(value: Value) -> bytes:
    """The core-deterministic encoding; a value that no reader would take is refused with the reader's reason."""
    data = encode_unchecked(value)
    decode(data)
    return data


def encode_unchecked(value: Value) -> bytes:
    """The same, whether or not a reader would take it."""
    try:
        return dumps(value, canonical=True, default=_encode_timestamp)
    except UnicodeEncodeError as err:
        raise CborError("cbor.bad-utf8", "a text with a lone surrogate") from err


def _encode_timestamp(encoder: Any, value: object) -> None:
    if not isinstance(value, Timestamp):
        raise TypeError(f"no message holds a {type(value).__name__}")
    encoder.encode(CBORTag(0, render_timestamp(value)))


class _OnlyTimestampTags(dict[int, Callable[[Any, bool], object]]):
    """Replaces every tag decoder of cbor2, those of future versions included, by a refusal."""

    def __missing__(self, tag: int) -> Callable[[Any, bool], object]:
        return _refuse_tag


def _refuse_tag(_value: object, _immutable: bool) -> NoReturn:
    raise CborError("cbor.forbidden-tag", "a tag other than 0 and 1")


def _timestamp_from_text(value: object, _immutable: bool = False) -> Timestamp:
    if type(value) is not str:
        raise CborError("cbor.bad-timestamp", "tag 0 holds a text")
    try:
        return parse_timestamp(value)
    except BadTimestamp as err:
        raise CborError("cbor.bad-timestamp", err.message) from err


def _timestamp_from_number(value: object, _immutable: bool = False) -> Timestamp:
    if type(value) is not int and (type(value) is not float or not isfinite(value)):
        raise CborError("cbor.bad-timestamp", "tag 1 holds a number")
    try:
        return timestamp_from_seconds(value)
    except BadTimestamp as err:
        raise CborError("cbor.bad-timestamp", err.message) from err


_TIMESTAMP_TAGS = {0: _timestamp_from_text, 1: _timestamp_from_number}
_TAGS = _OnlyTimestampTags(_TIMESTAMP_TAGS)


_LARGE: Final = 1024 * 1024
"""More than any message has: what is larger comes from other nodes and clients, and is mostly entries."""
_MOST_PARTS: Final = 20_000
_BYTES_PER_PART: Final = 64


def decode(data: bytes) -> Value:
    """The one value that the bytes hold, or the reason why they are refused.

    What is large must not be made of many small parts, which would take a hundred times its size.
    """
    is_large = len(data) > _LARGE
    if is_large and not _has_few_parts(data, _MOST_PARTS + len(data) // _BYTES_PER_PART):
        raise CborError("cbor.too-complex", f"{len(data):,} bytes have more parts than they need")
    stream = BytesIO(data)
    try:
        value: Value = CBORDecoder(
            stream,
            # cbor2 does not count an empty container: what is as deep as allowed goes to the strict reader.
            max_depth=MAX_CBOR_DEPTH - 1,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            # Keys of other types could be made to collide in a dict: a small message would take seconds.
            strict_hashable_types=True,
            semantic_decoders=_TAGS,
        ).decode()
    except CBORDecodeError:
        return _find_fault(data)
    if stream.tell() == len(data) and _is_clean(value):
        return value
    return _find_fault(data)


def _find_fault(data: bytes) -> Value:
    if len(data) > _LARGE:  # it takes long to find out which
        raise CborError("cbor.too-complex", "the bytes are no CBOR of ours")
    return decode_strictly(data)


def _has_few_parts(data: bytes, most: int) -> bool:
    """Whether there are at most so many heads of items, as far as they can be read one after the other."""
    place = count = 0
    end = len(data)
    while place < end:
        count += 1
        if count > most:
            return False
        kind, short = divmod(data[place], 32)
        place += 1
        if short > 27:
            return True  # of no definite length: it is refused
        if short > 23:
            size = 1 << (short - 24)
            short = int.from_bytes(data[place : place + size], "big")
            place += size
        if kind in (2, 3):  # bytes and text
            place += short
    return True


def _is_clean(value: Any) -> bool:
    """Whether cbor2 let nothing through that the profile refuses."""
    waiting = [value]
    for item in waiting:  # and what is added meanwhile: a call for each part would take twice as long
        kind = type(item)
        if kind is str:
            if "\0" in item:
                return False
        elif kind is dict:
            for key in item:
                if type(key) is not str or "\0" in key:
                    return False
            waiting += item.values()
        elif kind is list:
            waiting += item
        elif kind is float:
            if not isfinite(item):
                return False
        elif kind not in _ALWAYS_CLEAN:
            return False
    return True


_ALWAYS_CLEAN = frozenset({int, bytes, bool, type(None), Timestamp})


def decode_strictly(data: bytes) -> Value:
    """The same as `decode`, reading the bytes one by one; slower, and exact about what is wrong."""
    value, position = _read(data, 0, 0)
    if position != len(data):
        raise CborError("cbor.trailing-bytes", f"{len(data) - position} bytes follow the value", position=position)
    return value


_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _OTHER = range(8)
_FLOATS = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}
_CONSTANTS: dict[int, Value] = {20: False, 21: True, 22: None}


def _read(data: bytes, position: int, depth: int) -> tuple[Value, int]:
    start = position
    if position >= len(data):
        raise CborError("cbor.truncated", "a value is missing at the end of the bytes", position=position)
    major, info = data[position] >> 5, data[position] & 31
    position += 1
    if info == 31:
        if _UNSIGNED <= major <= _NEGATIVE or major == _TAG:
            raise CborError("cbor.reserved", "a reserved form", position=start)
        raise CborError("cbor.indefinite-length", "an indefinite length or a break", position=start)
    if info > 27:
        raise CborError("cbor.reserved", "a reserved form", position=start)
    if major == _OTHER:
        return _read_float_or_constant(data, position, info)
    argument = info
    if info > 23:
        end = position + (1 << (info - 24))
        if end > len(data):
            raise CborError("cbor.truncated", "a number is cut off", position=start)
        argument, position = int.from_bytes(data[position:end], "big"), end
    if major == _UNSIGNED:
        return argument, position
    if major == _NEGATIVE:
        return -1 - argument, position
    if major == _TAG:
        if argument in (2, 3):
            raise CborError("cbor.bignum", "an integer of more than 64 bits", position=start)
        if argument not in _TIMESTAMP_TAGS:
            raise CborError(
                "cbor.forbidden-tag", f"tag {argument}; only 0 and 1 are read", position=start, tag=argument
            )
        # A tag in a tag holds no timestamp, and a long chain of them must not be followed.
        if position < len(data) and data[position] >> 5 == _TAG:
            raise CborError("cbor.bad-timestamp", "a tag inside a tag", position=position)
        content, position = _read(data, position, depth)
        return _TIMESTAMP_TAGS[argument](content), position
    # Each element takes a byte at least and each pair of a map two: a larger claim cannot be true.
    if argument * (2 if major == _MAP else 1) > len(data) - position:
        raise CborError(
            "cbor.length-exceeds-input", f"a length of {argument} is claimed, too few bytes remain", position=start
        )
    if major == _BYTES:
        return data[position : position + argument], position + argument
    if major == _TEXT:
        return _read_text(data, position, argument), position + argument
    if depth >= MAX_CBOR_DEPTH:
        raise CborError("cbor.too-deep", f"nested more than {MAX_CBOR_DEPTH} deep", position=start)
    if major == _ARRAY:
        items: list[Value] = []
        for _ in range(argument):
            item, position = _read(data, position, depth + 1)
            items.append(item)
        return items, position
    return _read_map(data, position, argument, depth + 1)


def _read_map(data: bytes, position: int, pairs: int, depth: int) -> tuple[dict[str, Value], int]:
    result: dict[str, Value] = {}
    for _ in range(pairs):
        start = position
        key, position = _read(data, position, depth)
        if not isinstance(key, str):
            raise CborError("cbor.key-not-text", "a map key that is not a text", position=start)
        if key in result:
            raise CborError(
                "cbor.duplicate-key", f"the key {key[:60]!r} stands twice in one map", position=start, key=key
            )
        result[key], position = _read(data, position, depth)
    return result, position


def _read_text(data: bytes, position: int, size: int) -> str:
    try:
        text = data[position : position + size].decode("utf-8")
    except UnicodeDecodeError as err:
        raise CborError("cbor.bad-utf8", "a text that is not UTF-8", position=position) from err
    if "\0" in text:
        raise CborError("cbor.nul-character", "a text with the character U+0000", position=position)
    return text


def _read_float_or_constant(data: bytes, position: int, info: int) -> tuple[Value, int]:
    if info in _CONSTANTS:
        return _CONSTANTS[info], position
    if info == 23:
        raise CborError("cbor.undefined", "the value undefined", position=position - 1)
    if info not in _FLOATS:
        raise CborError("cbor.simple-value", "a simple value other than false, true and null", position=position - 1)
    form, size = _FLOATS[info]
    if position + size > len(data):
        raise CborError("cbor.truncated", "a float is cut off", position=position - 1)
    value: float = struct.unpack_from(form, data, position)[0]
    if not isfinite(value):
        raise CborError("cbor.not-finite", "a float that is NaN or infinite", position=position - 1)
    return value, position + size
