"""Entries of a whole Arrow batch decoded at once, column by column (docs/protocol.md section 2).

Only well-formed entries are understood here, and strictly; whatever looks odd is left to `core.entry.decode_entry`,
which has the last word and knows the reason.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inkgrove.core.entry import Entry, check_storable, decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import KEY_BYTES, SIGNATURE_BYTES
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.core.lipmaa import lipmaa

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FIRST_VARINT = 1 + KEY_BYTES
_SHORTEST = _FIRST_VARINT + 3 + 34 + SIGNATURE_BYTES
_LONGEST = _FIRST_VARINT + 27 + 3 * 66 + SIGNATURE_BYTES
_lipmaa = lru_cache(maxsize=1 << 16)(lipmaa)


class EntryColumns(NamedTuple):
    """What the entries of a batch say; rows that are no entry have their refusal in `refused`."""

    log: pa.Array
    """Author and log id as one key."""
    seq_num: Numbers
    lipmaa_seq: Numbers
    """Where the lipmaa link leads; 0 if the entry carries none."""
    links_at: Numbers
    """Where the links begin."""
    hash_size: Numbers
    payload_size: Numbers
    is_end: Flags
    refused: dict[int, InkgroveError]


def decode_columns(encoded: pa.Array) -> EntryColumns:
    """Decode a column of entries; null counts as no bytes."""
    count = len(encoded)
    offsets, data = _buffers(encoded)
    start, size = offsets[:-1], np.diff(offsets)
    tag = data[start]
    good = (size >= _SHORTEST) & (size <= _LONGEST) & (tag <= 1)
    log_id, at, is_valid = _varints(data, start + _FIRST_VARINT)
    good &= is_valid
    seq_num, links_at, is_valid = _varints(data, at)
    good &= is_valid & (seq_num >= 1)
    lipmaa_seq = _lipmaa_links(seq_num, good)
    has_backlink, has_lipmaa = seq_num > 1, lipmaa_seq > 0
    # The length byte of the first hash says how long all of them are.
    hash_size, is_valid = _hash_sizes(data, links_at)
    good &= is_valid | ~has_backlink
    hash_size = np.where(has_backlink, hash_size, 0)
    second_size, is_valid = _hash_sizes(data, links_at + hash_size)
    good &= (is_valid & (second_size == hash_size)) | ~has_lipmaa
    payload_size, at, is_valid = _varints(data, links_at + hash_size * (has_backlink * 1 + has_lipmaa))
    good &= is_valid
    payload_hash_size, is_valid = _hash_sizes(data, at)
    good &= is_valid & ((payload_hash_size == hash_size) | ~has_backlink)
    good &= at + payload_hash_size + SIGNATURE_BYTES == start + size
    names = np.empty((count, KEY_BYTES + 8), np.uint8)
    names[:, :KEY_BYTES] = data[(start + 1)[:, None] + np.arange(KEY_BYTES)]
    names[:, KEY_BYTES:] = log_id.astype(">i8").view(np.uint8).reshape(count, 8)
    columns = seq_num, lipmaa_seq, links_at - start, payload_hash_size, payload_size, tag == 1
    refused: dict[int, InkgroveError] = {}
    for row in np.flatnonzero(~good).tolist():
        try:
            entry = decode_entry(encoded[row].as_py() or b"")
            check_storable(entry)
        except InkgroveError as error:
            refused[row] = error
        else:
            names[row], values = _plain(entry)
            for column, value in zip(columns, values, strict=True):
                column[row] = value
    return EntryColumns(_binary(names), *columns, refused)


def _buffers(encoded: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Where each value begins, and the bytes of all, with room behind them for looking too far."""
    _, offsets, data = encoded.buffers()
    ends = np.frombuffer(offsets, np.int32)[encoded.offset : encoded.offset + len(encoded) + 1].astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(encoded) else (0, 0)
    values = np.zeros(last - first + 2 * _LONGEST, np.uint8)
    if last > first:
        values[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    return ends - first, values


def _varints(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """Integers, the positions behind them, and whether each is the shortest form of a number that can be stored."""
    first = data[at].astype(np.int64)
    width = np.maximum(first - 247, 0)
    value = np.where(width == 0, first, 0).astype(np.uint64)
    for place in range(1, int(width.max(initial=0)) + 1):
        longer = (value << np.uint64(8)) | data[at + place]
        value = np.where(width >= place, longer, value)
    is_shortest = (width == 0) | ((data[at + 1] != 0) & (value > 247))
    is_storable = value <= MAX_STORED_INTEGER
    return np.where(is_storable, value, 0).astype(np.int64), at + 1 + width, is_shortest & is_storable


def _hash_sizes(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Flags]:
    length = data[at + 1].astype(np.int64)
    return length + 2, (data[at] == 0) & ((length == 64) | (length == 32))


def _lipmaa_links(seq_num: Numbers, good: Flags) -> Numbers:
    different, place = np.unique(np.where(good, seq_num, 1), return_inverse=True)
    linked = [target if (target := _lipmaa(n)) != n - 1 else 0 for n in different.tolist()]
    return np.array(linked, np.int64)[place]


def _plain(entry: Entry) -> tuple[npt.NDArray[np.uint8], tuple[int, ...]]:
    name = np.frombuffer(entry.author + entry.log_id.to_bytes(8, "big"), np.uint8)
    size = len(entry.payload_hash)
    lipmaa_seq = lipmaa(entry.seq_num) if entry.lipmaa_link else 0
    widths = [1 if value <= 247 else 1 + (value.bit_length() + 7) // 8 for value in (entry.log_id, entry.seq_num)]
    links_at = _FIRST_VARINT + sum(widths)
    return name, (entry.seq_num, lipmaa_seq, links_at, size, entry.payload_size, entry.is_end_of_log)


def _binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])
