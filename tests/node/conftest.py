"""Nodes for tests, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.nodes import RunningNode


@pytest.fixture
def running(place: Path | str, tmp_path: Path) -> Iterator[RunningNode]:  # noqa: F811
    """A node without identities; registration is open and admin.haiku.ink administers it."""
    with RunningNode(place, tmp_path) as node:
        yield node
