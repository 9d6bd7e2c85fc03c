"""Parts of the machine that some tests need: where CI can install one, its absence is a failure."""

import os

import pytest


def require_component(name: str, is_there: object, how_to_get_it: str) -> None:
    """Skip the test for want of a component; fail instead where everything must run."""
    if is_there:
        return
    reason = f"{name} is missing: {how_to_get_it}"
    if os.environ.get("INKGROVE_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
