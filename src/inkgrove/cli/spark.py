"""A Spark session for one command, with a progress bar; imported late, for nothing else may wait for a JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inkgrove.cli.configuration import current
from inkgrove.cli.progress import Bar, progress

if TYPE_CHECKING:
    from inkgrove.pipeline.runtime.progress import OnProgress, Progress


@contextmanager
def spark_session(home: Path, *, quiet: bool) -> Iterator[tuple[Any, Bar]]:
    """The session as the settings want it, and the bar that shows how far the work has come."""
    from inkgrove.pipeline.runtime.session import session_for  # noqa: PLC0415

    spark = current().spark
    with (
        progress("starting Spark ...", quiet=quiet) as bar,
        session_for(home.resolve() / "spark-logs", spark.properties(), spark.python) as session,
    ):
        yield session, bar


def following(bar: Bar) -> "OnProgress":
    """Lets the bar show what the pipeline tells of its rows."""

    def follow(progress: "Progress") -> None:
        bar.show(progress.what, progress.done, progress.total)

    return follow


@contextmanager
def watching_tasks(session: Any, bar: Bar, title: str) -> Iterator[None]:
    """Show how many of Spark's tasks are done, for work that can say nothing better about itself."""
    from inkgrove.pipeline.runtime.progress import telling  # noqa: PLC0415
    from inkgrove.pipeline.runtime.session import count_tasks  # noqa: PLC0415

    def tell() -> None:
        done, total = count_tasks(session)
        if total:
            bar.update(done, total)

    bar.begin(title, unit="tasks")
    with telling(tell):
        yield
