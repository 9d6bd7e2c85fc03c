"""Nodes for tests, on both databases."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from inkgrove.node.settings import NodeSettings
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.nodes import Person, RunningNode

_NUMBERS = count(1)


@pytest.fixture
def running(place: Path | str, tmp_path: Path) -> Iterator[RunningNode]:  # noqa: F811
    """A node without identities; registration is open and admin.haiku.ink administers it."""
    with RunningNode(place, tmp_path) as node:
        yield node


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node for all tests of a module, which keep to names of their own; limits are out of the way."""
    home = tmp_path_factory.mktemp("shared")
    where: Path | str = home
    if request.param == "postgresql":
        where = request.getfixturevalue("postgres").create_store(f"shared{next(_NUMBERS)}")
    settings = NodeSettings(
        registration="open",
        metrics="local",
        domains=("haiku.ink",),
        administrators=("admin.haiku.ink",),
        clients_per_address=10_000,
        sign_ins_per_address=10_000,
    )
    with RunningNode(where, home, settings) as node:
        yield node


def _person(shared: RunningNode, name: str) -> Iterator[Person]:
    with Person(shared, f"{name}{next(_NUMBERS)}.haiku.ink") as person:
        yield person


@pytest.fixture
def jane(shared: RunningNode) -> Iterator[Person]:
    yield from _person(shared, "jane")


@pytest.fixture
def john(shared: RunningNode, jane: Person) -> Iterator[Person]:
    """Takes in what jane sends."""
    for person in _person(shared, "john"):
        assert person.put(f"/me/senders/{jane.fqdn}").status_code == 200
        yield person
