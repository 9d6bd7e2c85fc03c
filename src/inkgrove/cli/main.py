"""The `inkgrove` command: groups, and the one place where errors become exit codes.

0 done, 1 the input is not valid or the work could not be done, 2 the command was misused.
"""

import errno
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inkgrove import __version__
from inkgrove.cli import (
    archive,
    backup,
    bundle,
    doctor,
    erase,
    identity,
    log,
    materialise,
    message,
    options,
    peer,
    relation,
    rot,
    schema,
    serve,
    view,
)
from inkgrove.cli.options import CommandGroup
from inkgrove.cli.output import MISUSE, fail, note
from inkgrove.core.errors import InkgroveError, InputError
from inkgrove.settings import CONFIG_VARIABLE


class _Screenful(TyperGroup):
    """The main command, whose help has to fit a screen."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, with those about completion hidden: they are needed once, by those who know of them."""
        found = super().get_params(ctx)
        for option in found:
            if {"--show-completion", "--install-completion"} & set(option.opts):
                option.hidden = True  # type: ignore[attr-defined]
        return found

    def get_help(self, ctx: Any) -> str:
        """Return the help without blank lines."""
        return "\n".join(line for line in super().get_help(ctx).splitlines() if line.strip())


app = CommandGroup(
    "Signed logs in, live tables out.",
    "log verify feed.jsonl",
    cls=_Screenful,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _group in {
    "log": log.app,
    "entry": log.entry_app,
    "key": log.key_app,
    "identity": identity.app,
    "message": message.app,
    "schema": schema.app,
    "view": view.app,
    "proof": bundle.proof_app,
    "peer": peer.app,
    "relation": relation.app,
    "request": relation.request_app,
    "bundle": bundle.app,
    "rot": rot.app,
}.items():
    app.add_typer(_group, name=_name)
rot.add_to(app)
materialise.add_to(app)
archive.add_to(app, view.app)
app.command(epilog="Example: inkgrove settings --json")(options.settings)
serve.add_to(app)
doctor.add_to(app)
backup.add_to(app)
erase.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inkgrove {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(envvar=CONFIG_VARIABLE, metavar="FILE", help="Settings from this file.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set one setting, such as spark.master.")
    ] = None,
) -> None:
    options.begin(config, changes or [])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; no traceback for anything that has a code."""
    given = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:
        _give_up_output()
    try:
        code = app(given, standalone_mode=False, prog_name="inkgrove")
        sys.stdout.flush()
    except InkgroveError as error:
        code = fail(error, as_json="--json" in given)
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # no arguments at all: the message is the help
            note(message)
            code = MISUSE
        else:
            code = fail(InputError("input.usage", _with_advice(message, error)), as_json="--json" in given)
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except (BrokenPipeError, SystemExit):
        # As with other tools, `| head` ends us quietly. Not by the signal itself: it would come from sockets as well,
        # and a node must not die because a client went away.
        if not _reader_is_gone():
            raise
        _give_up_output()
        code = 128 + signal.SIGPIPE
    except OSError as error:
        advice = "; free some space and try again" if error.errno == errno.ENOSPC else ""
        reason = f"{error.filename or 'standard output'}: {error.strerror or error}{advice}"
        code = fail(InputError("input.unreadable-file", f"cannot read or write {reason}"), as_json="--json" in given)
        _give_up_output()
    sys.exit(code if isinstance(code, int) else 0)


def _with_advice(message: str, error: typer.TyperException) -> str:
    """Return the message of an error, and the command that shows the help for it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "inkgrove"
    return f"{message if message.endswith('?') else message.rstrip('.') + '.'} Try {command} --help."


def _reader_is_gone() -> bool:
    """Whether the other end of standard output has been closed."""
    asked = select.poll()
    asked.register(1, 0)
    return any(event & select.POLLERR for _, event in asked.poll(0))


def _give_up_output() -> None:
    """Send everything that is still to be printed to /dev/null: standard output is closed or full."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    with suppress(OSError):
        os.dup2(sys.stdout.fileno(), 1)  # what is still buffered goes there too
