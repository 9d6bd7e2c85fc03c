"""Bulk verification of entries, for imports and audits; never trusts the order of rows.

docs/protocol.md section 2. Bytes, signatures and payload hashes are checked in Arrow batches; claims and forks are a
group-by and links are two joins, both Spark's own. The result is a verdict on each log: in a *clean* one every entry
has a path to entry 1, nothing contradicts anything, nobody lied and nothing follows the end; so its entries can be
appended as they are. In any other log `store.logs.decision` decides on each entry, one after the other.

Entries of a whole batch are decoded at once, column by column. Only well-formed ones are understood there, and
strictly; whatever looks odd is left to `core.entry.decode_entry`, which has the last word and knows the reason.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    array,
    bool_and,
    bool_or,
    coalesce,
    col,
    count,
    explode,
    expr,
    greatest,
    lit,
    struct,
    when,
)
from pyspark.sql.functions import max as max_
from pyspark.sql.types import LongType

from inkgrove.core import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Entry,
    PublicKey,
    check_storable,
    decode_entry,
    hash_yamf,
    hash_yasmf,
    lipmaa,
    verify_signature,
)
from inkgrove.core.errors import BadSignature, InkgroveError, PayloadHashMismatch
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.pipeline.tables import CHECKED

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FIRST_VARINT = 1 + KEY_BYTES
_SHORTEST = _FIRST_VARINT + 3 + 34 + SIGNATURE_BYTES
_LONGEST = _FIRST_VARINT + 27 + 3 * 66 + SIGNATURE_BYTES
_lipmaa = lru_cache(maxsize=1 << 16)(lipmaa)


class EntryColumns(NamedTuple):
    """The entries of a batch, decoded column by column; rows that are no entry have their error in `refused`."""

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
    """Where each value begins, and the bytes of all, with zeros behind them so that reading too far is harmless."""
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
    for byte in range(1, int(width.max(initial=0)) + 1):
        longer = (value << np.uint64(8)) | data[at + byte]
        value = np.where(width >= byte, longer, value)
    is_shortest = (width == 0) | ((data[at + 1] != 0) & (value > 247))
    is_storable = value <= MAX_STORED_INTEGER
    return np.where(is_storable, value, 0).astype(np.int64), at + 1 + width, is_shortest & is_storable


def _hash_sizes(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Flags]:
    length = data[at + 1].astype(np.int64)
    return length + 2, (data[at] == 0) & ((length == 64) | (length == 32))


def _lipmaa_links(seq_num: Numbers, good: Flags) -> Numbers:
    different, index = np.unique(np.where(good, seq_num, 1), return_inverse=True)
    linked = [target if (target := _lipmaa(n)) != n - 1 else 0 for n in different.tolist()]
    return np.array(linked, np.int64)[index]


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


def check_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bytes, signature and payload hash of each entry; what fails carries its code."""
    encoded, payloads = batch.column(0), batch.column(1)
    found = decode_columns(encoded)
    hashes, is_lie, errors = _check_rows(found, encoded.to_pylist(), payloads.to_pylist())
    is_bad = pa.array([entry_hash is None for entry_hash in hashes])
    payload_errors = [row for row, error in errors.items() if isinstance(error, PayloadHashMismatch)]
    if payload_errors:
        is_rubbish = pa.array([row in payload_errors for row in range(len(batch))])
        payloads = pa.compute.if_else(is_rubbish, pa.scalar(None, pa.binary()), payloads)
    codes, messages = [None] * len(batch), [None] * len(batch)
    for row, error in errors.items():
        codes[row], messages[row] = error.code, error.message  # type: ignore[call-overload]
    nothing = pa.scalar(None, pa.binary())
    columns = [
        pa.compute.if_else(is_bad, nothing, found.log) if errors else found.log,
        pa.array(found.seq_num),
        pa.array(hashes, pa.binary()),
        encoded,
        payloads,
        pa.array(found.lipmaa_seq),
        pa.array(found.links_at),
        pa.array(found.is_end),
        pa.array(is_lie, pa.bool_()),
        pa.array(codes, pa.string()),
        pa.array(messages, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHECKED)


def _check_rows(
    found: EntryColumns, encoded: list[bytes], payloads: list[bytes | None]
) -> tuple[list[bytes | None], list[bool], dict[int, InkgroveError]]:
    """The hash of each signed entry, whether its payload proves a lie, and what is wrong with the others."""
    errors = dict(found.refused)
    hashes: list[bytes | None] = [None] * len(encoded)
    is_lie = [False] * len(encoded)
    rows = zip(encoded, payloads, found.hash_size.tolist(), found.payload_size.tolist(), strict=True)
    for row, (data, payload, hash_size, payload_size) in enumerate(rows):
        if row in errors:
            continue
        signed = data[:-SIGNATURE_BYTES]
        try:
            verify_signature(PublicKey(data[1:33]), signed, data[-SIGNATURE_BYTES:])
        except BadSignature as error:
            errors[row] = error
            continue
        hash_of = hash_yamf if hash_size == 66 else hash_yasmf
        hashes[row] = hash_of(data)
        if payload is not None:
            if hash_of(payload) != signed[-hash_size:]:
                seq_num = int(found.seq_num[row])
                errors[row] = PayloadHashMismatch(f"these bytes are not the payload of entry {seq_num}")
            elif len(payload) != payload_size:
                is_lie[row] = True
    return hashes, is_lie, errors


def with_links(entries: DataFrame) -> DataFrame:
    """Signed entries with the hashes they link to; what an entry does not carry is null."""
    has_lipmaa = col("lipmaa_seq") > 0
    first = expr("substring(entry, cast(links_at as int) + 1, length(hash))")
    second = expr("substring(entry, cast(links_at as int) + 1 + length(hash), length(hash))")
    return entries.where(col("hash").isNotNull()).select(
        "log",
        "seq_num",
        "hash",
        "lipmaa_seq",
        when(has_lipmaa, first).alias("lipmaa_link"),
        when(col("seq_num") > 1, when(has_lipmaa, second).otherwise(first)).alias("backlink"),
        "is_end",
        "is_lie",
    )


def claims_of(linked: DataFrame) -> DataFrame:
    """Every hash that an entry claims for its own sequence number and for those it links to."""

    def claim(at: Column, claimed: str, *, is_own: bool) -> Column:
        end_at = when(col("is_end"), col("seq_num")) if is_own else lit(None).cast(LongType())
        is_lie = col("is_lie") if is_own else lit(False)
        own = at.alias("at"), col(claimed).alias("hash"), lit(is_own).alias("is_there"), end_at.alias("end_at")
        return struct(*own, is_lie.alias("is_lie"))

    claims = array(
        claim(col("seq_num"), "hash", is_own=True),
        claim(col("seq_num") - 1, "backlink", is_own=False),
        claim(col("lipmaa_seq"), "lipmaa_link", is_own=False),
    )
    return linked.select("log", explode(claims).alias("claim")).select("log", "claim.*").where("hash is not null")


def judge_logs(
    linked: DataFrame, held_logs: DataFrame | None = None, held_claims: DataFrame | None = None
) -> DataFrame:
    """`log`, `is_clean`, and `height` and `held` of the log in the store, for every log of the entries."""
    claims = claims_of(linked)
    if held_claims is not None:
        nothing = lit(None).cast(LongType()).alias("end_at"), lit(False).alias("is_lie")
        claims = claims.unionByName(held_claims.select("log", "at", "hash", "is_there", *nothing))
    # Distinct claims, then sequence numbers, then logs: three group-bys, and one exchange at most.
    distinct = claims.groupBy("log", "at", "hash").agg(
        bool_or("is_there").alias("is_there"), max_("end_at").alias("end_at"), bool_or("is_lie").alias("is_lie")
    )
    seq_nums = distinct.groupBy("log", "at").agg(
        count("*").alias("hashes"),
        bool_and("is_there").alias("is_there"),
        max_("end_at").alias("end_at"),
        bool_or("is_lie").alias("is_lie"),
    )
    logs = seq_nums.groupBy("log").agg(
        max_("hashes").alias("hashes"),
        bool_and("is_there").alias("is_whole"),
        max_("at").alias("last"),
        expr("min(end_at)").alias("end_at"),
        bool_or("is_lie").alias("is_lie"),
    )
    if held_logs is not None:
        logs = logs.join(held_logs, "log", how="left")
        height, held = coalesce("height", lit(0)), coalesce("held", lit(0))
        is_open = ~coalesce("is_closed", lit(False))
    else:
        height, held, is_open = lit(0).cast(LongType()), lit(0).cast(LongType()), lit(True)
    is_last = coalesce(col("end_at") == greatest(col("last"), height), lit(True))
    return logs.select(
        "log",
        ((col("hashes") == 1) & ~col("is_lie") & is_last & is_open).alias("is_clean"),
        "is_whole",
        height.alias("height"),
        held.alias("held"),
    )


def keep_without_path(linked: DataFrame, held_claims: DataFrame | None = None) -> DataFrame:
    """The logs in which an entry links to nothing that is there; where claims agree, all others have a path to 1."""
    there = linked.select(col("log").alias("of"), col("seq_num").alias("at"), col("hash").alias("target"))
    if held_claims is not None:
        held = held_claims.where("is_there").select(col("log").alias("of"), "at", col("hash").alias("target"))
        there = there.union(held)
    there = there.distinct()
    by_backlink = there.select("of", (col("at") + 1).alias("at"), col("target").alias("before"))
    by_lipmaa = there.select(col("of").alias("of2"), col("at").alias("at2"), col("target").alias("far"))
    back = (col("log") == col("of")) & (col("seq_num") == col("at")) & (col("backlink") == col("before"))
    far = (col("log") == col("of2")) & (col("lipmaa_seq") == col("at2")) & (col("lipmaa_link") == col("far"))
    followers = linked.where(col("seq_num") > 1)
    reached = followers.join(by_backlink, back, how="left").join(by_lipmaa, far, how="left")
    return reached.where(col("before").isNull() & col("far").isNull()).select("log").distinct()
