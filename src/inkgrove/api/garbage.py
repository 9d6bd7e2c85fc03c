"""How often a serving process looks for garbage: what a request leaves behind is mostly freed without looking."""

import gc
from typing import Final

_ALLOCATIONS: Final = 50_000
"""A batch of 1,000 entries makes about as many objects; the default of 700 looks through them dozens of times."""


def settle_garbage() -> None:
    """Leave alone what was there at the start, and look through the rest less often; once, when a node serves."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)
