"""Runs an erasure in a process that kills itself at one of its calls, so that it ends between any two steps."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from inkgrove.node.runtime import erase_due
from inkgrove.node.settings import NodeSettings
from tests.support.templates import open_node

_STEPS = ("node/runtime/erasure.py", "node/runtime/erasure_journal.py", "store/rot/erasure.py")


def erase_and_die(place: str, home: str, number: int, counted: str) -> None:
    """Erase what is due, and die at the given call of the modules that erase; write their count if it lives on."""
    node = open_node(place if "://" in place else Path(place), NodeSettings(erase_grace_seconds=0), Path(home))
    calls = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event in ("call", "return") and frame.f_code.co_filename.endswith(_STEPS):
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    erase_due(node, compact=True)
    sys.setprofile(None)
    Path(counted).write_text(str(calls))
    node.close()
