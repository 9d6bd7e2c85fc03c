"""The vault: secret keys that the node keeps for its identities, encrypted at rest (docs/protocol.md section 7).

XSalsa20-Poly1305 with a key stretched from the passphrase by Argon2id. A secret is opened for signing only, and never
shows in a log or an error.
"""

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from nacl.exceptions import CryptoError
from nacl.pwhash.argon2id import MEMLIMIT_INTERACTIVE, OPSLIMIT_INTERACTIVE, SALTBYTES, kdf
from nacl.secret import SecretBox

from inkgrove.core.keys import SecretKey
from inkgrove.node.errors import VaultLocked

_SALT: Final = b"inkgrove vault 1".ljust(SALTBYTES, b"\0")[:SALTBYTES]
"""The same for every node: the passphrase is one of a kind, and a salt beside it would hide nothing."""
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

    def hide(self, text: str) -> str:
        """A text that clients keep for us and cannot read or change."""
        return urlsafe_b64encode(bytes(self._box.encrypt(_TOKEN + text.encode()))).decode().rstrip("=")

    def reveal(self, token: str) -> str | None:
        """The text again; None if it was not hidden here."""
        try:
            text = self._box.decrypt(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        except (CryptoError, ValueError):
            return None
        return text.removeprefix(_TOKEN).decode() if text.startswith(_TOKEN) else None


def open_vault(file: Path) -> Vault:
    """The vault of a passphrase file; a new file with a random passphrase is made if there is none."""
    try:
        if not file.exists():
            _make_passphrase(file)
        passphrase = file.read_bytes().strip()
    except OSError as err:
        raise VaultLocked(f"the passphrase file {file} cannot be read: {err.strerror}") from err
    if len(passphrase) < 16:
        raise VaultLocked(f"the passphrase in {file} is too short: at least 16 characters")
    return Vault(passphrase)


def _make_passphrase(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the home, if this is its first file
    # Written whole and then given its name: a process that starts at the same time never sees half of it.
    draft = file.with_name(f".{file.name}.{token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(f"{token_hex(32)}\n")
        with suppress(FileExistsError):
            file.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
