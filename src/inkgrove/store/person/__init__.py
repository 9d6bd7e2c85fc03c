"""Everything that the database keeps of one person: read for their file, and written from it (docs/person-file.md).

`reading` gives pages of an identity's logs, copies, blobs and rows; `writing` puts rows where they are lacking and
changes none that are there. What a row may give somebody is decided in the same statement that writes it.
"""

from inkgrove.store.person.reading import (
    BlobInFile,
    find_followed_logs,
    find_own_logs_of,
    list_creates_for_followers,
    list_file_blobs,
    list_received,
    read_person_rows,
    schemas_named_in,
)
from inkgrove.store.person.writing import (
    grant_copies,
    keep_own_instances,
    keep_sendable,
    lend_received,
    put_person_rows,
)

__all__ = [
    "BlobInFile",
    "find_followed_logs",
    "find_own_logs_of",
    "grant_copies",
    "keep_own_instances",
    "keep_sendable",
    "lend_received",
    "list_creates_for_followers",
    "list_file_blobs",
    "list_received",
    "put_person_rows",
    "read_person_rows",
    "schemas_named_in",
]
