"""Archives: all entries of a store as Parquet files, and such files taken into a store with full verification."""

from inkgrove.pipeline.archive.files import open_archive, read_slice
from inkgrove.pipeline.archive.load import CHUNK, ArchiveRow, Loader
from inkgrove.pipeline.archive.transfer import ImportReport, export_archive, import_archive, in_batches, verify_archive
from inkgrove.pipeline.archive.verify import (
    check_batch,
    claims_of,
    decode_columns,
    judge_logs,
    keep_without_path,
    with_links,
)

__all__ = [
    "CHUNK",
    "ArchiveRow",
    "ImportReport",
    "Loader",
    "check_batch",
    "claims_of",
    "decode_columns",
    "export_archive",
    "import_archive",
    "in_batches",
    "judge_logs",
    "keep_without_path",
    "open_archive",
    "read_slice",
    "verify_archive",
    "with_links",
]
