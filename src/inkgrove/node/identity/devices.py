"""The keys of an identity as its owner sees them: which there are, what they are called, which still count.

docs/protocol.md section 7. A device adds its key by signing `key-of` (`identities.add_key`). Labels stand in the
identity document, which is public.
"""

from dataclasses import dataclass, replace
from typing import Literal

from inkgrove.core import IdentityId, PublicKey
from inkgrove.messages import IdentityDocument, RevokedLog
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity.identities import edit_document, require_listed_key
from inkgrove.node.identity.identity_log import IDENTITY_LOG, find_identity_of_key, read_newest_document
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import heights_of
from inkgrove.store.node import find_identity, sealed_key

KeyState = Literal["counts", "ended", "unclaimed"]
"""`ended`: revoked; `unclaimed`: listed, and it has not said itself whose it is."""


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """A key of an identity."""

    key: PublicKey
    label: str | None
    is_first: bool
    """Whether the id of the identity is the thumbprint of this key."""
    is_kept_here: bool
    """Whether this node has the secret and signs with it; else a device does."""
    state: KeyState
    revoked: tuple[RevokedLog, ...] | None
    logs: int
    """How many logs it has written to, besides log 0."""
    entries: int
    """How many entries these have, up to the newest that is held."""


def list_device_keys(node: Node, identity: IdentityId) -> list[DeviceKey]:
    """List the keys of a hosted identity, the first one first, then as its document has them."""

    def work(connection: Connection) -> list[DeviceKey]:
        hosted = find_identity(connection, identity)
        if hosted is None:
            raise UnknownIdentity(f"no identity {identity} is hosted here")
        _, document = read_newest_document(connection, hosted.key)
        listed = {item.key: item for item in document.keys}
        keys = [hosted.key, *(key for key in listed if key != hosted.key)]
        found = []
        for key in keys:
            item = listed.get(key)
            revoked = None if item is None else item.revoked
            heights = heights_of(connection, key)
            heights.pop(IDENTITY_LOG, None)
            is_first = key == hosted.key
            is_claimed = is_first or find_identity_of_key(connection, key) == identity
            found.append(
                DeviceKey(
                    key,
                    None if item is None else item.label,
                    is_first,
                    sealed_key(connection, key) is not None,
                    "ended" if revoked is not None else "counts" if is_claimed else "unclaimed",
                    revoked,
                    len(heights),
                    sum(heights.values()),
                )
            )
        return found

    return node.database.read(work)


def label_key(node: Node, identity: IdentityId, key: PublicKey, label: str | None) -> None:
    """Publish a document that calls a key so, if it does not yet; None: it has no label.

    Raises `identity.unknown` if the document does not list the key, `identity.no-key-here` if a client signs documents.
    """

    def edit(_connection: Connection, document: IdentityDocument) -> IdentityDocument:
        require_listed_key(document, key)
        keys = (replace(item, label=label) if item.key == key else item for item in document.keys)
        return replace(document, keys=tuple(keys))

    edit_document(node, identity, edit)
