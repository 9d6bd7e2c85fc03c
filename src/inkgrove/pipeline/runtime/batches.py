"""Arrow batches: made of rows, and cut by their bytes, for a row may be a few bytes or half a megabyte."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

BATCH_BYTES: Final = 64 << 20
"""What a task holds at once; and far below 2 GB, where the offsets of Arrow's `binary` end."""


def record_batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows, each with its values in the order of the schema, as one Arrow batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut(batch: pa.RecordBatch, most_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in batches of at most so many bytes, or of a single row; nothing is copied."""
    if batch.nbytes <= most_bytes or len(batch) == 1:
        yield batch
        return
    middle = len(batch) // 2
    yield from cut(batch.slice(0, middle), most_bytes)
    yield from cut(batch.slice(middle), most_bytes)
