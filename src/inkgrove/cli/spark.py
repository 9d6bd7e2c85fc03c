"""A Spark session for one command, with a status line; imported late, for nothing else may wait for a JVM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console


@contextmanager
def spark_session(home: Path, *, quiet: bool) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """The session, and a function that shows how far the work has come."""
    from inkgrove.pipeline.session import session_for  # noqa: PLC0415

    waiting = Console(stderr=True, highlight=False, quiet=quiet).status("starting Spark ...")
    with waiting as status, session_for(home.resolve() / "spark-logs") as spark:
        yield spark, status.update
