"""Empty stores and open vaults to begin with: to make their tables and to stretch a passphrase takes ten times as long.

That stores are made from nothing is proved in tests/store/test_opening.py, that vaults are in tests/node/test_vault.py.
"""

import shutil
import tempfile
from atexit import register
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from inkgrove.node.runtime import Node, Vault
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import open_store
from inkgrove.store.views import open_views

_DIFFERENT = 8
"""How many passphrases there are: more than any test has nodes."""
_NUMBERS = count()


def open_node(place: Path | str, settings: NodeSettings, home: Path, **more: Any) -> Node:
    """A node in a directory or at a URL; where there is nothing yet it gets an empty store and a vault of its own."""
    key_file = home / "vault.key"
    if settings.vault_key_file or key_file.exists() or list(home.glob("*.mark")):
        return Node(place, settings, home=home, **more)
    if isinstance(place, Path):
        copy_empty_store(place)
    home.mkdir(0o700, parents=True, exist_ok=True)
    number = next(_NUMBERS) % _DIFFERENT
    key_file.touch(0o600)
    key_file.write_bytes(_passphrase(number))
    return Node(place, settings, home=home, vault=_vault(number), **more)


def copy_empty_store(home: Path) -> Path:
    """Put the files of an empty store into a directory, unless it has them; the directory."""
    home.mkdir(0o700, parents=True, exist_ok=True)
    for file in _empty_store().iterdir():
        if not (home / file.name).exists():
            shutil.copy(file, home)
    return home


@cache
def _empty_store() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inkgrove-template-"))
    register(shutil.rmtree, folder, ignore_errors=True)
    make_store(folder)
    return folder


def make_store(place: Path | str) -> None:
    """Make the tables of a store and of its views."""
    open_store(place).close()
    open_views(place).close()


def _passphrase(number: int) -> bytes:
    return f"the passphrase of node {number} in tests".encode()


@cache
def _vault(number: int) -> Vault:
    return Vault(_passphrase(number))
