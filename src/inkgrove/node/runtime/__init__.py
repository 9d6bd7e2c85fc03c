"""The running node: its home, stores, vault, caches, buffers of writes, the signing guard, and backups.

Use cases get a `Node`. Settings and a home come in; no other room is imported from here.
"""

from inkgrove.node.runtime.backup import RestoredHome, check_backup, read_manifest, restore_backup, write_backup
from inkgrove.node.runtime.erasure import ErasureReport, count_due, erase_at_once, erase_due
from inkgrove.node.runtime.erasure_journal import ERASED, ErasureJournal
from inkgrove.node.runtime.home import READERS, RECEIVERS, SMALL_DELIVERY, DiskReserve, NameFile
from inkgrove.node.runtime.node import Node, load_node_key, replace_node_key
from inkgrove.node.runtime.schema_cache import SchemaCache
from inkgrove.node.runtime.signing_guard import (
    AUTHOR_KEY,
    COPIED,
    FROM_BEFORE,
    NO_MARK,
    OLDER,
    SLOTS,
    HighWaterMark,
    all_marks,
    find_reason,
    make_mark,
    require_not_behind,
)
from inkgrove.node.runtime.vault import Vault, open_vault
from inkgrove.node.runtime.write_buffers import AccessLog, ReadCounter

__all__ = [
    "AUTHOR_KEY",
    "COPIED",
    "ERASED",
    "FROM_BEFORE",
    "NO_MARK",
    "OLDER",
    "READERS",
    "RECEIVERS",
    "SLOTS",
    "SMALL_DELIVERY",
    "AccessLog",
    "DiskReserve",
    "ErasureJournal",
    "ErasureReport",
    "HighWaterMark",
    "NameFile",
    "Node",
    "ReadCounter",
    "RestoredHome",
    "SchemaCache",
    "Vault",
    "all_marks",
    "check_backup",
    "count_due",
    "erase_at_once",
    "erase_due",
    "find_reason",
    "load_node_key",
    "make_mark",
    "open_vault",
    "read_manifest",
    "replace_node_key",
    "require_not_behind",
    "restore_backup",
    "write_backup",
]
