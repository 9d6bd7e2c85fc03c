"""Rows as an Arrow table, with the types that the schema gives them; Arrow is imported when somebody asks for it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from inkgrove.client.models import Row, SchemaField

_OWN = {"_instance": "text", "_author": "text", "_log_id": "integer", "_seq_num": "integer", "_last_seq_num": "integer"}


def to_arrow(rows: Iterable[Row], fields: Sequence[SchemaField]) -> Any:
    """A `pyarrow.Table`: `_instance` and the like, then one typed column for each field."""
    import pyarrow as pa  # noqa: PLC0415

    kinds: dict[str, str] = {**_OWN, **{field.name: field.type for field in fields}}
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    for row in rows:
        for name in _OWN:
            columns[name].append(getattr(row, name[1:]))
        for field in fields:
            columns[field.name].append(_value(row.fields[field.name], field.type))
    types = {name: _type(pa, kind) for name, kind in kinds.items()}
    return pa.table(columns, schema=pa.schema(list(types.items())))


def _type(pa: Any, kind: str) -> Any:
    if kind.endswith("[]"):
        return pa.list_(_type(pa, kind.removesuffix("[]")))
    types = {
        "integer": pa.int64(),
        "float": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "blob": pa.struct([("hash", pa.string()), ("size", pa.int64()), ("type", pa.string())]),
    }
    return types.get(kind, pa.string())


def _value(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return [_value(item, kind.removesuffix("[]")) for item in value]
    if kind == "timestamp" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return dict(value) if isinstance(value, Mapping) else value
