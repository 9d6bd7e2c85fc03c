"""How the story is told: a heading for each step, what was said over HTTP, the view as a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from examples.demo.world import Person, World

STEPS = 11


class Teller:
    """Prints for a person who reads along."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._number = 0
        self._status: Status | None = None

    def step(self, title: str) -> None:
        """The next step."""
        self._number += 1
        self.console.print()
        self.console.rule(f"[bold]{self._number}/{STEPS}  {title}", align="left", style="dim")

    def say(self, text: str) -> None:
        """A sentence."""
        self.console.print(text)

    def request(self, who: Person, method: str, path: str, body: str = "") -> None:
        """What somebody sends to their node."""
        self.console.print(f"  [dim]{who.fqdn}[/]  [cyan]{method} {escape(path)}[/] [dim]{escape(body)}[/]")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Something moves while one waits."""
        if not self.console.is_terminal:
            self.console.print(f"  … {what}", style="dim")
        self._status = self.console.status(f"{what} …")
        with self._status:
            yield

    def stop_waiting(self) -> None:
        """Nothing moves any more."""
        if self._status is not None:
            self._status.stop()

    def rows(self, who: Person, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
        """A view as somebody sees it."""
        if not rows:
            self.console.print(f"  the view of [bold]{who.fqdn}[/]: no rows")
            return
        table = Table(title=f"slothmail, as {who.fqdn} sees it", title_justify="left", title_style="bold")
        table.add_column("entry", justify="right")
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            shown = [_cell(row["fields"].get(name)) for name in columns]
            table.add_row(f"{row['seq_num']} → {row['last_seq_num']}", *shown)
        self.console.print(table)

    def where_next(self, world: World, *, stay: bool) -> None:
        """What one could look at now."""
        self.console.rule("[bold]Where to go next", align="left", style="dim")
        if stay:
            for node in (world.haiku, world.sloth, world.poem):
                self.console.print(f"  {node.domain:14} {node.url}   administrator admin.{node.domain}")
            self.console.print("  Every password is “correct horse battery”. Ctrl-C ends it all.\n")
        else:
            self.console.print("  make up                     the same, left running, with pages to look at")
        self.console.print("  docs/tutorial.md            publish a schema of your own and write an application")
        self.console.print("  docs/walkthrough.md         everything with curl")
        self.console.print("  docs/protocol.md            every rule")
        self.console.print("  .venv/bin/inkgrove --help   every command")


def _cell(value: object) -> str:
    if value is None:
        return "[dim]-[/]"
    return escape(str(value)).replace("\n", "[dim]⏎[/]\n")
