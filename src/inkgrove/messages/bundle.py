"""A bundle: instances with their proofs and schemas as one file, for handing over without a network.

docs/protocol.md section 8. What it holds is what travels between nodes. Only the form is checked here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.core.hashing import Hash
from inkgrove.messages import cbor
from inkgrove.messages.delivery import MAX_ENTRIES

FORM: Final = "inkgrove bundle 1"
MAX_INSTANCES: Final = 10_000

Item = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class BundledInstance:
    """Messages of one instance with payloads, and the pools that prove them without."""

    instance: Hash
    entries: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the file holds."""

    instances: Sequence[BundledInstance]
    schemas: Sequence[Item]
    """The logs of the schemas that the instances name."""


def encode_bundle(bundle: Bundle) -> bytes:
    """The bytes of the file."""
    instances: list[cbor.Value] = [
        {"instance": bytes(item.instance), "entries": _write_items(item.entries)} for item in bundle.instances
    ]
    return cbor.encode({"form": FORM, "instances": instances, "schemas": _write_items(bundle.schemas)})


def _write_items(items: Sequence[Item]) -> list[cbor.Value]:
    return [[entry] if payload is None else [entry, payload] for entry, payload in items]


def decode_bundle(data: bytes) -> Bundle:
    """The bundle in a file."""
    try:
        value: Any = cbor.decode(data)
    except InkgroveError as err:
        raise ParcelError("parcel.bad-bundle", f"the file is no bundle: {err.message}") from err
    if type(value) is not dict or value.keys() != {"form", "instances", "schemas"} or value["form"] != FORM:
        raise ParcelError("parcel.bad-bundle", f"the file is not of the form {FORM!r}")
    return Bundle([_read_instance(item) for item in _list(value["instances"])], _read_items(value["schemas"]))


def _read_instance(value: Any) -> BundledInstance:
    if type(value) is not dict or value.keys() != {"instance", "entries"} or type(value["instance"]) is not bytes:
        raise ParcelError("parcel.bad-bundle", "an instance comes with its id and its entries")
    return BundledInstance(Hash(value["instance"]), _read_items(value["entries"]))


def _read_items(value: Any) -> list[Item]:
    items: list[Item] = []
    for item in _list(value, MAX_ENTRIES):
        if type(item) is not list or not 1 <= len(item) <= 2 or any(type(part) is not bytes for part in item):
            raise ParcelError("parcel.bad-bundle", "an entry comes as [entry] or [entry, payload]")
        items.append((item[0], item[1] if len(item) == 2 else None))
    return items


def _list(value: Any, most: int = MAX_INSTANCES) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise ParcelError("parcel.bad-bundle", f"a list has at most {most} items")
    return value
