"""Every setting, each with its sentence: `inkgrove.toml`, over it the environment, over that the flags.

To add one, add a field: its name, type, default and `about` are all that reading, checking, `inkgrove settings` and
docs/settings.md need. A section is a field whose type is another class of settings.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from inkgrove.core.errors import InputError, SettingsError
from inkgrove.node.settings import NodeSettings

DEFAULT_HOME: Final = Path("inkgrove-data")
FILE_NAME: Final = "inkgrove.toml"
CONFIG_VARIABLE: Final = "INKGROVE_CONFIG"
_HIDDEN: Final = "***"
_SECRET_NAME: Final = re.compile(r"secret|password|token|credential|access[._]?key", re.IGNORECASE)


def setting(
    default: Any, about: str, *, secret: bool = False, least: int | None = None, form: tuple[str, str] | None = None
) -> Any:
    """Return a field of a settings class, with its sentence, whether it is secret, its least value and its pattern."""
    facts = {"about": about, "secret": secret, "least": least, "form": form}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=facts)
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Spark: where it runs and with how much."""

    master: str = setting(
        "local[*]", "Where Spark runs: this machine, or the URL of a cluster such as spark://host:7077."
    )
    memory: str = setting(
        "1g",
        "Heap of the driver and, on a cluster, of each executor.",
        form=(r"[1-9][0-9]*[kmgt]", "a number and a unit, such as 512m or 2g"),
    )
    python: str | None = setting(None, "The Python that executors run; without it, the one that runs this command.")
    conf: Mapping[str, str] = setting(
        {}, "Further properties of Spark, passed on as they are; they win over all others."
    )

    def properties(self) -> dict[str, str]:
        """Return these settings as properties of Spark."""
        heap = {"spark.driver.memory": self.memory, "spark.executor.memory": self.memory}
        return {"spark.master": self.master, **heap, **self.conf}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """The pipeline that keeps views up to date."""

    max_entries_per_batch: int = setting(10_000, "How many positions of the store one batch takes at most.", least=1)
    partitions: int = setting(
        0,
        "Into how many tasks a batch is cut; 0 is one for each that Spark runs at once, eight at most; SQLite merges no"
        " more than eight.",
        least=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RotSettings:
    """How much of other people's data is kept, and what goes first."""

    fungus: Literal["fifo", "uniform", "anterograde", "area", "egi", "rot", "overexposed", "stratified"] = setting(
        "rot", "What goes first, where a schema has no fungus of its own."
    )
    bytes: int = setting(0, "How many bytes of copies the node keeps, payloads and blobs; 0 is no limit.", least=0)
    rows: int = setting(0, "How many copies the node keeps; 0 is no limit.", least=0)
    bytes_per_identity: int = setting(0, "How many bytes it keeps of each owner; 0 is no limit.", least=0)
    rows_per_identity: int = setting(0, "How many copies it keeps of each owner; 0 is no limit.", least=0)
    bytes_per_schema: int = setting(0, "How many bytes it keeps of each schema; 0 is no limit.", least=0)
    rows_per_schema: int = setting(0, "How many copies it keeps of each schema; 0 is no limit.", least=0)
    identities: Mapping[str, str] = setting(
        {}, "Limits of single owners by their id in hex, such as `bytes=1000000 rows=500`."
    )
    schemas: Mapping[str, str] = setting(
        {}, "Limits and fungi of single schemas by AUTHOR/LOG, such as `fungus=fifo rows=500`."
    )
    guards: tuple[str, ...] = setting(
        ("pinned", "answered", "passed-on", "newest"),
        "What is spared besides what is never touched: pinned, answered, passed-on, newest.",
    )
    absence_seconds: int = setting(
        30 * 86_400, "The longest absence of another node: tombstones and stubs stay at least so long.", least=0
    )
    cooked_seconds: int = setting(7 * 86_400, "How long a cooked copy is remembered before it is a stub.", least=0)
    seed: int = setting(0, "What chance depends on, besides the run and the copy.", least=0)
    every_seconds: int = setting(0, "How often `inkgrove up` lets copies rot; 0 is never.", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where everything is."""

    home: Path = setting(DEFAULT_HOME, "Directory with keys, logs and, without `store`, the databases.")  # noqa: RUF009  a field
    store: str | None = setting(
        None, "URL of a PostgreSQL database (postgresql://user@host/name), instead of files in `home`."
    )
    node: NodeSettings = field(default_factory=NodeSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    rot: RotSettings = field(default_factory=RotSettings)


_KIND_NAMES: Final = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    tuple: "list of texts",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    name: str
    """With its section: `spark.master`."""
    kind: Any
    default: Any
    about: str
    secret: bool = False
    least: int | None = None
    form: tuple[str, str] | None = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "INKGROVE_" + self.name.replace(".", "_").upper()

    @property
    def kind_name(self) -> str:
        """Its type, as text for people."""
        if self.choices:
            return f"word of {', '.join(self.choices)}"
        return _KIND_NAMES.get(self.kind, "table of texts")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in effect, and where each that is not a default came from."""

    settings: Settings
    sources: Mapping[str, str]


@cache
def all_settings() -> dict[str, Setting]:
    """Return every setting by its name."""
    return {item.name: item for item in _settings_of(Settings, "")}


def _settings_of(owner: type, prefix: str) -> Iterator[Setting]:
    hints = get_type_hints(owner)
    for item in fields(owner):
        kind = hints[item.name]
        if is_dataclass(kind):
            yield from _settings_of(kind, f"{prefix}{item.name}.")  # type: ignore[arg-type]
            continue
        if get_origin(kind) is UnionType:
            kind = next(part for part in get_args(kind) if part is not type(None))
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        kind = str if choices else get_origin(kind) or kind
        default = item.default if item.default_factory is MISSING else item.default_factory()
        yield Setting(f"{prefix}{item.name}", kind, default, choices=choices, **item.metadata)


def sections() -> dict[str, str]:
    """Return the sentence of each section by its name; the first has no name."""
    found = {"": Settings.__doc__ or ""}
    for name, kind in get_type_hints(Settings).items():
        if is_dataclass(kind):
            found[name] = kind.__doc__ or ""
    return found


def load(
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Loaded:
    """Return the settings in effect; `flags` are values by name, `config` is a file instead of the home's own.

    Raises `settings.unknown`, `settings.invalid`, and `input.unreadable-file` for a file that cannot be read.
    """
    environment = environment or {}
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    over = dict(_from_environment(environment))
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    named = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    home = Path(str(given.get("home") or over.get("home") or all_settings()["home"].default))
    file = named or home / FILE_NAME
    if named is not None or file.is_file():
        for name, value in _from_file(file):
            if name == "home" and named is None:
                raise SettingsError("settings.invalid", f"{file}: home cannot be set by a file that lies in it")
            values[name], sources[name] = value, f"file {file}"
    for name, value in over.items():
        values[name], sources[name] = value, f"environment {all_settings()[name].variable}"
    for name, value in given.items():
        values[name], sources[name] = _checked(_known(name, "flags"), value, "flags"), "flag"
    return Loaded(_build(Settings, "", values), sources)


def _build(owner: type, prefix: str, values: Mapping[str, object]) -> Any:
    hints = get_type_hints(owner)
    arguments: dict[str, object] = {}
    for item in fields(owner):
        name = f"{prefix}{item.name}"
        if is_dataclass(hints[item.name]):
            arguments[item.name] = _build(hints[item.name], f"{name}.", values)
        elif name in values:
            arguments[item.name] = values[name]
    return owner(**arguments)


def _from_file(file: Path) -> Iterator[tuple[str, object]]:
    try:
        table = tomllib.loads(file.read_text())
    except OSError as err:
        raise InputError("input.unreadable-file", f"cannot read the settings in {file}: {err.strerror or err}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise SettingsError("settings.invalid", f"{file} is not TOML: {err}") from err
    for name, value in _flat(table, ""):
        item = _known(name, str(file))
        checked = _checked(item, value, str(file))
        # A path means the same wherever the command is called from.
        yield name, file.resolve().parent / checked if isinstance(checked, Path) else checked


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        is_value = name in all_settings() or name not in sections()
        if is_value or not isinstance(value, dict):
            yield name, value
        else:
            yield from _flat(value, f"{name}.")


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    by_variable = {item.variable: item for item in all_settings().values()}
    # Other variables that begin with INKGROVE_ are none of ours, unless they begin like a section.
    ours = tuple(f"INKGROVE_{name.upper()}_" for name in sections() if name)
    for variable, text in environment.items():
        if variable in by_variable and text:
            yield by_variable[variable].name, _parsed(by_variable[variable], text, variable)
        elif variable.startswith(ours) and variable not in by_variable:
            near = get_close_matches(variable, by_variable, 1)
            raise SettingsError(
                "settings.unknown",
                f"there is no setting {variable}{_hint(near)}",
                name=variable,
                nearest=near[0] if near else None,
            )


def _known(name: str, where: str) -> Setting:
    item = all_settings().get(name)
    if item is not None:
        return item
    near = get_close_matches(name, all_settings(), 1, cutoff=0.5)
    raise SettingsError(
        "settings.unknown",
        f"{where}: there is no setting {name}{_hint(near)}",
        name=name,
        nearest=near[0] if near else None,
    )


def _hint(near: list[str]) -> str:
    return f"; did you mean {near[0]}?" if near else "; `inkgrove settings` lists them"


def parse_change(text: str) -> tuple[str, object]:
    """Parse `NAME=VALUE`, the argument of `--set`, into name and value; raises as `load` does."""
    name, found, value = text.partition("=")
    if not found:
        raise SettingsError("settings.invalid", f"{text!r} is not NAME=VALUE")
    return name, _parsed(_known(name, "--set"), value, "--set")


def _parsed(item: Setting, text: str, where: str) -> object:
    """Parse a value: numbers, true and false, tables and lists as in TOML, or a list with commas."""
    if item.kind is str or item.kind is Path:
        return _checked(item, text, where)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        if item.kind is tuple and not isinstance(value, list):
            value = [text]
    except (tomllib.TOMLDecodeError, KeyError):
        value = [part.strip() for part in text.split(",") if part.strip()] if item.kind is tuple else text
    return _checked(item, value, where)


def _checked(item: Setting, value: object, where: str) -> object:
    is_wrong = SettingsError(
        "settings.invalid", f"{where}: {item.name} is a {item.kind_name}, not {_briefly(item, value)}", name=item.name
    )
    if item.kind is Path and isinstance(value, str | Path):
        return Path(value)
    if item.kind is Mapping and isinstance(value, dict):
        return dict(_texts(item, value, "", where))
    if item.kind is tuple and isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    if item.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if item.choices and value not in item.choices:
        raise is_wrong
    # A bool is an int to Python, and to nobody else.
    if not isinstance(value, item.kind) or (isinstance(value, bool) and item.kind is not bool):
        raise is_wrong
    if item.least is not None and isinstance(value, int) and value < item.least:
        raise SettingsError(
            "settings.invalid", f"{where}: {item.name} is at least {item.least}, not {value}", name=item.name
        )
    if item.form is not None and re.fullmatch(item.form[0], str(value)) is None:
        raise SettingsError(
            "settings.invalid", f"{where}: {item.name} is {item.form[1]}, not {_briefly(item, value)}", name=item.name
        )
    return value


def _texts(item: Setting, table: Mapping[str, Any], prefix: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a table; `a.b = 1`, to TOML a table in a table, is the name `a.b` here."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _texts(item, value, f"{prefix}{key}.", where)
        elif isinstance(value, bool):
            yield f"{prefix}{key}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{key}", str(value)
        else:
            raise SettingsError(
                "settings.invalid", f"{where}: {item.name}.{prefix}{key} is a text, not {value!r}", name=item.name
            )


def _briefly(item: Setting, value: object) -> str:
    return _HIDDEN if item.secret else repr(hide_passwords(value) if isinstance(value, str) else value)[:80]


def effective(loaded: Loaded) -> Iterator[tuple[Setting, object, str]]:
    """Yield each setting with its value, secrets masked, and where it came from."""
    for name, item in all_settings().items():
        value: object = loaded.settings
        for part in name.split("."):
            value = getattr(value, part)
        yield item, shown(item, value), loaded.sources.get(name, "default")


def shown(item: Setting, value: object) -> object:
    """Return a value with its secrets masked."""
    if value is not None and item.secret:
        return _HIDDEN
    if isinstance(value, Mapping):
        return {key: _HIDDEN if _SECRET_NAME.search(key) else hide_passwords(text) for key, text in value.items()}
    return hide_passwords(value) if isinstance(value, str) else str(value) if isinstance(value, Path) else value


def hide_passwords(text: str) -> str:
    """Return a text with the passwords in its URLs masked."""
    text = re.sub(r"(://[^:/@\s]*):[^@\s]*@", rf"\1:{_HIDDEN}@", text)
    return re.sub(r"([?&]password=)[^&\s]*", rf"\1{_HIDDEN}", text)
