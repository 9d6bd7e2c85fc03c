"""What commands print: tables for people, JSON for programs, errors in one line (docs/errors.md lists the codes)."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inkgrove.core.errors import (
    BadHashText,
    InkgroveError,
    InputError,
    KeysError,
    MissingLink,
    SettingsError,
    UnexpectedLink,
)
from inkgrove.messages import value_to_json

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

NOT_VALID, MISUSE = 1, 2


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(value_to_json(value), ensure_ascii=False, separators=(", ", ": ")) + "\n")


def facts_of(item: object, names: str) -> dict[str, Any]:
    """Return the named attributes of a value, in the order of `names`, which are separated by blanks."""
    return {name: getattr(item, name) for name in names.split()}


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print rows of values as a table; None and empty texts are shown as a dash, control characters as escapes."""
    table = Table(*headings, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(printable(str(cell or "-")) for cell in row))
    console().print(table)


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Print names and values as a table with two columns."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        shown = value_to_json(value)
        table.add_row(name.replace("_", " "), "-" if shown is None else printable(str(shown)))
    console().print(table)


def printable(text: str) -> str:
    """Return a text that is safe on a terminal: control characters, which could command it, become escapes."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def console() -> Console:
    """Return a console on standard output, with colours on a terminal only, and 160 columns in a pipe."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)


def note(text: str) -> None:
    """Print a line for people on standard error."""
    if sys.stderr is not None:
        sys.stderr.write(text + "\n")


def fail(error: InkgroveError, *, as_json: bool) -> int:
    """Print an error in one line and return the exit code that it means."""
    if as_json:
        note(json.dumps({"ok": False, "code": error.code, "message": error.message}, ensure_ascii=False))
    else:
        note(f"error: {error.message} [{error.code}]")
    return MISUSE if isinstance(error, _MISUSES) else NOT_VALID


# What only a file or argument of the caller can bring about.
_MISUSES = (InputError, SettingsError, KeysError, BadHashText, MissingLink, UnexpectedLink)
