"""Values of fields: from Python as JSON for the node to sign, as message values to be signed here; rows as Arrow."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inkgrove.client.models import Blob, Published, Row, SchemaField
from inkgrove.messages import Timestamp, parse_timestamp

_OWN = {"_instance": "text", "_author": "text", "_log_id": "integer", "_seq_num": "integer", "_last_seq_num": "integer"}


def to_json(value: object) -> Any:
    """Return a value as requests carry it: times as RFC 3339 text, bytes in hex, rows and instances by their id.

    Raises `ValueError` for a datetime without a time zone.
    """
    if isinstance(value, datetime):
        return str(_timestamp(value))
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Row | Published):
        return value.instance
    if isinstance(value, Blob):
        return {"hash": value.hash, "size": value.size, "type": value.type}
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(item) for item in value]
    return value


def to_message(value: object, kind: str) -> Any:
    """Return a value as messages carry it in a field of type `kind`: timestamps and bytes instead of text."""
    if isinstance(value, list | tuple):
        return [to_message(item, kind.removesuffix("[]")) for item in value]
    plain = to_json(value)
    match kind.removesuffix("[]"):
        case "timestamp" if isinstance(plain, str):
            return parse_timestamp(plain)
        case "relation" if isinstance(plain, str):
            return bytes.fromhex(plain)
        case "blob" if isinstance(plain, Mapping):
            return {**plain, "hash": bytes.fromhex(plain["hash"])}
    return plain


def _timestamp(moment: datetime) -> Timestamp:
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone, such as datetime.now(UTC)")
    return parse_timestamp(moment.astimezone(UTC).isoformat())


def to_arrow(rows: Iterable[Row], fields: Sequence[SchemaField]) -> Any:
    """Return a `pyarrow.Table` of rows: `_instance`, `_author` and so on, then a typed column for each field."""
    import pyarrow as pa  # noqa: PLC0415

    kinds: dict[str, str] = {**_OWN, **{field.name: field.type for field in fields}}
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    for row in rows:
        for name in _OWN:
            columns[name].append(getattr(row, name[1:]))
        for field in fields:
            columns[field.name].append(_arrow_value(row.fields[field.name], field.type))
    types = {name: _arrow_type(pa, kind) for name, kind in kinds.items()}
    return pa.table(columns, schema=pa.schema(list(types.items())))


def _arrow_type(pa: Any, kind: str) -> Any:
    if kind.endswith("[]"):
        return pa.list_(_arrow_type(pa, kind.removesuffix("[]")))
    types = {
        "integer": pa.int64(),
        "float": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "blob": pa.struct([("hash", pa.string()), ("size", pa.int64()), ("type", pa.string())]),
    }
    return types.get(kind, pa.string())


def _arrow_value(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return [_arrow_value(item, kind.removesuffix("[]")) for item in value]
    if kind == "timestamp" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return dict(value) if isinstance(value, Mapping) else value
