"""What takes longest begins first: where tests run side by side, the others fill the gaps."""

import pytest

_FIRST = (
    "spark/test_crash.py",
    "federation/test_simulation.py",
    "spark/test_faults.py",
    "spark/",
    "browser/",
    "federation/",
    "node/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by file, keeping the order within each."""

    def turn(item: pytest.Item) -> int:
        return next((place for place, part in enumerate(_FIRST) if f"/tests/{part}" in str(item.path)), len(_FIRST))

    items.sort(key=turn)
