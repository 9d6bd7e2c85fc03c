"""Values of fields from Python: as JSON for the node to sign, as message values to be signed here."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inkgrove.client.models import Blob, Published, Row
from inkgrove.messages.timestamp import Timestamp, parse_timestamp


def to_json(value: object) -> Any:
    """A value as requests carry it: moments as RFC 3339 text, bytes in hex, rows and instances by their id."""
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
    """A value as messages carry it, for a field of a type: real timestamps and bytes instead of text."""
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
