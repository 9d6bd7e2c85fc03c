"""Expect an error by its code."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inkgrove.core.errors import InkgroveError


@contextmanager
def raises(*codes: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[InkgroveError]]:
    """Expect an error with one of the codes; yields what pytest.raises does, whose `value` is the error afterwards."""
    with pytest.raises(InkgroveError, match=match) as caught:
        yield caught
    if caught.value.code not in codes:
        raise AssertionError(f"raised {caught.value!r}, which has none of the codes {codes}") from caught.value
