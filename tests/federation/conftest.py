"""A node that looks at others, on both databases, with a clock of the test's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inkgrove.node.node import Node
from inkgrove.node.settings import NodeSettings
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.peers import VirtualNetwork


@dataclass
class Clock:
    """Stands still unless it is told to go on."""

    now: int = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(place: Path | str, tmp_path: Path, clock: Clock) -> Iterator[Node]:  # noqa: F811
    """A node with nobody on it."""
    opened = Node(place, NodeSettings(), home=tmp_path, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def network() -> VirtualNetwork:
    return VirtualNetwork()
