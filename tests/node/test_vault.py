"""The file that opens the keys a node keeps: never made anew over sealed keys, and never half on the disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.ports import free_port
from inkgrove.node.errors import IdentityError
from inkgrove.node.identity import change_identity, create_identity
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.processes import PROGRAM


def open_node(place: Path | str, home: Path) -> Node:  # noqa: F811
    return Node(place, NodeSettings(), home=home)


def make_node(place: Path | str, home: Path) -> bytes:  # noqa: F811
    """A home with an identity whose key the node keeps; its vault.key."""
    node = open_node(place, home)
    create_identity(node, "jane.haiku.ink", None)
    node.close()
    return (home / "vault.key").read_bytes()


def test_node_that_keeps_keys_does_not_start_without_its_vault_key(place: Path | str, tmp_path: Path) -> None:  # noqa: F811
    before = make_node(place, tmp_path)
    file = tmp_path / "vault.key"
    file.unlink()
    with pytest.raises(IdentityError, match="put back") as refused:
        open_node(place, tmp_path)
    assert refused.value.code == "identity.vault-key-missing"
    assert not file.exists()
    file.write_bytes(before)
    node = open_node(place, tmp_path)
    jane = create_identity(node, "john.haiku.ink", None)
    assert change_identity(node, jane.id, name="John").revision == 2
    node.close()


def test_node_does_not_start_with_the_vault_key_of_another(place: Path | str, tmp_path: Path) -> None:  # noqa: F811
    make_node(place, tmp_path)
    (tmp_path / "vault.key").write_text("f" * 64 + "\n")
    with pytest.raises(IdentityError, match="put back") as refused:
        open_node(place, tmp_path)
    assert refused.value.code == "identity.vault-locked"


def test_own_key_of_the_node_is_enough_to_miss_the_vault_key(tmp_path: Path) -> None:
    node = open_node(tmp_path, tmp_path)
    load_node_key(node)
    node.close()
    (tmp_path / "vault.key").unlink()
    with pytest.raises(IdentityError):
        open_node(tmp_path, tmp_path)


def test_serve_says_what_to_put_back(tmp_path: Path) -> None:
    make_node(tmp_path, tmp_path)
    (tmp_path / "vault.key").unlink()
    command = [sys.executable, "-c", PROGRAM, "serve", "--home", str(tmp_path), "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "[identity.vault-key-missing]" in done.stderr
    assert "vault.key" in done.stderr
