"""The command line for people: help that fits a screen, completion, colours only where somebody sees them."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from inkgrove.cli.main import app
from tests.support.processes import PROGRAM

LINES, COLUMNS = 40, 100


def everything() -> list[tuple[str, Any]]:
    """Groups and commands, by the words that call them."""
    found: list[tuple[str, Any]] = []

    def walk(command: Any, path: str) -> None:
        found.append((path, command))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}")

    walk(typer.main.get_command(app), "inkgrove")
    return found


@pytest.mark.parametrize(("path", "command"), everything(), ids=[path for path, _ in everything()])
def test_help_fits_a_screen_and_has_an_example(path: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    context = command.make_context(path.rsplit(maxsplit=1)[-1], [], resilient_parsing=True, terminal_width=COLUMNS)
    context.info_name = path
    lines = command.get_help(context).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    examples = [line.strip() for line in lines if line.strip().startswith("Example: ")]
    assert len(examples) == 1
    assert examples[0].startswith(f"Example: {path}")
    for parameter in command.params:
        assert parameter.hidden or parameter.help, f"{path}: {parameter.name} is not explained"


def complete(words: str, shell: str = "bash") -> list[str]:
    """What a shell would offer behind some words."""
    environment = {"_INKGROVE_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    environment |= {"_TYPER_COMPLETE_ARGS": words}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_shells_complete_commands_and_options() -> None:
    assert complete("inkgrove lo") == ["log"]
    assert complete("inkgrove log ") == ["verify", "ingest", "pool"]
    assert complete("inkgrove doctor --sp") == ["--spark"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_each_shell(shell: str) -> None:
    environment = {**os.environ, "_INKGROVE_COMPLETE": f"source_{shell}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    assert "_INKGROVE_COMPLETE" in done.stdout


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a command prints to somebody who sits in front of it."""
    ours, theirs = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**variables, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 65536):
            printed += data
    except OSError:
        pass  # how the other end of a terminal says that it has gone
    process.wait(60)
    os.close(ours)
    return printed.decode()


def test_colours_are_for_terminals_and_for_those_who_want_them(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert "\x1b[" in on_terminal("doctor", "--home", home)
    assert "\x1b[3" not in on_terminal("doctor", "--home", home, NO_COLOR="1")
    assert "\x1b" not in on_terminal("doctor", "--home", home, "--json")
