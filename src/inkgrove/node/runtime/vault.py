"""The vault: secret keys that the node keeps for its identities, encrypted at rest (docs/protocol.md section 7).

XSalsa20-Poly1305 with a key stretched from the passphrase by Argon2id. A secret is opened for signing only, and never
shows in a log or an error.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from nacl.exceptions import CryptoError
from nacl.pwhash.argon2id import MEMLIMIT_INTERACTIVE, OPSLIMIT_INTERACTIVE, SALTBYTES, kdf
from nacl.secret import SecretBox

from inkgrove.core import SecretKey
from inkgrove.node.errors import IdentityError, VaultLocked
from inkgrove.store.files import write_new_file

_SALT: Final = b"inkgrove vault 1".ljust(SALTBYTES, b"\0")[:SALTBYTES]
"""One salt for every node: the passphrase is random, and a salt beside it would hide nothing."""
_TOKEN: Final = b"token:"
"""Sets what is hidden for clients apart from keys, which have no such beginning."""


class Vault:
    """Seals and opens secret keys with one passphrase."""

    def __init__(self, passphrase: bytes) -> None:
        key = kdf(SecretBox.KEY_SIZE, passphrase, _SALT, OPSLIMIT_INTERACTIVE, MEMLIMIT_INTERACTIVE)
        self._box = SecretBox(key)

    def __repr__(self) -> str:
        return "Vault()"

    def seal(self, key: SecretKey) -> bytes:
        """The secret as it is stored."""
        return bytes(self._box.encrypt(key.seed))

    def open(self, sealed: bytes) -> SecretKey:
        """The secret again, for signing."""
        try:
            return SecretKey.from_seed(self._box.decrypt(sealed))
        except CryptoError:
            raise VaultLocked(
                "a kept key cannot be opened: the passphrase of the vault is not the one it was sealed with"
            ) from None

    def can_open(self, sealed: bytes) -> bool:
        """Whether a key was sealed with this passphrase."""
        try:
            self.open(sealed)
        except VaultLocked:
            return False
        return True

    def encrypt_text(self, text: str) -> str:
        """A text that clients keep for us and cannot read or change."""
        return urlsafe_b64encode(bytes(self._box.encrypt(_TOKEN + text.encode()))).decode().rstrip("=")

    def decrypt_text(self, token: str) -> str | None:
        """The text again; None if it was not hidden here."""
        try:
            text = self._box.decrypt(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        except (CryptoError, ValueError):
            return None
        return text.removeprefix(_TOKEN).decode() if text.startswith(_TOKEN) else None


def open_vault(file: Path, sealed: Sequence[bytes] = ()) -> Vault:
    """The vault of a passphrase file, which must open what was sealed with it.

    `sealed`: some of the keys that are kept. If none are, a new file with a random passphrase is made where there is
    none; if some are, the file must be there (`identity.vault-key-missing`) and be the right one (`VaultLocked`).
    """
    try:
        if not file.exists():
            if sealed:
                raise IdentityError(
                    "identity.vault-key-missing",
                    f"the node keeps keys, and {file}, which opens them, is missing: put back the copy of vault.key"
                    " that was made when the node was set up, or set node.vault_key_file to where it is",
                )
            with suppress(FileExistsError):  # another process that starts at the same time was first
                write_new_file(file, f"{token_hex(32)}\n".encode(), 0o600)
        passphrase = file.read_bytes().strip()
    except OSError as err:
        raise VaultLocked(f"the passphrase file {file} cannot be read: {err.strerror}") from err
    if len(passphrase) < 16:
        raise VaultLocked(f"the passphrase in {file} is too short: at least 16 characters")
    vault = Vault(passphrase)
    if sealed and not any(vault.can_open(item) for item in sealed):
        raise VaultLocked(
            f"{file} does not open the keys that the node keeps, it is of another node or another time: put back the"
            " copy of vault.key that belongs to this database"
        )
    return vault
