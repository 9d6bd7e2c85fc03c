"""The keys of an identity as its owner sees them: which there are, what they are called, which still count.

docs/protocol.md section 7. A device adds its key by signing `key-of` (`identities.add_key`). Labels stand in the
identity document, which is public.
"""

from dataclasses import dataclass, replace

from inkgrove.core import IdentityId, PublicKey
from inkgrove.messages import IdentityDocument, KeyState, RevokedLog
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity.identities import edit_document, require_listed_key
from inkgrove.node.identity.identity_log import IDENTITY_LOG, read_control
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import heights_of
from inkgrove.store.node import find_identity, sealed_key


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """A key of an identity."""

    key: PublicKey
    label: str | None
    is_first: bool
    """Whether the id of the identity is the thumbprint of this key."""
    is_controller: bool
    """Whether the document in effect names it as the key that speaks for the first one."""
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
        control = read_control(connection, hosted.key)
        listed = {item.key: item for item in control.document.keys}
        keys = [hosted.key, *(key for key in listed if key != hosted.key)]
        found = []
        for key in keys:
            item = listed.get(key)
            revoked = None if item is None else item.revoked
            heights = heights_of(connection, key)
            heights.pop(IDENTITY_LOG, None)
            found.append(
                DeviceKey(
                    key,
                    None if item is None else item.label,
                    key == hosted.key,
                    key == control.document.controller,
                    sealed_key(connection, key) is not None,
                    control.keys[key],
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
