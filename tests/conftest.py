"""The order of the files: long ones first, so that the workers of `make test` end together.

A worker takes a whole file at a time. Files that start Spark, nodes or browsers take minutes, the rest seconds.
"""

from pathlib import Path

import pytest

from tests.support.java import prepare_java

prepare_java()
_FIRST = ["spark", "federation", "browser", "node", "client", "store", "cli"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(here).parts[0]
        return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)

    items.sort(key=rank)
