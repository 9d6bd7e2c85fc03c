"""Writes the reference pages that follow from the code: docs/errors.md and docs/commands.md; --check compares."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TERMINAL_WIDTH"] = os.environ["COLUMNS"] = "80"

import typer

from inkgrove.cli.main import app
from inkgrove.core.errors import InkgroveError

ROOT = Path(__file__).resolve().parent.parent


def error_page() -> str:
    lines = [
        "# Error codes",
        "",
        "Everything that Inkgrove refuses has a code that never changes its meaning. Commands print it in brackets,",
        "and with `--json` as `code`.",
        "",
        "This page is made from `core/errors.py` by `scripts/make_docs.py`.",
    ]
    for family in InkgroveError.__subclasses__():
        lines += ["", f"## {family.code}.\\*", "", family.__doc__ or "", "", "| code | meaning |", "|---|---|"]
        lines += [f"| `{reason.code}` | {reason.__doc__} |" for reason in family.__subclasses__()]
    return "\n".join(lines) + "\n"


def command_page() -> str:
    lines = [
        "# Commands",
        "",
        "Every command takes `--json` for programs and `--help`. Exit codes: 0 done, 1 the input is not valid, 2 the",
        "command was misused. Errors are one line on standard error, with a [code](errors.md) in brackets.",
        "",
        "This page is made from the command's own help by `scripts/make_docs.py`.",
    ]
    for path, command in commands(typer.main.get_command(app), ["inkgrove"]):
        context = command.make_context(path[-1], [], resilient_parsing=True)
        context.info_name = " ".join(path)
        lines += ["", f"## {' '.join(path)}", "", "```text", command.get_help(context).rstrip(), "```"]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from commands(inner, [*path, name])


def main() -> int:
    pages = {"errors.md": error_page(), "commands.md": command_page()}
    stale = [
        name for name, text in pages.items() if not (path := ROOT / "docs" / name).exists() or path.read_text() != text
    ]
    if "--check" in sys.argv:
        print("".join(f"docs/{name} is not what the code says; run make docs\n" for name in stale), end="")
        return int(bool(stale))
    for name in stale:
        (ROOT / "docs" / name).write_text(pages[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
