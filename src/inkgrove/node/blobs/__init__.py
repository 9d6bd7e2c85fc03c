"""Blobs: uploads come in, readable files go out, and what nothing refers to is removed.

docs/protocol.md section 8.10.
"""

from inkgrove.node.blobs.collection import CollectedBlobs, collect_blobs, collect_if_alone, update_blob_references
from inkgrove.node.blobs.uploads import Upload, find_blob, instances_naming, note_references, require_uploader

__all__ = [
    "CollectedBlobs",
    "Upload",
    "collect_blobs",
    "collect_if_alone",
    "find_blob",
    "instances_naming",
    "note_references",
    "require_uploader",
    "update_blob_references",
]
