"""All `identity` messages that were signed for an identity, each with its state (docs/protocol.md section 7.2.4)."""

from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Final

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import DocumentState, IdentityDocument, IdentityState, claimed_identities, fork_state
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity.identity_log import StoredIdentityLog, find_control, find_document_state
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.node import find_identity

_OF_EACH_KEY: Final = 20
"""How many documents of a key are shown, the newest."""
_MOST_BYTES: Final = 256 * 1024
"""How many bytes of documents are read, beside a first one of any size: anybody may ask for them."""
_KEYS: Final = 8
"""How many keys are looked at: the first one, then controllers in the order in which documents name them."""


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """An `identity` message and whether it is the document of its identity."""

    key: PublicKey
    seq_num: int
    hash: Hash
    state: DocumentState
    document: IdentityDocument


@dataclass(frozen=True, slots=True)
class IdentityDocuments:
    """What was signed in the name of an identity, and whether log 0 of its first key is forked."""

    id: IdentityId
    state: IdentityState | None
    documents: list[DocumentRecord]
    """Those of the first key, then those of each controller, the newest of each first."""


def list_documents(node: Node, name: str | IdentityId) -> IdentityDocuments:
    """List the newest documents of a hosted identity, of its first key and of controllers; in all branches of log 0.

    Raises `UnknownIdentity`. An identity that was ended by a fork is shown as well.
    """

    def work(connection: Connection) -> IdentityDocuments:
        hosted = find_identity(connection, name if isinstance(name, IdentityId) else name.lower().rstrip("."))
        if hosted is None:
            raise UnknownIdentity(f"no identity {str(name)[:80]} is hosted here")
        control_of = cache(partial(find_control, connection))
        found: list[DocumentRecord] = []
        keys, left = [hosted.key], _MOST_BYTES
        for key in keys:  # grows meanwhile
            log = StoredIdentityLog(connection, key)
            if key != hosted.key and hosted.id not in claimed_identities(log):
                continue
            newest = (item for item in log.newest_first(None) if isinstance(item.message, IdentityDocument))
            for item in islice(newest, _OF_EACH_KEY):
                document = item.message
                assert isinstance(document, IdentityDocument)
                left -= item.entry.payload_size
                if left < 0 and found:
                    break
                state = find_document_state(connection, item.hash, control_of)
                if state is None:  # it says nothing where it stands
                    continue
                found.append(DocumentRecord(key, item.entry.seq_num, item.hash, state, document))
                named = document.controller
                if named is not None and named not in keys and len(keys) < _KEYS:
                    keys.append(named)
        return IdentityDocuments(hosted.id, fork_state(StoredIdentityLog(connection, hosted.key)), found)

    return node.database.read(work)
