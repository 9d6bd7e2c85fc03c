"""How a process lets the one that started it know that it does its work now: a word through a pipe.

Looking from outside is not enough: another process may answer at the same port or keep the same views.
"""

import os
from contextlib import suppress
from typing import Final

READY_VARIABLE: Final = "INKGROVE_READY_PIPE"
"""Holds the number of the pipe, for processes that somebody waits for."""


def tell_ready() -> None:
    """Say that the work goes on from here; nothing happens if nobody waits to hear it."""
    number = os.environ.pop(READY_VARIABLE, None)  # once, and not by processes that this one starts
    if number is not None:
        with suppress(OSError, ValueError):
            os.write(int(number), b"ready")
            os.close(int(number))
