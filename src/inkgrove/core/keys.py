"""Ed25519 keys and the strict verification rule (docs/protocol.md sections 2.8 and 7).

S < L, canonical A and R, no small-order points, the equation without the cofactor. libsodium verifies so up to 1.0.22;
whether the installed one does is asked when this module is loaded. Batch equations accept more and are never used.
"""

from base64 import urlsafe_b64encode
from binascii import unhexlify
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from inkgrove.core.errors import BadSignature, KeysError
from inkgrove.core.signature_rule import require_strict_rule

KEY_BYTES = 32
SIGNATURE_BYTES = 64


class PublicKey(bytes):
    """A raw Ed25519 public key: the author of logs."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.hex()


class IdentityId(bytes):
    """The RFC 7638 thumbprint (SHA-256) of an identity's first public key."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.hex()


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key pair made from a 32-byte seed; the seed never shows in a repr."""

    seed: bytes = field(repr=False)
    public: PublicKey
    _expanded: bytes = field(repr=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> "SecretKey":
        """The key pair of a seed, which must come from a good source of randomness."""
        if len(seed) != KEY_BYTES:
            raise KeysError("key.bad-key", f"a secret key has {KEY_BYTES} bytes, not {len(seed)}")
        public, expanded = crypto_sign_seed_keypair(seed)
        return cls(seed, PublicKey(public), expanded)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of `message`."""
        return bytes(crypto_sign(message, self._expanded)[:SIGNATURE_BYTES])


def public_key(value: bytes) -> PublicKey:
    """Bytes as a public key; only their number is checked, a bad point fails at the first signature."""
    if len(value) != KEY_BYTES:
        raise KeysError("key.bad-key", f"a public key has {KEY_BYTES} bytes, not {len(value)}")
    return PublicKey(value)


def parse_public_key(text: str) -> PublicKey:
    """The public key written as 64 hex characters."""
    return public_key(_parse_key_hex(text))


def parse_secret_key(text: str) -> SecretKey:
    """The secret key written as 64 hex characters; the text never shows in an error."""
    return SecretKey.from_seed(_parse_key_hex(text))


def _parse_key_hex(text: str) -> bytes:
    try:
        return unhexlify(text)
    except ValueError:
        raise KeysError("key.bad-key", "a key is written as 64 hex characters") from None


def verify_signature(author: PublicKey, message: bytes, signature: bytes) -> None:
    """Raise `BadSignature` unless the signature holds by the strict rule."""
    if len(signature) != SIGNATURE_BYTES or len(author) != KEY_BYTES:
        raise BadSignature("a signature or key of the wrong length", author=author)
    try:
        crypto_sign_open(signature + message, author)
    except BadSignatureError:
        raise bad_signature(author) from None


def bad_signature(author: PublicKey) -> BadSignature:
    """What is raised for a signature that does not hold."""
    return BadSignature(f"the signature does not hold for author {author.hex()}", author=author)


def _is_accepted(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        verify_signature(PublicKey(key), message, signature)
    except BadSignature:
        return False
    return True


require_strict_rule(_is_accepted)


@lru_cache(maxsize=4096)
def identity_of(first_key: PublicKey) -> IdentityId:
    """The id of the identity whose first key this is."""
    x = urlsafe_b64encode(first_key).rstrip(b"=").decode()
    return IdentityId(sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest())
