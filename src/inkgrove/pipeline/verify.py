"""Bulk verification of entries, for imports and audits; never trusts the order of rows.

docs/protocol.md section 2. Bytes, signatures and payload hashes are checked in Arrow batches; claims and forks are a
group-by and links are two joins, both Spark's own. The result is a verdict on each log: in a *clean* one every entry
has a path to entry 1, nothing contradicts anything, nobody lied and nothing follows the end; so its entries can be
appended as they are. In any other log `store.decide` has to look at each entry, one after the other.
"""

from collections.abc import Iterator

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

from inkgrove.core.errors import BadSignature, InkgroveError, PayloadHashMismatch
from inkgrove.core.hashing import hash_yamf, hash_yasmf
from inkgrove.core.keys import SIGNATURE_BYTES, PublicKey, verify_signature
from inkgrove.pipeline.entry_columns import EntryColumns, decode_columns
from inkgrove.pipeline.tables import CHECKED


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


def check_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for `mapInArrow`, on the columns `entry` and `payload`."""
    for batch in batches:
        yield check_batch(batch)


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
    """Every hash that an entry claims for its own place and for those it links to."""

    def claim(at: Column, claimed: str, *, is_own: bool) -> Column:
        end_at = when(col("is_end"), col("seq_num")) if is_own else lit(None).cast(LongType())
        is_lie = col("is_lie") if is_own else lit(False)
        facts = at.alias("at"), col(claimed).alias("hash"), lit(is_own).alias("is_there"), end_at.alias("end_at")
        return struct(*facts, is_lie.alias("is_lie"))

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
    # Distinct claims, then places, then logs: three group-bys, and one exchange at most.
    distinct = claims.groupBy("log", "at", "hash").agg(
        bool_or("is_there").alias("is_there"), max_("end_at").alias("end_at"), bool_or("is_lie").alias("is_lie")
    )
    places = distinct.groupBy("log", "at").agg(
        count("*").alias("hashes"),
        bool_and("is_there").alias("is_there"),
        max_("end_at").alias("end_at"),
        bool_or("is_lie").alias("is_lie"),
    )
    logs = places.groupBy("log").agg(
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
