"""What travels between nodes: the entries of instances with payloads, and the payload-free pools that prove them.

docs/protocol.md sections 2 and 8. A parcel holds entries of one instance; the create may be missing when the receiver
has it already. `open_parcel` believes nothing: signatures, payloads and what belongs to the instance are checked, and
only whether links lead to what is held is left to the store.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from inkgrove.core.entry import Entry, decode_entry, hash_entry
from inkgrove.core.errors import InkgroveError, LacksCreate, MessageError, ParcelError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.core.limits import MAX_PAYLOAD_BYTES
from inkgrove.core.links import union_of_pools
from inkgrove.core.verify import SignedEntry, verify_payload, verify_signed
from inkgrove.messages import cbor
from inkgrove.messages.ids import InstanceRef
from inkgrove.messages.instance import Access, Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.value_readers import Unset

DELIVERY_FORMAT: Final = "inkgrove delivery 1"
DELIVERY_MEDIA_TYPE: Final = "application/vnd.inkgrove.delivery+cbor"
MAX_PARCELS: Final = 200
MAX_PARCEL_RECIPIENTS: Final = 1000
MAX_DELIVERY_ENTRIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Parcel:
    """Entries of one instance, for some identities of the receiving node."""

    instance: Hash
    recipients: tuple[IdentityId, ...]
    entries: Sequence[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Parcels that one identity sends, as its node signs for it."""

    via: IdentityId
    parcels: Sequence[Parcel]


@dataclass(frozen=True, slots=True)
class ParcelMessage:
    """A message of the parcel's instance, at its place in the log."""

    seq_num: int
    hash: Hash
    message: InstanceMessage


@dataclass(frozen=True, slots=True)
class OpenedParcel:
    """A parcel whose entries are signed and whose payloads are those of one instance and nothing else."""

    parcel: Parcel
    signed: Sequence[SignedEntry]
    """Its entries, in order: nobody has to check their signatures again."""
    author: PublicKey
    log_id: int
    messages: Sequence[ParcelMessage]

    @property
    def has_create(self) -> bool:
        """Whether the instance begins in this parcel."""
        return isinstance(self.messages[0].message, Create)

    @property
    def is_deletion(self) -> bool:
        """Whether it says nothing but that the instance has ended."""
        return all(isinstance(item.message, Delete) for item in self.messages)

    @property
    def last_seq_num(self) -> int:
        """The newest message's place."""
        return self.messages[-1].seq_num

    @property
    def access(self) -> tuple[int, Access] | None:
        """The newest word in it on who may see the instance, and its place."""
        for item in reversed(self.messages):
            if not isinstance(item.message, Delete) and item.message.access is not None:
                return item.seq_num, item.message.access
        return None

    @property
    def expires(self) -> Timestamp | None:
        """When the instance expires, by the newest word in it on that."""
        for item in reversed(self.messages):
            if not isinstance(item.message, Delete) and not isinstance(item.message.expires, Unset):
                return item.message.expires
        return None


def encode_delivery(delivery: Delivery) -> bytes:
    """The body of a request."""
    parcels: list[cbor.Value] = [
        {
            "instance": bytes(parcel.instance),
            "recipients": [bytes(recipient) for recipient in parcel.recipients],
            "entries": [[entry] if payload is None else [entry, payload] for entry, payload in parcel.entries],
        }
        for parcel in delivery.parcels
    ]
    return cbor.encode({"form": DELIVERY_FORMAT, "via": bytes(delivery.via), "parcels": parcels})


def decode_delivery(body: bytes) -> Delivery:
    """The delivery in the body of a request; only its form is checked."""
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise ParcelError("parcel.bad", f"the delivery is no CBOR of ours: {err.message}") from err
    if type(value) is not dict or value.keys() != {"form", "via", "parcels"} or value["form"] != DELIVERY_FORMAT:
        raise ParcelError("parcel.bad", f"the delivery is not of the form {DELIVERY_FORMAT!r}")
    parcels = _list(value["parcels"], MAX_PARCELS, "parcels")
    return Delivery(IdentityId(_bytes(value["via"], 32)), [_read_parcel(item) for item in parcels])


def _read_parcel(value: Any) -> Parcel:
    if type(value) is not dict or value.keys() != {"instance", "recipients", "entries"}:
        raise ParcelError("parcel.bad", "a parcel has an instance, recipients and entries")
    recipients = [
        IdentityId(_bytes(item, 32)) for item in _list(value["recipients"], MAX_PARCEL_RECIPIENTS, "recipients")
    ]
    entries = []
    for item in _list(value["entries"], MAX_DELIVERY_ENTRIES, "entries"):
        if type(item) is not list or not 1 <= len(item) <= 2:
            raise ParcelError("parcel.bad", "an entry comes as [entry] or [entry, payload]")
        entries.append((_bytes(item[0]), _bytes(item[1]) if len(item) == 2 else None))
    return Parcel(Hash(_bytes(value["instance"])), tuple(recipients), entries)


def _list(value: Any, most: int, what: str) -> list[Any]:
    if type(value) is not list or not 1 <= len(value) <= most:
        raise ParcelError("parcel.bad", f"{what} come as a list of 1 to {most}")
    return value


def _bytes(value: Any, length: int | None = None) -> bytes:
    if type(value) is not bytes or (length is not None and len(value) != length):
        raise ParcelError("parcel.bad", "a byte string has the wrong type or length")
    return value


def open_parcel(parcel: Parcel, create: Entry | None, held: Container[Hash] = ()) -> OpenedParcel:
    """Check a parcel; `create` is the entry that the instance begins with, if that is held already.

    `held`: hashes of entries that were verified before. The same bytes come often, in pools or after a lost receipt.
    """
    for _, payload in parcel.entries:
        if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:  # not worth to be hashed
            raise MessageError(
                "message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}"
            )
    signed = [_verify_unless(held, decode_entry(entry)) for entry, _ in parcel.entries]
    places = {(item.entry.author, item.entry.log_id) for item in signed}
    if len(places) != 1:
        raise ParcelError("parcel.bad", "the entries of a parcel are of one log")
    ((author, log_id),) = places
    if log_id == 0:
        raise ParcelError("parcel.bad", "log 0 is about an identity: it is read from its own node, never sent")
    if create is not None and (create.author, create.log_id) != (author, log_id):
        raise ParcelError("parcel.bad", "the instance is in another log: only its author says something about it")
    seq_nums = [item.entry.seq_num for item in signed]
    if any(earlier >= later for earlier, later in pairwise(seq_nums)):
        raise ParcelError("parcel.bad", "the entries of a parcel come in their order, each once")
    messages = _read_messages(parcel, signed, create.seq_num if create is not None else None)
    pools = set(union_of_pools([item.seq_num for item in messages]))
    if not pools.issuperset(seq_nums):
        raise ParcelError("parcel.bad", "the parcel holds entries that prove nothing about its instance")
    return OpenedParcel(parcel, signed, author, log_id, messages)


def _verify_unless(held: Container[Hash], entry: Entry) -> SignedEntry:
    name = hash_entry(entry)  # of all bytes, the signature among them
    return SignedEntry(entry, name) if name in held else verify_signed(entry)


def read_end(parcel: Parcel) -> tuple[PublicKey, int, InstanceRef] | None:
    """What a parcel ends that lacks the create: the log and how its delete names the instance; None if it is no end.

    Raises if any of its payloads does not hold.
    """
    signed = [verify_signed(decode_entry(entry)) for entry, _ in parcel.entries]
    if len({(item.entry.author, item.entry.log_id) for item in signed}) != 1:
        return None
    messages = []
    for item, (_, payload) in zip(signed, parcel.entries, strict=True):
        if payload is not None:
            verify_payload(item.entry, payload)
            messages.append(decode_message(payload))
    named = {message.instance if isinstance(message, Delete) else None for message in messages}
    if len(named) != 1 or (instance := named.pop()) is None:
        return None
    return signed[0].entry.author, signed[0].entry.log_id, instance


def _read_messages(parcel: Parcel, signed: Sequence[SignedEntry], create_seq: int | None) -> list[ParcelMessage]:
    messages: list[ParcelMessage] = []
    for item, (_, payload) in zip(signed, parcel.entries, strict=True):
        if payload is None:
            continue
        verify_payload(item.entry, payload)
        message = decode_message(payload)
        seq_num = item.entry.seq_num
        if isinstance(message, Create):
            if item.hash != parcel.instance:
                raise ParcelError("parcel.bad", f"entry {seq_num} is the create of another instance")
            create_seq = seq_num
        elif not isinstance(message, Update | Delete):
            raise ParcelError("parcel.bad", f"entry {seq_num} is no message of an instance")
        elif create_seq is None:
            raise LacksCreate("the create of the instance is neither held here nor in the parcel: send all of it")
        elif message.instance not in (parcel.instance, create_seq) or seq_num <= create_seq:
            raise ParcelError("parcel.bad", f"entry {seq_num} is no message of the parcel's instance")
        messages.append(ParcelMessage(seq_num, item.hash, message))
    if not messages:
        raise ParcelError("parcel.bad", "the parcel holds no payload")
    return messages


def encode_receipts(receipts: Sequence[Mapping[str, Any]]) -> bytes:
    """The answer to a delivery: what became of each parcel for each recipient."""
    return cbor.encode({"form": DELIVERY_FORMAT, "receipts": [dict(item) for item in receipts]})


# A bundle: instances with their proofs and schemas as one file, for handing over without a network.
#
# docs/protocol.md section 8. What it holds is what travels between nodes. Only the form is checked here.


BUNDLE_FORMAT: Final = "inkgrove bundle 1"
MAX_INSTANCES: Final = 10_000

BundledEntry = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class BundledInstance:
    """Messages of one instance with payloads, and the pools that prove them without."""

    instance: Hash
    entries: Sequence[BundledEntry]


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the file holds."""

    instances: Sequence[BundledInstance]
    schemas: Sequence[BundledEntry]
    """The logs of the schemas that the instances name."""


def encode_bundle(bundle: Bundle) -> bytes:
    """The bytes of the file."""
    instances: list[cbor.Value] = [
        {"instance": bytes(item.instance), "entries": _write_items(item.entries)} for item in bundle.instances
    ]
    return cbor.encode({"form": BUNDLE_FORMAT, "instances": instances, "schemas": _write_items(bundle.schemas)})


def _write_items(items: Sequence[BundledEntry]) -> list[cbor.Value]:
    return [[entry] if payload is None else [entry, payload] for entry, payload in items]


def decode_bundle(data: bytes) -> Bundle:
    """The bundle in a file."""
    try:
        value: Any = cbor.decode(data)
    except InkgroveError as err:
        raise ParcelError("parcel.bad-bundle", f"the file is no bundle: {err.message}") from err
    if type(value) is not dict or value.keys() != {"form", "instances", "schemas"} or value["form"] != BUNDLE_FORMAT:
        raise ParcelError("parcel.bad-bundle", f"the file is not of the form {BUNDLE_FORMAT!r}")
    return Bundle([_read_instance(item) for item in _list_bundle(value["instances"])], _read_items(value["schemas"]))


def _read_instance(value: Any) -> BundledInstance:
    if type(value) is not dict or value.keys() != {"instance", "entries"} or type(value["instance"]) is not bytes:
        raise ParcelError("parcel.bad-bundle", "an instance comes with its id and its entries")
    return BundledInstance(Hash(value["instance"]), _read_items(value["entries"]))


def _read_items(value: Any) -> list[BundledEntry]:
    items: list[BundledEntry] = []
    for item in _list_bundle(value, MAX_DELIVERY_ENTRIES):
        if type(item) is not list or not 1 <= len(item) <= 2 or any(type(part) is not bytes for part in item):
            raise ParcelError("parcel.bad-bundle", "an entry comes as [entry] or [entry, payload]")
        items.append((item[0], item[1] if len(item) == 2 else None))
    return items


def _list_bundle(value: Any, most: int = MAX_INSTANCES) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise ParcelError("parcel.bad-bundle", f"a list has at most {most} items")
    return value
