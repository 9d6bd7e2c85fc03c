"""Instances as JSON: fields, access and expiry of requests, and patches of them (docs/protocol.md, 4, 5 and 8)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.core.errors import BadTimestamp, MessageError
from inkgrove.core.limits import MAX_PAYLOAD_BYTES, MAX_RECIPIENTS
from inkgrove.messages import Access, AccessMode, OutcomeCode, Timestamp, access_to_json, parse_timestamp
from inkgrove.node.errors import DeliveryError, PublishError, RequestError, UnknownIdentity
from inkgrove.node.publishing.delivery_queue import mode_of
from inkgrove.schema import Migration, ViewDefinition
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity, find_remote_identity
from inkgrove.store.node import HostedIdentity, find_identity, is_left

_MODES: Mapping[str, AccessMode] = {
    "self": "self",
    "closed": "closed",
    "listed": "listed",
    "relations": "relations",
    "public": "public",
}
_WIDTH = ("self", "closed", "listed", "relations", "public")


def require_migration(definition: ViewDefinition, version: int) -> Migration:
    """Return how messages of a version are read; raises `publish.would-not-apply` if it takes none."""
    migration = definition.migration(version)
    if isinstance(migration, OutcomeCode):
        raise make_refusal(migration)
    return migration


def make_refusal(code: OutcomeCode) -> PublishError:
    """Make the error for a message that would be stored without effect, with its outcome."""
    return PublishError("publish.would-not-apply", code.meaning, outcome=code.outcome.value, reason=code.code)


def read_field_values(definition: ViewDefinition, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as they are stored, in the order of the schema; raises an `InstanceError` as the pipeline would.

    Raises `message.too-large` before anything is matched against patterns if the texts alone are too large.
    """
    if sum(len(value) for value in fields.values() if type(value) is str) > MAX_PAYLOAD_BYTES:
        raise MessageError("message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes; its texts have more")
    migration = require_migration(definition, definition.version)
    written = migration.read_update(fields)
    return {name: written[column] for column, name in enumerate(migration.columns) if column in written}


def parse_expires(value: Any) -> Timestamp | None:
    """Parse when an instance expires; raises `publish.bad-document` or `BadTimestamp`."""
    if value is not None and type(value) is not str:
        raise PublishError("publish.bad-document", "expires is a timestamp as text, or null")
    try:
        return None if value is None else parse_timestamp(value)
    except BadTimestamp as err:
        raise BadTimestamp(f"'expires': {err.message}", key="expires") from err


# Access


def render_access(access: Access | None) -> dict[str, Any] | None:
    """Return an access as the document of an instance shows it: with `to` only where the mode needs or has it."""
    if access is None:
        return None
    return access_to_json(access) if access.mode == "closed" or access.to else {"mode": access.mode}


def parse_access(connection: Connection, value: Any) -> Access:
    """Parse an access, in which `to` may hold names; raises `publish.bad-document` or `UnknownIdentity`."""
    if type(value) is not dict or not value.keys() <= {"mode", "to"}:
        raise PublishError("publish.bad-document", "access is an object with mode and, if need be, to")
    mode = _MODES.get(value["mode"]) if type(value.get("mode")) is str else None
    if mode is None:
        raise PublishError("publish.bad-document", "the mode of access is self, closed, listed, relations or public")
    if "to" in value and mode not in ("closed", "listed"):
        raise PublishError("publish.bad-document", f"access with the mode {mode} takes no `to`")
    return Access(mode, tuple(find_recipients(connection, value.get("to", []))))


def find_recipients(connection: Connection, names: Any) -> list[IdentityId]:
    """Return identities by id, or by a name that is hosted here or was found elsewhere; each once, in order."""
    if type(names) is not list or len(names) > MAX_RECIPIENTS:
        raise PublishError("publish.bad-document", f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    return list(dict.fromkeys(_find_recipient(connection, name) for name in names))


def _find_recipient(connection: Connection, name: Any) -> IdentityId:
    if type(name) is not str:
        raise RequestError("request.invalid", "a recipient is an id or a name such as jane.haiku.ink")
    if len(name) == 64:
        try:
            return IdentityId.fromhex(name)
        except ValueError:
            pass
    name = name.lower()
    found: HostedIdentity | RemoteIdentity | None = find_identity(connection, name)
    if found is None or is_left(connection, name):  # a name that leads elsewhere by now is not its former holder's
        found = find_remote_identity(connection, name) if name.isprintable() else None
    if found is None:
        raise UnknownIdentity(f"no identity {name[:80]!r} is known here", identity=name[:253])
    return found.id


def address_access(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> Access | None:
    """Return the access of a new instance: a closed one that names nobody is for its recipients."""
    if access is not None and access.mode == "closed" and not access.to:
        access = Access("closed", tuple(recipients))
    check_shareable(access, recipients, is_follower)
    return access


def check_following(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> None:
    """Raise if an instance is for those who follow its owner, and a recipient is not known here to do so."""
    if mode_of(access) == "relations" and (others := [to.hex() for to in recipients if not is_follower(to)]):
        text = "the instance is for those who follow its owner, and these identities do not, as far as is known here"
        raise DeliveryError("federation.not-following", text, recipients=others)


def check_shareable(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> None:
    """Raise unless the recipients may see an instance with this access; `is_follower`: of its owner."""
    if access is None:
        return
    check_following(access, recipients, is_follower)
    if access.mode == "self" and recipients:
        raise PublishError(
            "publish.not-shareable", "the instance is for its owner alone; change its access first, or share a copy"
        )
    if access.mode == "closed" and (left_out := [to.hex() for to in recipients if to not in access.to]):
        raise PublishError("publish.not-shareable", "the instance is closed to these identities", recipients=left_out)


def is_wider(before: Access | None, after: Access, could_see: Callable[[IdentityId], bool]) -> bool:
    """Whether an access lets somebody see an instance who could not before; `could_see` is asked of those it names."""
    old, new = mode_of(before), after.mode
    # To send a listed instance to more people is what its owner asks for.
    if old == "public" or old == new == "listed":
        return False
    # `closed` is for those whom it names, and for nobody else.
    if new != "closed" and _WIDTH.index(new) > _WIDTH.index(old):
        return True
    return not all(could_see(identity) for identity in after.to)


# JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386). Strict where libraries are lenient: array indices have no
# leading zeros and stay in bounds, `true` is not 1, pointers are well-formed. Copies are bounded: those of copies grow
# faster than the patch.

MAX_OPERATIONS: Final = 1_000
MAX_COPIED_VALUES: Final = 50_000
"""How many values all `copy` operations of a patch may add together."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")


def check_operations(patch: Any) -> None:
    """Raise `publish.bad-patch` unless it is a list, and not too long."""
    if type(patch) is not list:
        raise PublishError("publish.bad-patch", "a JSON Patch is a list of operations")
    if len(patch) > MAX_OPERATIONS:
        raise PublishError(
            "publish.bad-patch", f"a JSON Patch has at most {MAX_OPERATIONS} operations, not {len(patch)}"
        )


def apply_patch(document: Any, patch: Any) -> Any:
    """The document after all operations of an RFC 6902 patch; the one given stays as it is."""
    check_operations(patch)
    try:
        patching = _Patching(_copy(document))
        for number, operation in enumerate(patch):
            patching.apply(number, operation)
    except RecursionError:
        raise PublishError("publish.patch-failed", "the patch nests values too deeply") from None
    return patching.document


def merge_patch(document: Any, patch: Any) -> Any:
    """The document after an RFC 7386 merge patch: null removes a member, anything but an object replaces."""
    try:
        return _merge(document, patch)
    except RecursionError:
        raise PublishError("publish.patch-failed", "the patch nests values too deeply") from None


def _merge(document: Any, patch: Any) -> Any:
    if type(patch) is not dict:
        return patch
    merged = dict(document) if type(document) is dict else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def is_same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal: numbers by value, and a boolean is no number."""
    if type(first) is bool or type(second) is bool:
        return first is second
    if type(first) is dict and type(second) is dict:
        return first.keys() == second.keys() and all(is_same(value, second[name]) for name, value in first.items())
    if type(first) is list and type(second) is list:
        return len(first) == len(second) and all(map(is_same, first, second))
    return bool(first == second)


class _Patching:
    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied = 0

    def apply(self, number: int, operation: Any) -> None:
        if type(operation) is not dict:
            raise PublishError("publish.bad-patch", f"operation {number} is no object", operation=number)
        name = operation.get("op")
        path = _parse_pointer(operation, "path", number)
        if name == "add":
            self._add(path, _value_of(operation, number))
        elif name == "remove":
            self._remove(path)
        elif name == "replace":
            self._replace(path, _value_of(operation, number))
        elif name == "move":
            source = _parse_pointer(operation, "from", number)
            if len(source) < len(path) and path[: len(source)] == source:
                raise PublishError("publish.patch-failed", "a value cannot be moved into itself", operation=number)
            if source == path:
                self._find(path)  # moving a value to where it is needs one to be there
            else:
                self._add(path, self._remove(source))
        elif name == "copy":
            value = self._find(_parse_pointer(operation, "from", number))
            self._copied += _count(value)
            if self._copied > MAX_COPIED_VALUES:
                raise PublishError("publish.patch-failed", "the patch copies too much", operation=number)
            self._add(path, _copy(value))
        elif name == "test":
            if not is_same(self._find(path), _value_of(operation, number)):
                raise PublishError(
                    "publish.patch-failed", f"the test at {operation['path'][:80]!r} fails", operation=number
                )
        else:
            raise PublishError(
                "publish.bad-patch",
                f"operation {number} is none of add, remove, replace, move, copy and test",
                operation=number,
            )

    def _find(self, path: list[str]) -> Any:
        found = self.document
        for token in path:
            found = found[_member(found, token)]
        return found

    def _add(self, path: list[str], value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, last = self._find(path[:-1]), path[-1]
        if type(parent) is list:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
        elif type(parent) is dict:
            parent[last] = value
        else:
            raise PublishError(
                "publish.patch-failed", f"nothing can be added at {last[:60]!r}: its parent is neither object nor array"
            )

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self.document = value
            return
        parent = self._find(path[:-1])
        parent[_member(parent, path[-1])] = value

    def _remove(self, path: list[str]) -> Any:
        if not path:
            raise PublishError("publish.patch-failed", "the whole document cannot be removed")
        parent = self._find(path[:-1])
        return parent.pop(_member(parent, path[-1]))


def _parse_pointer(operation: dict[str, Any], key: str, number: int) -> list[str]:
    pointer = operation.get(key)
    if type(pointer) is not str or (pointer and pointer[0] != "/") or _BAD_ESCAPE.search(pointer):
        raise PublishError("publish.bad-patch", f"operation {number}: {key!r} is no JSON Pointer", operation=number)
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _value_of(operation: dict[str, Any], number: int) -> Any:
    if "value" not in operation:
        raise PublishError("publish.bad-patch", f"operation {number} needs a value", operation=number)
    return _copy(operation["value"])


def _member(parent: Any, token: str) -> Any:
    """The key or index of a member that exists."""
    if type(parent) is dict and token in parent:
        return token
    if type(parent) is list:
        return _index(token, len(parent) - 1)
    raise PublishError("publish.patch-failed", f"there is nothing at {token[:60]!r}")


def _index(token: str, last: int) -> int:
    if not _INDEX.fullmatch(token):
        raise PublishError("publish.patch-failed", f"{token[:60]!r} is no index of an array")
    if int(token) > last:
        raise PublishError("publish.patch-failed", f"the index {token} is behind the end of the array")
    return int(token)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(item) for name, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def _count(value: Any) -> int:
    if type(value) is dict:
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if type(value) is list else 1
