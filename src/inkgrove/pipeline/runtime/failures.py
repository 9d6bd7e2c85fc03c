"""Finds the cause of a failure in what Spark says about it: a task's own error comes back as that error.

Errors cross from tasks to the driver as text only, with every traceback on the way.
"""

import re
from pathlib import Path

from inkgrove.core.errors import CODES, InkgroveError, PipelineError, StoreUnavailable, make_error
from inkgrove.store.db import advice_on

_OURS = re.compile(r"^\s*inkgrove\.core\.errors\.\w+: (.+) \[([a-z0-9.-]+)\]\s*$", re.MULTILINE)
_DATABASE = re.compile(r"^\s*((?:sqlite3|psycopg)[\w.]*\.\w+): (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^((?!pyspark|py4j|org\.|java\.)[\w.]*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)
_NO_SPACE = "No space left on device"
_NOISE = ("An error occurred while calling", "An exception was thrown", "Traceback", "[STREAM_FAILED]")


def explain(error: Exception, logs: Path) -> InkgroveError:
    """The error to raise in place of one of Spark's."""
    text = str(error)
    if own := raised_by_a_task(error):
        return own
    for name, message in reversed(_DATABASE.findall(text)):
        reason = f"{name.rpartition('.')[2]}: {message.strip()}"
        advice = advice_on(reason, is_postgresql=name.startswith("psycopg"))
        return StoreUnavailable(f"a task cannot write what it folded ({reason}): {advice}")
    if _NO_SPACE in text:
        return StoreUnavailable("there is no space left for Spark's files: free some space and try again")
    if isinstance(error, ConnectionError):
        return PipelineError(
            "pipeline.spark-failed", f"Spark's process went away in the middle of the work; its logs are in {logs}"
        )
    return PipelineError("pipeline.spark-failed", f"Spark failed: {first_reason(error)}; its logs are in {logs}")


def raised_by_a_task(error: Exception) -> InkgroveError | None:
    """The error of ours that made Spark fail, if one did."""
    # Of several, the last was raised while the ones before it were being handled.
    for message, code in reversed(_OURS.findall(str(error))):
        if code in CODES:
            return make_error(code, message.strip())
    return None


def first_reason(error: Exception) -> str:
    """The last line of Python's traceback, if there is one; else the first line of Spark's that says anything."""
    raised = _RAISED.findall(str(error))
    if raised:
        return str(raised[-1]).strip()[:300]
    for line in str(error).splitlines():
        text = line.strip().removeprefix(": ")
        if text and not text.startswith(_NOISE):
            return text[:300]
    return type(error).__name__
