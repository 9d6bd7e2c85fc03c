"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386): a changed copy of a document, or the reason why not.

Strict where libraries are lenient: array indices have no leading zeros and stay in bounds, `true` is not 1, pointers
are well-formed. What a patch may build is bounded: copies of copies grow faster than the patch.
"""

import re
from typing import Any, Final

from inkgrove.node.errors import PublishError

MAX_OPERATIONS: Final = 1_000
MAX_COPIED_VALUES: Final = 50_000
"""How many values all `copy` operations of a patch may bring about together."""

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
