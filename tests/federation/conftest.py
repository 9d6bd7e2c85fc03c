"""A node that looks at others, on both databases, with a clock of the test's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.federated import Federation, federation
from tests.support.nodes import Person
from tests.support.peers import VirtualNetwork
from tests.support.publishing import create, make_schema
from tests.support.templates import open_node


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
    opened = open_node(place, NodeSettings(), tmp_path, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def network() -> VirtualNetwork:
    return VirtualNetwork()


# Several nodes


@dataclass
class World:
    """jane on node a, john on b, alice on c, bob on d; all of them know each other."""

    them: Federation
    jane: Person
    john: Person
    alice: Person
    bob: Person
    schema: str

    def mail(self, **facts: object) -> str:
        """A new instance of jane's."""
        instance: str = create(self.jane, self.schema, fields={"subject": "Hello"}, **facts)["instance"]
        return instance

    def change(self, instance: str, **document: object) -> None:
        answer = self.jane.patch(
            f"/instances/{instance}", json=document, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert answer.status_code == 200, answer.text

    def held(self, instance: str) -> list[int | None]:
        """How many messages each node holds."""
        return [self.them.payloads(letter, instance) for letter in "abcd"]


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "abcd") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        alice, bob = them.person("alice", "c"), them.person("bob", "d")
        yield World(them, jane, john, alice, bob, make_schema(jane))


@pytest.fixture
def world(strangers: World) -> World:
    strangers.them.acquaint(strangers.jane, strangers.john, strangers.alice, strangers.bob)
    return strangers
