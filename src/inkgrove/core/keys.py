"""Ed25519 keys and the strict verification rule (docs/protocol.md sections 2.8 and 7).

S < L, canonical A and R, no small-order points, the equation without the cofactor. libsodium verifies so up to 1.0.22;
whether the installed one does is asked when this module is loaded. Batch equations accept more and are never used.
"""

from base64 import urlsafe_b64encode
from binascii import unhexlify
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from inkgrove.core.errors import BadSignature, KeysError

# Whether a library verifies Ed25519 by the strict rule of docs/protocol.md section 2.8: held by verdicts, not by
# name.
#
# A library that multiplies the equation by the cofactor accepts more signatures. A node with it would take entries
# that
# all others refuse, so it must not verify a single one. scripts/ed25519_cases.py made these cases; tests/vectors has
# all.


class RuleCase(NamedTuple):
    """A signature that tells the strict rule from another."""

    name: str
    key: bytes
    message: bytes
    signature: bytes
    is_accepted: bool


_KEY: Final = bytes.fromhex("bde22e5bd7caec4c0f895b918ce4766d9d94b7969e835e9f1d71625e4d19365e")
_MIXED_KEY: Final = bytes.fromhex("d898b9c465404dc4466b100fa4f9756da63ce9fb278b6b18737b688f425b667e")
_R: Final = bytes.fromhex("0ce58b7458a3bd0107ee4ad429297a8a9335b4c258103a75a7453945e53c6328")
_MIXED_R: Final = bytes.fromhex("04038c727e1c60791f18e4d59f04d25fe2e44feab34edea64ff47212042f62bb")


def _s(text: str) -> bytes:
    return bytes.fromhex(text)


RULE_CASES: Final = (
    RuleCase(
        "ordinary",
        _KEY,
        b"case 22",
        _R + _s("0ad6c2f6af643d4858b1c1895460306107594aded3e00014b1dfb003c4ce760e"),
        True,
    ),
    RuleCase(
        "mixed-key-that-holds",
        _MIXED_KEY,
        b"case 6",
        _R + _s("7a6cd259cc20847d60d33298c1361909d278fa14a2bea56051424e983150af0f"),
        True,
    ),
    RuleCase(
        "mixed-key",
        _MIXED_KEY,
        b"case 1",
        _R + _s("fdb871d56e2e31f24d8f22f6b68c9da08af68847d6c45aa6483baa962f83b007"),
        False,
    ),
    RuleCase(
        "mixed-r",
        _KEY,
        b"case 11",
        _MIXED_R + _s("a58cea9b1d69406b5d077146a763ef2dabd130cac2b29f8cd50942bc105bc007"),
        False,
    ),
    RuleCase(
        "s-plus-l",
        _KEY,
        b"case 22",
        _R + _s("f7a9b853cac74fa02e4eb92c335a0f7607594aded3e00014b1dfb003c4ce761e"),
        False,
    ),
    RuleCase(
        "small-order-key",
        _s("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
        b"case 1",
        _R + _s("e94b387d44948f2e81557aa4068fc4b78343fee2d5ece3bcdeaaafaab42f710c"),
        False,
    ),
    RuleCase(
        "small-order-r",
        _KEY,
        b"case 14",
        b"\1" + bytes(31) + _s("8a0d40197eb6743e8a98320560ced1d409196077b061ab1396f9b96768aa9c0f"),
        False,
    ),
)


def require_strict_rule(is_accepted: Callable[[bytes, bytes, bytes], bool]) -> None:
    """Raise `key.unfit-library` unless `is_accepted(key, message, signature)` gives the verdict of every case."""
    for case in RULE_CASES:
        if is_accepted(case.key, case.message, case.signature) != case.is_accepted:
            raise KeysError(
                "key.unfit-library",
                "the installed libsodium does not verify Ed25519 by the strict rule: it"
                f" {'refuses' if case.is_accepted else 'accepts'} the case {case.name!r}, and would come to other"
                " verdicts than all other nodes. Install the version of PyNaCl that constraints.txt names.",
                case=case.name,
            )


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
