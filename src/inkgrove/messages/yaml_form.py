"""Messages as YAML, the way the original specification shows them (docs/protocol.md section 3, YAML form).

YAML 1.2's few scalar forms only: an unquoted `no` is a text and `012` is not octal. Unquoted timestamps are timestamps,
`!hex "00ff"` is a byte string, and a repeated key is an error.
"""

import re
from binascii import unhexlify
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, ClassVar

import yaml

from inkgrove.core.errors import BadTimestamp, YamlError
from inkgrove.core.limits import MAX_CBOR_DEPTH, MAX_PAYLOAD_BYTES
from inkgrove.messages.cbor import Value
from inkgrove.messages.message import Message, message_from_value, message_to_value
from inkgrove.messages.timestamp import Timestamp, parse_timestamp, render_timestamp

_TIMESTAMP_TAG, _HEX_TAG = "!timestamp", "!hex"
_FORMS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    (_TIMESTAMP_TAG, r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)", list("0123456789")),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012
    yaml_constructors: ClassVar[dict[Any, Any]] = {}  # only what is added below is read


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def ignore_aliases(self, data: object) -> bool:
        return True


for _tag, _pattern, _first in _FORMS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), _first)


# Older readers take these for booleans and base-8 or base-60 numbers: quote them when writing.
_Dumper.add_implicit_resolver(
    "!ambiguous", re.compile(r"^(?:yes|no|on|off|y|n|0o?[0-7]+|[0-9]+(:[0-9]+)+|=|<<)$", re.IGNORECASE), None
)


def _construct_map(loader: _Loader, node: yaml.Node) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _at(node, "a map is needed here")
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise YamlError("yaml.syntax", f"line {key_node.start_mark.line + 1}: a key must be a text, not {key!r}")
        if key in result:
            raise YamlError(
                "yaml.duplicate-key", f"line {key_node.start_mark.line + 1}: the key {key!r} stands twice", key=key
            )
        result[key] = loader.construct_object(value_node, deep=True)
    return result


def _scalar(loader: _Loader, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _at(node, f"{node.tag} needs a plain value")
    return str(loader.construct_scalar(node))


def _at(node: yaml.Node, problem: str) -> YamlError:
    return YamlError("yaml.syntax", f"line {node.start_mark.line + 1}: {problem}")


def _construct_boolean(loader: _Loader, node: yaml.Node) -> bool:
    text = _scalar(loader, node).lower()
    if text not in ("true", "false"):
        raise _at(node, f"{text!r:.40} is neither true nor false")
    return text == "true"


def _construct_integer(loader: _Loader, node: yaml.Node) -> int:
    text = _scalar(loader, node)
    if not re.fullmatch(r"[-+]?[0-9]{1,30}", text):
        raise _at(node, f"{text!r:.40} is no integer of 64 bits; hex must be quoted")
    return int(text)


def _construct_float(loader: _Loader, node: yaml.Node) -> float:
    text = _scalar(loader, node)
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not isfinite(value):
        raise _at(node, "a float must be finite; quote it if it is a text")
    return value


def _construct_timestamp(loader: _Loader, node: yaml.Node) -> Timestamp:
    try:
        return parse_timestamp(_scalar(loader, node))
    except BadTimestamp as err:
        raise BadTimestamp(f"line {node.start_mark.line + 1}: {err.message}") from err


def _construct_hex(loader: _Loader, node: yaml.Node) -> bytes:
    try:
        return unhexlify(_scalar(loader, node))
    except ValueError as err:
        raise _at(node, "!hex is followed by hex in quotes") from err


def _construct_list(loader: _Loader, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise _at(node, "a list is needed here")
    return [loader.construct_object(item, deep=True) for item in node.value]


def _refuse(_loader: _Loader, node: yaml.Node) -> Any:
    raise _at(node, f"messages have nothing of the kind {node.tag}")


for _kind, _constructor in {
    "tag:yaml.org,2002:null": lambda _loader, _node: None,
    "tag:yaml.org,2002:bool": _construct_boolean,
    "tag:yaml.org,2002:int": _construct_integer,
    "tag:yaml.org,2002:float": _construct_float,
    "tag:yaml.org,2002:str": _scalar,
    "tag:yaml.org,2002:seq": _construct_list,
    "tag:yaml.org,2002:map": _construct_map,
    _TIMESTAMP_TAG: _construct_timestamp,
    _HEX_TAG: _construct_hex,
    None: _refuse,
}.items():
    _Loader.add_constructor(_kind, _constructor)


class _Quoted(str):
    __slots__ = ()


_Dumper.add_representer(
    Timestamp, lambda dumper, value: dumper.represent_scalar(_TIMESTAMP_TAG, render_timestamp(value))
)
_Dumper.add_representer(
    str,
    lambda dumper, value: dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"'
    ),
)
_Dumper.add_representer(bytes, lambda dumper, value: dumper.represent_scalar(_HEX_TAG, value.hex(), style='"'))
_Dumper.add_representer(
    _Quoted, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')
)


def parse_messages(text: str) -> list[Message]:
    """Return every message of a YAML text, one for each document; raises a `YamlError` if there is none."""
    values = parse_values(text)
    if not values:
        raise YamlError("yaml.syntax", "there is no message in the text")
    return [message_from_value(value) for value in values]


def parse_values(text: str) -> list[Value]:
    """Return every document of a YAML text as a plain value; raises a `YamlError`."""
    if len(text) > 2 * MAX_PAYLOAD_BYTES:
        raise YamlError("yaml.syntax", f"a file of messages has at most {2 * MAX_PAYLOAD_BYTES} characters")
    try:
        _refuse_aliases_and_depth(text)
        return [value for value in yaml.load_all(text, Loader=_Loader) if value is not None]
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = str(getattr(err, "problem", None) or err).splitlines()[0]
        raise YamlError("yaml.syntax", f"{where}{problem}") from err
    except (ValueError, OverflowError) as err:
        raise YamlError("yaml.syntax", "an escape in the text is no character") from err


def _refuse_aliases_and_depth(text: str) -> None:
    """Refuse aliases, which can blow a small text up, and nesting that no message may have."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("yaml.syntax", f"line {line}: aliases are not part of messages")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_CBOR_DEPTH:
            raise YamlError("yaml.syntax", f"line {line}: nested more than {MAX_CBOR_DEPTH} deep")


def render_messages(messages: Iterable[Message]) -> str:
    """Render messages as YAML documents, in the order and with the keys of the specification."""
    return "---\n".join(
        yaml.dump(
            _in_readable_form(message_to_value(message)),
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        for message in messages
    )


def _in_readable_form(message: Mapping[str, Any]) -> dict[str, Any]:
    """Write ids as quoted hex, which readers accept and people can read. Field contents stay exact."""
    result = {key: value if key in ("fields", "salt") else _hex_ids(value) for key, value in message.items()}
    if message["kind"] == "schema-migration":
        result["fields"] = [
            {name: {key: _hex_ids(part) if key == "schema" else part for key, part in change.items()}}
            for item in message["fields"]
            for name, change in item.items()
        ]
    return result


def _hex_ids(value: Value) -> Value:
    if isinstance(value, bytes):
        return _Quoted(value.hex())
    if isinstance(value, Mapping):
        return {key: _hex_ids(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_hex_ids(item) for item in value]
    return value
