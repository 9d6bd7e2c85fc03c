"""Seals the first key of an identity with a passphrase for its file, and opens it again (docs/person-file.md).

XSalsa20-Poly1305 with a key that Argon2id makes of the passphrase and a random salt.
"""

from typing import Final

from nacl.exceptions import CryptoError
from nacl.pwhash.argon2id import MEMLIMIT_INTERACTIVE, OPSLIMIT_MODERATE, SALTBYTES, kdf
from nacl.secret import SecretBox

from inkgrove.core import PublicKey, SecretKey
from inkgrove.core.errors import PersonFileError
from inkgrove.messages.person_file import SealedSecret, changed
from inkgrove.node.errors import IdentityError
from inkgrove.node.runtime import Node

MIN_PASSPHRASE: Final = 12


def check_passphrase(passphrase: str) -> None:
    """Raise `identity.weak-password` for a passphrase that is too short to guard a file for years."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise IdentityError(
            "identity.weak-password",
            f"the passphrase has fewer than {MIN_PASSPHRASE} characters: whoever finds the file can try many",
        )


def seal_secret(node: Node, key: SecretKey, passphrase: str) -> SealedSecret:
    """Encrypt a secret key with a passphrase."""
    check_passphrase(passphrase)
    salt = node.random_bytes(SALTBYTES)
    box = SecretBox(kdf(SecretBox.KEY_SIZE, passphrase.encode(), salt, OPSLIMIT_MODERATE, MEMLIMIT_INTERACTIVE))
    return SealedSecret(salt, OPSLIMIT_MODERATE, MEMLIMIT_INTERACTIVE, bytes(box.encrypt(key.seed)))


def open_secret(secret: SealedSecret, passphrase: str, key: PublicKey) -> SecretKey:
    """Decrypt the secret of `key`; raises `file.bad-passphrase`, or `file.changed` if it is that of another key."""
    if (secret.operations, secret.memory) != (OPSLIMIT_MODERATE, MEMLIMIT_INTERACTIVE):
        raise changed("the secret is sealed in a way that is not known")  # else a file could ask for all memory
    box = SecretBox(kdf(SecretBox.KEY_SIZE, passphrase.encode(), secret.salt, secret.operations, secret.memory))
    try:
        found = SecretKey.from_seed(box.decrypt(secret.sealed))
    except CryptoError:
        raise PersonFileError(
            "file.bad-passphrase", "the passphrase does not open the secret key in the file; nothing was taken in"
        ) from None
    if found.public != key:
        raise changed("the secret in the file is that of another key")
    return found
