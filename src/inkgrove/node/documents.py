"""Rows and what belongs to them as JSON: ids in hex, timestamps as RFC 3339 text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inkgrove.messages.instance import Access
from inkgrove.messages.timestamp import Timestamp
from inkgrove.store.views import Owner, ViewRow

_AS_IT_IS: Final = frozenset({str, bool, int, float, type(None)})


def plain(value: Any) -> Any:
    """A value of a field as JSON holds it."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is Timestamp:
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    assert isinstance(value, Sequence)
    return [plain(item) for item in value]


def row_document(row: ViewRow, owner: Owner) -> dict[str, Any]:
    """A row as every reading route shows it."""
    return {
        "instance": row.instance.hex(),
        "author": row.author.hex(),
        "owner": {"id": owner.id.hex(), "fqdn": owner.fqdn},
        "log_id": row.log_id,
        "seq_num": row.seq_num,
        "last_seq_num": row.last_seq_num,
        "last_hash": row.last_hash.hex(),
        "fields": {name: plain(value) for name, value in row.fields.items()},
        "access": access_document(row.access),
        "expires": None if row.expires is None else str(row.expires),
        "copied_from": None if row.copied_from is None else row.copied_from.hex(),
    }


def access_document(access: Access | None) -> dict[str, Any] | None:
    """The newest word on who may see a row."""
    if access is None:
        return None
    return {"mode": access.mode, "to": [identity.hex() for identity in access.to]}
