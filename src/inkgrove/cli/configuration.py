"""The settings of the running command: what the file, the environment and its flags say; and `inkgrove settings`."""

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from inkgrove.cli.output import JsonOption, console, print_json, printable
from inkgrove.settings import Loaded, Settings, effective, load, parse_change


@dataclass(slots=True)
class _Given:
    """What was said on the command line."""

    config: Path | None = None
    changes: Sequence[str] = ()
    flags: dict[str, object] = field(default_factory=dict)


_given: ContextVar[_Given] = ContextVar("given")


def begin(config: Path | None, changes: Sequence[str]) -> None:
    """Take the options that stand before the command."""
    _given.set(_Given(config, changes, dict(parse_change(text) for text in changes)))


def as_given() -> list[str]:
    """Those options once more, for commands that this one starts."""
    given = _given.get()
    config = ["--config", str(given.config.resolve())] if given.config is not None else []
    return [*config, *(part for text in given.changes for part in ("--set", text))]


def take_flag(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """The callback of an option that is named like a setting: the value in effect, wherever it was set."""
    if context.resilient_parsing:
        return value
    name = option.name or ""
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        _given.get().flags[name] = value
    return getattr(current(), name)


def set_flag(name: str, value: object) -> None:
    """Take an option that stands for a setting of another name; None is no option."""
    if value is not None:
        _given.get().flags[name] = value


def loaded() -> Loaded:
    """The settings in effect, with where they came from."""
    given = _given.get()
    return load(given.flags, os.environ, given.config)


def current() -> Settings:
    """The settings in effect."""
    return loaded().settings


def add_to(app: typer.Typer) -> None:
    """Put the command beside the groups."""
    # Imported here: those options are made of what stands above.
    from inkgrove.cli.home import DEFAULT_HOME, HomeOption  # noqa: PLC0415
    from inkgrove.cli.place import StoreOption  # noqa: PLC0415

    @app.command(epilog="Example: inkgrove settings --json")
    def settings(home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False) -> None:
        """Show every setting in effect and where it came from; what is secret is masked."""
        rows = list(effective(loaded()))
        if as_json:
            print_json({item.name: {"value": value, "source": source} for item, value, source in rows})
            return
        table = Table("setting", "value", "from")
        for item, value, source in rows:
            table.add_row(item.name, printable(_text(value)), printable(source))
        console().print(table)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key} = {text}" for key, text in value.items()) or "-"
    return "-" if value is None else str(value)
