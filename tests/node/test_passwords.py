"""What it costs to check a password, counted in hashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from inkgrove.node.identity import hash_cheaply, use_hasher
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from tests.support.nodes import PASSWORD, RunningNode


class Counting(PasswordHasher):
    """A cheap hasher that notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.calls: list[str] = []

    def hash(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append("hash")
        return super().hash(*arguments, **more)

    def verify(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append("verify")
        return super().verify(*arguments, **more)


@pytest.fixture
def hasher() -> Iterator[Counting]:
    """The hasher of a process that has just begun."""
    counting = Counting()
    use_hasher(counting)
    yield counting
    hash_cheaply()


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
