"""Archives: all entries of a store as Parquet files, and such files taken into a store with full verification."""

from inkgrove.pipeline.archive.files import open_archive
from inkgrove.pipeline.archive.transfer import ImportReport, export_archive, import_archive, verify_archive

__all__ = ["ImportReport", "export_archive", "import_archive", "open_archive", "verify_archive"]
