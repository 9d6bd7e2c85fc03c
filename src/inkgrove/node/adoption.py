"""Proof of the key of an identity that a client brings: a signed challenge of this node (docs/protocol.md section 7.8).

A challenge is stateless: a text that only this node can make and read, for one id, for a few minutes. It counts once,
which is noted when it is used. What the key signs begins with no tag of an entry, so it can never be one.
"""

from dataclasses import dataclass
from typing import Final

from inkgrove.core.errors import BadSignature
from inkgrove.core.keys import IdentityId, PublicKey, identity_of, verify_signature
from inkgrove.messages.identity import IdentityDocument, adoption_claim
from inkgrove.node.errors import IdentityError
from inkgrove.node.node import Node
from inkgrove.store.federation import use_nonce

CHALLENGE_SECONDS: Final = 300
_SECOND: Final = 1_000_000
_KIND: Final = "adopt"
_ADVICE: Final = "ask for a challenge (POST /identities/challenges) and sign it with the first key of the identity"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the key is to sign, and until when that counts."""

    text: str
    expires: int


@dataclass(frozen=True, slots=True)
class KeyProof:
    """A challenge with the signature of `adoption_claim`."""

    challenge: str
    signature: bytes


def new_challenge(node: Node, key: PublicKey) -> Challenge:
    """A challenge for whoever says that they hold a key."""
    expires = node.clock() + CHALLENGE_SECONDS * _SECOND
    said = f"{_KIND} {identity_of(key)} {node.settings.endpoint} {expires} {node.random_bytes(16).hex()}"
    return Challenge(node.vault.hide(said), expires)


def check_key_proof(
    node: Node, author: PublicKey, document: IdentityDocument, entry: bytes, proof: KeyProof | None
) -> None:
    """Raise `identity.unproved` unless the first key has signed a fresh challenge for this entry; uses the challenge
    up.
    """
    if proof is None:
        raise IdentityError("identity.unproved", f"whoever brings an identity proves that they hold its key: {_ADVICE}")
    identity, now = identity_of(author), node.clock()
    expires = _read_challenge(node, proof.challenge, identity)
    if expires is None or not now < expires <= now + CHALLENGE_SECONDS * _SECOND:
        raise IdentityError(
            "identity.unproved", f"the challenge is not one of this node for this identity, or has expired: {_ADVICE}"
        )
    claim = adoption_claim(identity, document.fqdn, document.endpoint, entry, proof.challenge)
    try:
        verify_signature(author, claim, proof.signature)
    except BadSignature as err:
        raise IdentityError("identity.unproved", f"the signature of the challenge does not hold: {_ADVICE}") from err
    is_first = node.database.write(
        lambda connection: use_nonce(connection, f"{_KIND} {identity}", proof.challenge, now=now, expires=expires)
    )
    if not is_first:
        raise IdentityError("identity.unproved", f"the challenge was used before: {_ADVICE}")


def _read_challenge(node: Node, text: str, identity: IdentityId) -> int | None:
    """When a challenge of this node for an identity ends; None if it is none."""
    parts = (node.vault.reveal(text) or "").split(" ")
    if len(parts) != 5 or parts[:3] != [_KIND, identity.hex(), node.settings.endpoint]:
        return None
    return int(parts[3])
