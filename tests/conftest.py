"""Which tests run, in which order and which together: long ones first, so that the workers of `make test` end at once.

A worker takes a whole file at a time, and in the first tier all tests that share a Spark, which takes longer to start
and to warm up than most of them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

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


class FilesTogether(LoadScopeScheduling):
    """Gives a worker whole files, and in the first tier all files whose tests share a Spark to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "spark" if not IS_THOROUGH and _shares_spark(path) else path


@cache
def _shares_spark(path: str) -> bool:
    return "SparkSession" in (Path(__file__).parent.parent / path).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether:
    return FilesTogether(config, log)
