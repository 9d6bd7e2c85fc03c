"""Every table that passes through Spark, once: its columns as Arrow has them; `spark_schema` gives Spark's notation."""

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of an Arrow table in the notation of Spark."""
    return from_arrow_schema(schema)


def _given(name: str, kind: pa.DataType) -> pa.Field:
    """A column without nulls."""
    return pa.field(name, kind, nullable=False)


# Views

DIRTY: Final = pa.schema(
    [("log", pa.int64()), ("create_seq", pa.int64()), ("xid", pa.int64()), ("position", pa.int64())]
)
"""A group of messages to fold; without `create_seq` a whole log; without `log` only how far the reader has come."""

FOLDED: Final = pa.schema(
    [
        ("stage", pa.string()),
        ("groups", pa.int64()),
        ("rows", pa.int64()),
        ("applied", pa.int64()),
        ("pending", pa.int64()),
        ("quarantined", pa.int64()),
        ("obsolete", pa.int64()),
        ("xid", pa.int64()),
        ("position", pa.int64()),
    ]
)
"""What a task that folds reports: where it staged, how much, and the newest position it has seen."""

STAGED: Final = pa.schema([("stage", pa.string())])
"""What a task that only stages rows reports: the name of its stage."""

_GROUP: Final = [("log", pa.int64()), ("create_seq", pa.int64())]
_INSTANCE: Final = [("view", pa.int64()), ("instance", pa.binary())]

RELATIONS: Final = {
    "edges": pa.schema(
        [*_INSTANCE, ("is_element", pa.bool_()), ("target_view", pa.int64()), ("target", pa.binary()), *_GROUP]
    ),
    "deleted": pa.schema([*_INSTANCE, *_GROUP]),
    "folded": pa.schema(_GROUP),
    "gone": pa.schema(_INSTANCE),
}
"""What the cascade is computed from: relations, deletions, and the groups of which both are old; what comes of it."""

# Archives

ARCHIVE: Final = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
"""The lines of an archive."""

CHECKED: Final = pa.schema(
    [
        ("log", pa.binary()),
        ("seq_num", pa.int64()),
        ("hash", pa.binary()),
        ("entry", pa.binary()),
        ("payload", pa.binary()),
        ("lipmaa_seq", pa.int64()),
        ("links_at", pa.int64()),
        ("is_end", pa.bool_()),
        ("is_lie", pa.bool_()),
        ("code", pa.string()),
        ("message", pa.string()),
    ]
)
"""A line of an archive, checked on its own; without `hash` it is no signed entry, rubbish payloads are left out."""

HELD_LOGS: Final = pa.schema(
    [
        ("log", pa.binary()),
        ("id", pa.int64()),
        ("height", pa.int64()),
        ("held", pa.int64()),
        ("is_closed", pa.bool_()),
    ]
)
"""Logs as the store has them; closed ones are forked, ended or hold a lie."""

HELD_CLAIMS: Final = pa.schema(
    [("log", pa.binary()), ("at", pa.int64()), ("hash", pa.binary()), ("is_there", pa.bool_())]
)
"""What entries of the store say about sequence numbers that an archive speaks of too."""

LOADED: Final = pa.schema(
    [
        ("status", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("entry", pa.binary()),
        ("rows", pa.int64()),
    ]
)
"""What an import did with lines: of refused ones each on its own, of others only how many."""

# Rot

STORED_COPIES: Final = pa.schema(
    [
        ("instance", pa.binary()),
        ("log", pa.int64()),
        ("create_seq", pa.int64()),
        ("owner", pa.binary()),
        ("schema", pa.int64()),
        ("arrival", pa.int64()),
        ("born", pa.int64()),
        ("noted", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("blob_bytes", pa.int64()),
        ("reads", pa.float64()),
        ("last_read", pa.int64()),
        ("new_reads", pa.int64()),
        ("freshness", pa.float64()),
        ("step", pa.string()),
        ("changed", pa.int64()),
        ("expires", pa.int64()),
        ("ended", pa.int64()),
        ("cooked", pa.int64()),
        ("guard", pa.string()),
    ]
)
"""The copies of a store that can rot, as the store has them."""

COPIES: Final = pa.schema(
    [
        _given("instance", pa.binary()),
        _given("stratum", pa.string()),  # owner and schema: what `stratified` keeps a share of each of
        _given("arrival", pa.int64()),  # the position at which it came; two copies never share one
        _given("born", pa.int64()),  # the tick in which it came
        _given("bytes", pa.int64()),
        _given("reads", pa.float64()),  # decayed count, as of the last read
        ("last_read", pa.int64()),  # the tick; none if nobody ever read it
        _given("freshness", pa.float64()),  # 1 when it came
    ]
)
"""What a fungus knows of each copy; further columns pass through it."""

_SUMMARY_KEY: Final = [
    _given("reader", pa.binary()),
    _given("owner", pa.binary()),
    _given("schema", pa.int64()),
    _given("month", pa.string()),  # YYYY-MM
    _given("field", pa.string()),  # empty: the copy itself
]

VALUES: Final = pa.schema(
    [
        *_SUMMARY_KEY,
        _given("instance", pa.binary()),
        _given("arrival", pa.int64()),
        _given("bytes", pa.int64()),  # of the copy; only beside the empty field
        ("number", pa.float64()),
        ("text", pa.string()),
    ]
)
"""What is to be cooked: one row for each copy and one for each of its values that is not null."""

SUMMARIES: Final = pa.schema(
    [
        *_SUMMARY_KEY,
        _given("count", pa.int64()),
        _given("bytes", pa.int64()),
        ("sum", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("quantiles", pa.binary()),  # KLL sketch of doubles
        ("distinct", pa.binary()),  # HLL sketch of texts
        _given("first", pa.binary()),
        _given("last", pa.binary()),
    ]
)
"""What cooking leaves of each field."""
