"""Every table that passes through Spark, once: what is dirty goes in, counts and names come out."""

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, DataType, LongType, StringType, StructField, StructType

DIRTY = pa.schema([("log", pa.int64()), ("create_seq", pa.int64()), ("xid", pa.int64()), ("position", pa.int64())])
"""A group of messages to fold; without `create_seq` a whole log; without `log` only how far the reader has come."""

RESULT = pa.schema(
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
"""What a task reports: where it staged, how much, and the newest position it has seen."""

GONE_RESULT = pa.schema([("stage", pa.string())])
"""What a task of the cascade reports."""

_GROUP = [("log", pa.int64()), ("create_seq", pa.int64())]
_INSTANCE = [("view", pa.int64()), ("instance", pa.binary())]
RELATIONS = {
    "edges": pa.schema(
        [*_INSTANCE, ("is_element", pa.bool_()), ("target_view", pa.int64()), ("target", pa.binary()), *_GROUP]
    ),
    "deleted": pa.schema([*_INSTANCE, *_GROUP]),
    "folded": pa.schema(_GROUP),
    "gone": pa.schema(_INSTANCE),
}
"""What the cascade is computed from: relations, deletions, and the groups of which both are old; what comes of it."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    types: dict[pa.DataType, DataType] = {
        pa.int64(): LongType(),
        pa.string(): StringType(),
        pa.binary(): BinaryType(),
        pa.bool_(): BooleanType(),
    }
    return StructType([StructField(field.name, types[field.type]) for field in schema])
