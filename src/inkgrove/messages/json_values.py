"""Values of fields and access as JSON: timestamps are RFC 3339 text, ids and hashes hex (docs/protocol.md, 4)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.messages.instance import Access
from inkgrove.messages.timestamp import Timestamp

_AS_THEY_ARE: Final = frozenset({str, bool, int, float, type(None)})


def value_to_json(value: Any) -> Any:
    """Return a value, with all that is nested in it, as JSON holds it."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is Timestamp:
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): value_to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [value_to_json(item) for item in value]
    return value


def access_to_json(access: Access) -> dict[str, Any]:
    """Return an access with its mode and all identities that it names, if any, as `to`."""
    return {"mode": access.mode, "to": [identity.hex() for identity in access.to]}


def access_from_json(value: Mapping[str, Any]) -> Access:
    """Return the access that `access_to_json` made this of."""
    return Access(value["mode"], tuple(IdentityId.fromhex(to) for to in value["to"]))
