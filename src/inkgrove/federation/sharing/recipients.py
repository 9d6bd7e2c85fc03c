"""Whether those to whom other nodes send something live here (docs/protocol.md section 7.10).

For who is about to leave it stays with its sender; who has moved is proved to be elsewhere, by the entries of their
newest document.
"""

import json
from collections.abc import Collection
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers.transport import PeerResponse
from inkgrove.federation.peers.well_known import read_document_proof, render_document_proof
from inkgrove.node.errors import IdentityMoved, RecipientLeaving
from inkgrove.node.identity import require_receiving
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.node import find_identity

_MOST_BYTES: Final = 256 * 1024
"""No list of recipients who are leaving is longer."""
_MOST: Final = 16
"""How many identities one answer proves to have moved; the sender hears of the others when it sends to them again."""


def require_recipients(node: Node, recipients: Collection[IdentityId]) -> None:
    """Raise `identity.recipient-leaving` if one of them is about to leave, `identity.moved` if one has moved."""

    def read(connection: Connection) -> list[dict[str, Any]]:
        require_receiving(connection, recipients)
        hosted = (find_identity(connection, identity) for identity in sorted(recipients))
        moved = [item for item in hosted if item is not None and not item.lives_here]
        return [render_document_proof(read_document_proof(connection, item.key)) for item in moved[:_MOST]]

    if proofs := node.database.read(read):
        raise IdentityMoved(
            "the recipient has moved to another node: send it to the one that the document names", identities=proofs
        )


# As the sender reads it


def read_leaving(answer: PeerResponse) -> dict[str, list[IdentityId]]:
    """Return under `leaving` who is about to leave the node that answers, if that is why it takes nothing."""
    if answer.status != 503 or len(answer.body) > _MOST_BYTES:
        return {}
    try:
        content: Any = json.loads(answer.body)
        if content["code"] != RecipientLeaving.code:
            return {}
        return {"leaving": [IdentityId.fromhex(text) for text in content["identities"]]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def find_leaving(error: FederationError, asked: Collection[RemoteIdentity]) -> list[IdentityId]:
    """Return those of whom a request was for that are about to leave their node; it says nothing about others."""
    found = error.data.get("leaving")
    return [known.id for known in asked if known.id in found] if isinstance(found, list) else []
