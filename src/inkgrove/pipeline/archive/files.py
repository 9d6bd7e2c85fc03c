"""The Parquet files of an archive: their form is checked before anything else, and tasks read slices of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from inkgrove.core.errors import PipelineError
from inkgrove.pipeline.runtime.batches import BATCH_BYTES, cut

_BATCH = 1_000
_SLICE = 25_000


class Slice(NamedTuple):
    """A part of an archive that one task reads."""

    file: str
    row_group: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose form has been looked at."""

    path: Path
    slices: list[Slice]
    rows: int
    has_payloads: bool


def open_archive(path: Path) -> Archive:
    """Look at the form of every file of an archive."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
    if not files:
        raise PipelineError("pipeline.bad-archive", f"{path} holds no Parquet file")
    slices: list[Slice] = []
    payloads = set()
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                payloads.add(_check_columns(file, opened.schema_arrow))
                sizes = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
        except (pa.ArrowException, OSError) as err:
            raise _unreadable(str(file), err) from err
        for number, rows in enumerate(sizes):
            # A slice is found by reading from the beginning of its row group: no more than four of each.
            count = max(_SLICE, -(-rows // 4))
            slices += [Slice(str(file), number, first, min(count, rows - first)) for first in range(0, rows, count)]
    if len(payloads) > 1:
        raise PipelineError("pipeline.bad-archive", f"only some files of {path} have the column payload")
    return Archive(path, slices, sum(part.rows for part in slices), payloads.pop())


def _unreadable(file: str, err: Exception) -> PipelineError:
    reason = (str(err) or type(err).__name__).splitlines()[0]
    return PipelineError("pipeline.bad-archive", f"{file} cannot be read as Parquet: {reason}")


def _is_data(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _check_columns(file: Path, schema: pa.Schema) -> bool:
    """Whether there is a column of payloads."""
    types = {item.name: item.type for item in schema}
    has_payloads = "payload" in types
    wanted = ["entry", "payload"] if has_payloads else ["entry"]
    if not all(name in types and _is_binary(types[name]) for name in wanted):
        found = ", ".join(f"{name} ({kind})" for name, kind in types.items()) or "none"
        raise PipelineError(
            "pipeline.bad-archive", f"{file} needs the columns entry and payload, both binary; it has {found}"
        )
    return has_payloads


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def read_slice(part: Slice, *, has_payloads: bool, most_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The lines of a slice, with the columns `entry` and `payload`, in batches of at most so many bytes."""
    names = ["entry", "payload"] if has_payloads else ["entry"]
    skip, rest = part.first, part.rows
    try:
        with pq.ParquetFile(part.file) as opened:
            size = _rows_at_once(opened.metadata.row_group(part.row_group), most_bytes)
            for batch in opened.iter_batches(size, row_groups=[part.row_group], columns=names):
                wanted = batch.slice(skip, rest)
                skip -= min(skip, len(batch))
                rest -= len(wanted)
                if len(wanted):
                    entries = wanted.column("entry").cast(pa.binary())
                    payloads = wanted.column("payload").cast(pa.binary()) if has_payloads else None
                    nothing = pa.nulls(len(wanted), pa.binary())
                    columns = [entries, nothing if payloads is None else payloads]
                    yield from cut(pa.RecordBatch.from_arrays(columns, ["entry", "payload"]), most_bytes)
                if not rest:
                    return
    except (pa.ArrowException, OSError) as err:
        raise _unreadable(part.file, err) from err


def _rows_at_once(group: pq.RowGroupMetaData, most_bytes: int) -> int:
    """How many rows of a group to decode at a time: fewer if it says that they are large."""
    average: int = -(-group.total_byte_size // max(group.num_rows, 1))
    return max(1, min(_BATCH, most_bytes // max(average, 1)))
