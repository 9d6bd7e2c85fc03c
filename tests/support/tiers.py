"""The two tiers of the tests: `make test` proves every rule, `make test-all` more often and on more databases.

`make test-all` sets INKGROVE_TEST_ALL=1. What runs only there is marked `thorough`, or is the PostgreSQL half of a test
above the store that is not marked `both_databases`: tests/store holds both databases to one contract in either tier.
"""

import os
from typing import Final

IS_THOROUGH: Final = os.environ.get("INKGROVE_TEST_ALL") == "1"
"""Whether everything runs."""


def amount(usual: int, thorough: int, variable: str | None = None) -> int:
    """How many inputs, seeds or rounds a test takes in this tier; a named variable of the environment overrides it."""
    if variable is not None and variable in os.environ:
        return int(os.environ[variable])
    return thorough if IS_THOROUGH else usual
