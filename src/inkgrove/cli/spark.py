"""A Spark session for one command, with a progress bar; imported late, for nothing else may wait for a JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from inkgrove.cli.options import CommandOptions, current
from inkgrove.cli.progress import Bar, progress

if TYPE_CHECKING:
    from inkgrove.pipeline.runtime.progress import OnProgress, Progress


@contextmanager
def spark_session(options: CommandOptions) -> Iterator[tuple[Any, Bar]]:
    """Start the session that the settings describe; yields it with a progress bar, which `--json` hides."""
    from inkgrove.pipeline.runtime.session import session_for

    spark = current().spark
    with (
        progress("starting Spark ...", quiet=options.as_json) as bar,
        session_for(options.home.resolve() / "spark-logs", spark.properties(), spark.python) as session,
    ):
        yield session, bar


def following(bar: Bar) -> "OnProgress":
    """Return a listener of the pipeline that shows its progress on the bar."""

    def follow(progress: "Progress") -> None:
        bar.show(progress.what, progress.done, progress.total)

    return follow


@contextmanager
def watching_tasks(session: Any, bar: Bar, title: str) -> Iterator[None]:
    """Show on the bar how many of Spark's tasks are done, for work that reports no progress of its own."""
    from inkgrove.pipeline.runtime.progress import telling
    from inkgrove.pipeline.runtime.session import count_tasks

    def tell() -> None:
        done, total = count_tasks(session)
        if total:
            bar.update(done, total)

    bar.begin(title, unit="tasks")
    with telling(tell):
        yield
