"""A progress bar on standard error: how much is done, of how much, how fast; silent for programs.

with progress("verifying", quiet=as_json, unit="lines") as bar:
    for line in bar.over(lines):        # or bar.update(done, total), or bar("another title")
        ...
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

_Item = TypeVar("_Item")


class Bar:
    """A line that shows the progress of a piece of work; calling it changes the title."""

    def __init__(self, shown: Progress, title: str, unit: str) -> None:
        self._shown = shown
        self._task = shown.add_task(title, total=None, unit=unit)
        self._piece = title

    def __call__(self, title: str) -> None:
        self._shown.update(self._task, description=title)

    def begin(self, title: str, total: int | None = None, unit: str = "rows") -> None:
        """Begin another piece of work: the count and the clock start again."""
        self._shown.refresh()
        self._shown.remove_task(self._task)
        self._task = self._shown.add_task(title, total=total, unit=unit)
        self._piece = title

    def show(self, title: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Show how much of the piece of work `title` is done, and begin it if it is another than before."""
        if title != self._piece:
            self.begin(title, total, unit)
        self.update(done, total)

    def update(self, done: int, total: int | None = None) -> None:
        """Show how much is done by now; `total` is None where it is not known."""
        if total is None:
            self._shown.update(self._task, completed=done)
        else:
            self._shown.update(self._task, completed=done, total=max(total, done))

    def over(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items, and count them as they are taken."""
        if isinstance(items, Sequence):
            self._shown.update(self._task, total=len(items))
        for item in items:
            yield item
            self._shown.advance(self._task)


@contextmanager
def progress(title: str, *, quiet: bool, unit: str = "rows") -> Iterator[Bar]:
    """Show a bar until the work is done; none if `quiet`, or if standard error is no terminal.

    Print results after it has gone: on a terminal they would share its line.
    """
    is_watched = not quiet and sys.stderr is not None and sys.stderr.isatty()
    console = Console(stderr=True, highlight=False, quiet=not is_watched)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), _Line(), _Count(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not is_watched,
        refresh_per_second=8,
        redirect_stdout=False,  # what is for a file must not go to the terminal
    ) as shown:
        yield Bar(shown, title, unit)


class _Line(BarColumn):
    """A bar that is shown only if the total is known."""

    def render(self, task: Task) -> "Text":  # type: ignore[override]
        return Text("") if not task.total else super().render(task)  # type: ignore[return-value]


class _Count(ProgressColumn):
    """How many of how many, and how many a second."""

    def render(self, task: Task) -> Text:
        if not task.completed and not task.total:
            return Text("")
        of = f"/{task.total:,.0f}" if task.total else ""
        speed = task.finished_speed or task.speed
        rate = f", {speed:,.0f}/s" if speed else ""
        return Text(f"{task.completed:,.0f}{of} {task.fields['unit']}{rate}")
