"""Values of fields as table cells and back: typed columns where SQL has the type, JSON text for arrays and blobs.

Timestamps are integers (microseconds since 1970, UTC): both databases compare and index them alike.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Double, LargeBinary, Text
from sqlalchemy.types import TypeEngine

from inkgrove.core import Hash
from inkgrove.messages import Timestamp
from inkgrove.schema import element_of, is_array

# By code points, as SQLite does by itself: a PostgreSQL database may sort by any language.
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
_COLUMN_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "varchar": _TEXT,
    "text": _TEXT,
    "integer": BigInteger(),
    "float": Double(),
    "boolean": Boolean(),
    "timestamp": BigInteger(),
    "relation": LargeBinary(),
    "blob": _TEXT,
}


def is_text(type_name: str) -> bool:
    """Whether the cells of a field are text, which can be of any length."""
    return column_type(type_name) is _TEXT


def column_type(type_name: str) -> TypeEngine[Any]:
    """The SQL type of a field's column."""
    return _TEXT if is_array(type_name) else _COLUMN_TYPES[type_name]


def _keep(value: Any) -> Any:
    return value


def _blob_to_json(value: Any) -> Any:
    return {"hash": value["hash"].hex(), "size": value["size"], "type": value["type"]}


def _blob_from_json(value: Any) -> Any:
    return {"hash": Hash.fromhex(value["hash"]), "size": value["size"], "type": value["type"]}


_TO_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": lambda value: value.microseconds,
    "relation": lambda value: value.hex(),
    "blob": _blob_to_json,
}
_FROM_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": Timestamp,
    "relation": Hash.fromhex,
    "blob": _blob_from_json,
}


def cell_encoder(type_name: str) -> Callable[[Any], Any] | None:
    """The function that makes a cell of a value that is not null; None where the value is the cell."""
    element = element_of(type_name)
    to_json = _TO_JSON.get(element, _keep)
    if is_array(type_name):
        return lambda value: json.dumps([to_json(item) for item in value], ensure_ascii=False)
    if type_name == "timestamp":
        return to_json
    if type_name == "blob":
        return lambda value: json.dumps(to_json(value))
    return bytes if type_name == "relation" else None


@cache
def cell_decoder(type_name: str) -> Callable[[Any], Any] | None:
    """The function that makes a value of a cell that is not null; None where the cell is the value."""
    element = element_of(type_name)
    from_json = _FROM_JSON.get(element, _keep)
    if is_array(type_name):
        return lambda cell: [from_json(item) for item in json.loads(cell)]
    if type_name == "blob":
        return lambda cell: from_json(json.loads(cell))
    if type_name == "timestamp":
        return Timestamp
    if type_name == "float":
        return float
    if type_name == "boolean":
        return bool
    return Hash if type_name == "relation" else None


def decode_cell(type_name: str, cell: Any) -> Any:
    """The value of a cell."""
    decode = cell_decoder(type_name)
    return cell if cell is None or decode is None else decode(cell)
