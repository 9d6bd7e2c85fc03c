"""The options of commands: the settings in effect, and `--home`, `--store` and `--json`, which most commands have.

A command takes them as one parameter, `options: CommandOptions`, with which it opens the store or the node and prints
its result as JSON or as text. Settings come from the file, the environment and the options (`inkgrove settings`).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.table import Table

from inkgrove.cli.output import JsonOption, console, print_json, printable
from inkgrove.settings import DEFAULT_HOME, Loaded, Settings, effective, load, parse_change

if TYPE_CHECKING:
    from inkgrove.node.runtime import Node
    from inkgrove.store.logs import LogStore
    from inkgrove.store.views import ViewStore


@dataclass(slots=True)
class _Given:
    """The options before the command, and those of the command that stand for settings."""

    config: Path | None = None
    changes: Sequence[str] = ()
    flags: dict[str, object] = field(default_factory=dict)


_given: ContextVar[_Given] = ContextVar("given")


def begin(config: Path | None, changes: Sequence[str]) -> None:
    """Take the options that stand before the command."""
    _given.set(_Given(config, changes, dict(parse_change(text) for text in changes)))


def leading_arguments() -> list[str]:
    """Return the options that stood before the command, for commands that this one starts."""
    given = _given.get()
    config = ["--config", str(given.config.resolve())] if given.config is not None else []
    return [*config, *(part for text in given.changes for part in ("--set", text))]


def take_flag(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """Return the value in effect of an option that is named like a setting: its callback in typer."""
    if context.resilient_parsing:
        return value
    name = option.name or ""
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        _given.get().flags[name] = value
    return getattr(current(), name)


def set_flag(name: str, value: object) -> None:
    """Let an option set the setting `name`; None, for an option that was not given, changes nothing."""
    if value is not None:
        _given.get().flags[name] = value


def loaded() -> Loaded:
    """Return the settings in effect, with where each came from."""
    given = _given.get()
    return load(given.flags, os.environ, given.config)


def current() -> Settings:
    """Return the settings in effect."""
    return loaded().settings


HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="INKGROVE_HOME",
        help="Directory with keys and logs.",
        metavar="DIR",
        is_eager=True,  # the file of settings lies in it
        callback=take_flag,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="INKGROVE_STORE",
        help="PostgreSQL URL, instead of files in --home.",
        metavar="URL",
        callback=take_flag,
    ),
]


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The values of `--home`, `--store` and `--json`; modules of the store and the node are imported when needed."""

    home: Path
    store: str | None
    as_json: bool

    @property
    def store_location(self) -> str:
        """The URL of the database, or the directory with its files, for commands that may make a new store there."""
        return self.store or str(self.home.resolve())

    def existing_store(self) -> str:
        """Return the location of a store that must be there; raises `NoStore` if there is none, and writes nothing."""
        from inkgrove.store.logs import require_store

        require_store(self.store_location)
        return self.store_location

    @property
    def arguments(self) -> list[str]:
        """`--home` and `--store` as arguments for commands that this one starts."""
        return ["--home", str(self.home.resolve()), *(["--store", self.store] if self.store else [])]

    def open_logs(self, *, create: bool = False) -> "LogStore":
        """Open the logs of the store; raises `NoStore` if there is none and `create` is not set."""
        from inkgrove.store.logs import open_store

        return open_store(self.store_location if create else self.existing_store())

    def open_views(self, *, with_node: bool = False) -> "ViewStore":
        """Open the views of the store, `with_node` beside the tables of the node; raises `NoStore` if there is none."""
        from inkgrove.store.views import open_views

        return open_views(self.existing_store(), with_node=with_node)

    @contextmanager
    def open_node(self, *, create: bool = False) -> Iterator["Node"]:
        """Open the node and close it at the end; raises `NoStore` if there is none and `create` is not set."""
        from inkgrove.node.runtime import Node

        node = Node(self.store_location if create else self.existing_store(), current().node, home=self.home.resolve())
        try:
            yield node
        finally:
            node.close()

    def answer(self, facts: object, tell: Callable[[], None]) -> None:
        """Print `facts` as JSON if `--json` was given; else call `tell`, which prints for people."""
        if self.as_json:
            print_json(facts)
        else:
            tell()


class CommandGroup(typer.Typer):
    """A group of commands; one with a parameter `options: CommandOptions` gets the options that it stands for."""

    def __init__(self, about: str, example: str, **settings: Any) -> None:
        """`about` is the help of the group; `example` is a command line without `inkgrove` at the end of the help."""
        super().__init__(no_args_is_help=True, help=about, epilog=f"Example: inkgrove {example}", **settings)

    def command(  # type: ignore[override]  # takes what typer's own takes
        self, *arguments: Any, **settings: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return the decorator that adds a command to the group."""
        add = super().command(*arguments, **settings)

        def add_with_options(command: Callable[..., None]) -> Callable[..., None]:
            add(_with_options(command) if "options" in signature(command).parameters else command)
            return command

        return add_with_options


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a function with the three options as its last parameters, which calls the command with `options`."""
    added = {"home": (HomeOption, DEFAULT_HOME), "store": (StoreOption, None), "as_json": (JsonOption, False)}

    @wraps(command)
    def call(*, home: Path, store: str | None, as_json: bool, **arguments: Any) -> None:
        command(**arguments, options=CommandOptions(home, store, as_json))

    hints = get_type_hints(command, include_extras=True)
    own = [
        item.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, item in signature(command).parameters.items()
        if name != "options"
    ]
    common = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in added.items()
    ]
    call.__signature__ = signature(command).replace(parameters=[*own, *common])  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in [*own, *common]} | {"return": None}
    return call


def settings(options: CommandOptions) -> None:
    """Show every setting in effect and where it came from; what is secret is masked."""
    rows = list(effective(loaded()))
    if options.as_json:
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
