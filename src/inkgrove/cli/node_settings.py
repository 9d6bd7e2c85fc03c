"""The settings of the node for a command: `[node]` in HOME/inkgrove.toml, over it the environment, over that flags."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from inkgrove.core.errors import Usage
from inkgrove.node.settings import NodeSettings


def load_node_settings(
    home: Path, flags: Mapping[str, object] | None = None, environment: Mapping[str, str] = os.environ
) -> NodeSettings:
    """The settings in effect; one that does not exist is an error."""
    values: dict[str, object] = {}
    file = home / "inkgrove.toml"
    if file.is_file():
        try:
            values |= tomllib.loads(file.read_text()).get("node", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
            raise Usage(f"{file} is not TOML: {err}") from err
    prefix = "INKGROVE_NODE_"
    for name, text in environment.items():
        if name.startswith(prefix):
            values[name.removeprefix(prefix).lower()] = text
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    hints = get_type_hints(NodeSettings)
    known = {item.name for item in fields(NodeSettings)}
    for name in values.keys() - known:
        raise Usage(f"there is no setting node.{name}")
    return NodeSettings(**{name: _checked(name, hints[name], value) for name, value in values.items()})


def _checked(name: str, kind: Any, value: object) -> Any:
    if kind is int and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if kind is int and type(value) is int and value >= 0:
        return value
    if kind is str and isinstance(value, str):
        return value
    if get_origin(kind) is Literal and value in get_args(kind):
        return value
    if get_origin(kind) is tuple:
        items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    raise Usage(f"the setting node.{name} cannot be {value!r:.80}")
