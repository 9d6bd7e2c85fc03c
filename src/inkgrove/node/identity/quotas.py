"""What a hosted identity may store: entries, bytes of payloads, bytes of blobs (docs/security.md, quotas).

Limits are settings, or set by the administrator for one identity. A delete is always possible, and messages of log 0
(names, keys, revocations) may exceed the limits a little.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from inkgrove.core import IdentityId
from inkgrove.messages import Delete, IdentityDocument, Message, encode_message
from inkgrove.node.errors import QuotaError
from inkgrove.node.identity.identity_log import IDENTITY_LOG
from inkgrove.node.runtime.node import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import Connection
from inkgrove.store.node import NO_AMOUNTS, StorageUsage, StoredAmounts, add_usage, lock_usage, set_limits, usage_of

IDENTITY_LOG_ALLOWANCE: Final = StoredAmounts(entries=1_000, payload_bytes=16 * 1024 * 1024)
"""How far messages of log 0 go beyond a quota."""
_WORDS: Final = {"entries": "entries", "payload_bytes": "bytes of messages", "blob_bytes": "bytes of blobs"}


@dataclass(frozen=True, slots=True)
class Quota:
    """What an identity has stored, and what it may."""

    used: StoredAmounts
    limits: StoredAmounts

    def require(self, more: StoredAmounts, beyond: StoredAmounts = NO_AMOUNTS) -> None:
        """Raise `quota.exceeded` if that much more would be too much."""
        for name, wanted, used, limit, extra in zip(
            StoredAmounts._fields, more, self.used, self.limits, beyond, strict=True
        ):
            if wanted and used + wanted > limit + extra:
                raise QuotaError(
                    "quota.exceeded",
                    f"your quota on this node is {limit:,} {_WORDS[name]}, and {used:,} are used: "
                    "ask its administrator for more, or free blobs by deleting what names them",
                    what=name,
                    limit=limit,
                    used=used,
                )

    def render(self) -> dict[str, dict[str, int]]:
        """By name what is used and what may be, as answers and commands show it."""
        pairs = zip(StoredAmounts._fields, self.used, self.limits, strict=True)
        return {name: {"used": used, "limit": limit} for name, used, limit in pairs}


def quota_from(settings: NodeSettings, usage: StorageUsage) -> Quota:
    """The quota of an identity that has stored this much."""

    def limit(own: int | None, general: int) -> int:
        return general if own is None else own

    return Quota(
        usage.used,
        StoredAmounts(
            limit(usage.entries, settings.identity_entries),
            limit(usage.payload_bytes, settings.identity_payload_bytes),
            limit(usage.blob_bytes, settings.identity_blob_bytes),
        ),
    )


def show_quota(node: Node, identity: IdentityId) -> Quota:
    """What a hosted identity has stored, and what it may."""
    return show_quotas(node, [identity])[identity]


def show_quotas(node: Node, identities: Collection[IdentityId]) -> dict[IdentityId, Quota]:
    """Return what hosted identities have stored and may store, by identity."""
    found = node.database.read(lambda connection: usage_of(connection, identities))
    return {identity: quota_from(node.settings, usage) for identity, usage in found.items()}


def change_limits(node: Node, identity: IdentityId, limits: dict[str, int | None]) -> Quota:
    """Give an identity limits of its own; None: those of the settings."""
    node.database.write(lambda connection: set_limits(connection, identity, limits))
    return show_quota(node, identity)


class QuotaCharges:
    """What the identities of one transaction store: asked before each entry, written with all of them.

    The keys of the identity are locked (`lock_keys`) while it publishes, so that nobody else counts entries for it.
    The counts are locked when they are written, and not before: the collection of blobs locks blobs first.
    """

    def __init__(self, node: Node, connection: Connection) -> None:
        self._node, self._connection = node, connection
        self._usage: dict[IdentityId, StorageUsage] = {}
        self._more: dict[IdentityId, StoredAmounts] = {}

    def entry(self, identity: IdentityId, log_id: int, payload: bytes, message: Message) -> None:
        """Count an entry, or raise `quota.exceeded` or `storage.low-disk`; a delete is always taken."""
        more = self._more.get(identity, NO_AMOUNTS)
        new = StoredAmounts(more.entries + 1, more.payload_bytes + len(payload))
        if not isinstance(message, Delete):
            is_of_identity = log_id == IDENTITY_LOG
            self._node.disk.require(urgent=is_of_identity)
            usage = self._usage.get(identity)
            if usage is None:
                usage = self._usage[identity] = usage_of(self._connection, [identity])[identity]
            quota_from(self._node.settings, usage).require(
                new, IDENTITY_LOG_ALLOWANCE if is_of_identity else NO_AMOUNTS
            )
        self._more[identity] = new

    def write(self) -> None:
        """Write down what was counted."""
        for identity in sorted(self._more):
            add_usage(self._connection, identity, self._more[identity])
            self._usage.pop(identity, None)
        self._more.clear()


def spend_document(node: Node, connection: Connection, identity: IdentityId, document: IdentityDocument) -> None:
    """Count a document that an identity publishes, or raise `quota.exceeded` or `storage.low-disk`."""
    charges = QuotaCharges(node, connection)
    charges.entry(identity, IDENTITY_LOG, encode_message(document), document)
    charges.write()


def spend_blob(node: Node, connection: Connection, identity: IdentityId, size: int) -> None:
    """Count a blob that an identity has uploaded, or raise `quota.exceeded`."""
    more = StoredAmounts(blob_bytes=size)
    quota_from(node.settings, lock_usage(connection, identity)).require(more)
    add_usage(connection, identity, more)
