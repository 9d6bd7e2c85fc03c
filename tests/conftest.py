"""Which tests run, in which order and which together: long ones first, so that the workers of `make test` end at once.

A worker takes a whole file at a time, and in the first tier all tests that share a Spark, which takes longer to start
and to warm up than most of them.
"""

from pathlib import Path

import pytest

from tests.support.java import prepare_java
from tests.support.tiers import IS_THOROUGH

prepare_java()
_FIRST = ["spark", "federation", "browser", "node", "client", "store", "cli"]
_ON_ONE_DATABASE = {"node", "federation", "spark"}
"""Folders whose tests run on PostgreSQL in the second tier only, unless they are marked `both_databases`."""


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _is_for_second_tier(item: pytest.Item) -> bool:
    if item.get_closest_marker("thorough"):
        return True
    if _folder(item) not in _ON_ONE_DATABASE or item.get_closest_marker("both_databases"):
        return False
    call = getattr(item, "callspec", None)
    return call is not None and "postgresql" in call.params.values()


def _group(item: pytest.Item) -> str:
    """What one worker takes at a time."""
    if not IS_THOROUGH and "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    return str(item.path.relative_to(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IS_THOROUGH:
        later = [item for item in items if _is_for_second_tier(item)]
        if later:
            config.hook.pytest_deselected(items=later)
            items[:] = [item for item in items if not _is_for_second_tier(item)]

    def rank(item: pytest.Item) -> int:
        folder = _folder(item)
        return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)

    items.sort(key=rank)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
