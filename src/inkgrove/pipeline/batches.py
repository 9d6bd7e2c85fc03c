"""How large an Arrow batch may be: rows alone say little, for one may be a few bytes and another half a megabyte."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

BATCH_BYTES: Final = 64 << 20
"""What a task holds at once; and far below 2 GB, where the offsets of Arrow's `binary` end."""


def cut(batch: pa.RecordBatch, most_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most so many bytes, or of a single row; nothing is copied."""
    if batch.nbytes <= most_bytes or len(batch) == 1:
        yield batch
        return
    middle = len(batch) // 2
    yield from cut(batch.slice(0, middle), most_bytes)
    yield from cut(batch.slice(middle), most_bytes)
