"""Which tests run, in which order and which together: long ones first, so that the workers of `make test` end at once.

A worker takes a whole file at a time, and in the first tier half of the files whose tests share a Spark, which takes
longer to start and to warm up than most of them.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.certificates import trust_one_authority
from tests.support.java import prepare_java
from tests.support.tiers import IS_THOROUGH

prepare_java()
trust_one_authority()
_FIRST = ["spark", "client", "federation", "browser", "node", "store", "cli"]
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
    """Gives a worker whole files, and in the first tier all of a half of the files whose tests share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if IS_THOROUGH else _spark_of(path) or path


_NEEDS_SPARK = re.compile(r"\b(SparkSession|one_session|run_here|visit: Visitor)\b")
"""What only files speak of whose tests take the fixture `spark`, themselves or by another one."""
_FIRST_HALF = re.compile(r"tests/spark/test_(?!rot|sketches)")


@cache
def _spark_of(path: str) -> str | None:
    """Which Spark the tests of a file share: one alone would be the last to end, by far. None if they need none."""
    if not _NEEDS_SPARK.search((Path(__file__).parent.parent / path).read_text()):
        return None
    return "the first Spark" if _FIRST_HALF.match(path) else "the second Spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether:
    return FilesTogether(config, log)
