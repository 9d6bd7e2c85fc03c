"""What it costs to check a password, counted in hashes."""

from pathlib import Path
from typing import Any

import pytest

from inkgrove.node import passwords
from inkgrove.node.node import Node
from inkgrove.node.settings import NodeSettings
from tests.support.nodes import PASSWORD, RunningNode


class Counting:
    """A hasher that notes what it is asked for."""

    def __init__(self, hasher: Any) -> None:
        self._hasher = hasher
        self.calls: list[str] = []

    def hash(self, *arguments: Any) -> Any:
        self.calls.append("hash")
        return self._hasher.hash(*arguments)

    def verify(self, *arguments: Any) -> Any:
        self.calls.append("verify")
        return self._hasher.verify(*arguments)


@pytest.fixture
def hasher(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The hasher of a process that has just begun."""
    counting = Counting(passwords._hasher)
    monkeypatch.setattr(passwords, "_hasher", counting)
    passwords._nobody.cache_clear()
    return counting


def test_first_name_that_nobody_has_costs_as_much_as_any_other(tmp_path: Path, hasher: Counting) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        assert hasher.calls == ["hash"], "made at the start"
        for _ in range(2):
            hasher.calls.clear()
            facts = {"fqdn": "nobody.haiku.ink", "password": PASSWORD}
            assert running.anybody.post("/sessions", json=facts).status_code == 401
            assert hasher.calls == ["verify"]


def test_node_that_is_not_served_hashes_nothing(tmp_path: Path, hasher: Counting) -> None:
    Node(tmp_path, NodeSettings(), home=tmp_path).close()
    assert hasher.calls == []
