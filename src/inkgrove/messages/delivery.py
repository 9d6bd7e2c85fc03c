"""Deliveries and bundles: entries of instances with payloads, and the payload-free pools that prove them.

docs/protocol.md sections 2 and 8. A delivery holds parcels; a parcel holds entries of one instance, of which the create
may be missing when the receiver has it already. `open_parcel` checks signatures, payloads and what belongs to the
instance; only whether links lead to what is held is left to the store. A bundle is a file with instances and the logs
of their schemas, for handing over without a network.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from inkgrove.core import (
    Entry,
    Hash,
    IdentityId,
    PublicKey,
    SignedEntry,
    decode_entry,
    hash_entry,
    trust_signed,
    union_of_pools,
    verify_payload,
    verify_signed,
)
from inkgrove.core.errors import InkgroveError, LacksCreate, MessageError, ParcelError
from inkgrove.core.limits import MAX_PAYLOAD_BYTES
from inkgrove.messages import cbor
from inkgrove.messages.ids import InstanceRef
from inkgrove.messages.instance import Access, Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.value_readers import EntryPair, Unset, read_entry_pair, write_entry_pairs

DELIVERY_FORMAT: Final = "inkgrove delivery 1"
DELIVERY_MEDIA_TYPE: Final = "application/vnd.inkgrove.delivery+cbor"
MAX_PARCELS: Final = 200
MAX_PARCEL_RECIPIENTS: Final = 1000
MAX_DELIVERY_ENTRIES: Final = 20_000
MAX_PROOFS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Parcel:
    """The entries of one instance, for some recipients of the receiving node."""

    instance: Hash
    recipients: tuple[IdentityId, ...]
    entries: Sequence[EntryPair]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The body of one signed request between nodes: parcels that one identity sends."""

    via: IdentityId
    parcels: Sequence[Parcel]
    erases: bool = False
    """Whether the sender asks that what its deletes end be erased at once: they close their account."""
    proofs: Sequence[EntryPair] = ()
    """Entries of log 0 that prove that the keys which end instances are those of their owners."""


@dataclass(frozen=True, slots=True)
class ParcelMessage:
    """A message of the parcel's instance, with its sequence number and entry hash."""

    seq_num: int
    hash: Hash
    message: InstanceMessage


@dataclass(frozen=True, slots=True)
class OpenedParcel:
    """A parcel whose signatures hold and whose payloads are those of one instance and nothing else."""

    parcel: Parcel
    signed: Sequence[SignedEntry]
    """Its entries, in order: nobody has to check their signatures again."""
    author: PublicKey
    log_id: int
    messages: Sequence[ParcelMessage]
    is_of_other_log: bool = False
    """Whether it holds deletes in another log than that of the create (docs/protocol.md section 5.7)."""

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
        """The sequence number of the newest message."""
        return self.messages[-1].seq_num

    @property
    def access(self) -> tuple[int, Access] | None:
        """The newest access of the instance in the parcel, with the sequence number of its message."""
        for item in reversed(self.messages):
            if not isinstance(item.message, Delete) and item.message.access is not None:
                return item.seq_num, item.message.access
        return None

    @property
    def expires(self) -> Timestamp | None:
        """When the instance expires, by the newest message in the parcel that says so."""
        for item in reversed(self.messages):
            if not isinstance(item.message, Delete) and not isinstance(item.message.expires, Unset):
                return item.message.expires
        return None


def encode_delivery(delivery: Delivery) -> bytes:
    """Encode the body of a request."""
    parcels: list[cbor.Value] = [
        {
            "instance": bytes(parcel.instance),
            "recipients": [bytes(recipient) for recipient in parcel.recipients],
            "entries": write_entry_pairs(parcel.entries),
        }
        for parcel in delivery.parcels
    ]
    asked: dict[str, cbor.Value] = {"erase": True} if delivery.erases else {}
    if delivery.proofs:
        asked["proofs"] = write_entry_pairs(delivery.proofs)
    return cbor.encode({"form": DELIVERY_FORMAT, "via": bytes(delivery.via), "parcels": parcels, **asked})


def decode_delivery(body: bytes) -> Delivery:
    """Decode the body of a request; checks only its form, and raises `parcel.bad`."""
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise ParcelError("parcel.bad", f"the delivery is no CBOR of ours: {err.message}") from err
    keys = {"form", "via", "parcels"}
    if type(value) is not dict or value.keys() - {"erase", "proofs"} != keys or value["form"] != DELIVERY_FORMAT:
        raise ParcelError("parcel.bad", f"the delivery is not of the form {DELIVERY_FORMAT!r}")
    parcels = _list(value["parcels"], MAX_PARCELS, "parcels")
    if value.get("erase", True) is not True:
        raise ParcelError("parcel.bad", "`erase` is true, or not there")
    given = _list(value["proofs"], MAX_PROOFS, "proofs") if "proofs" in value else ()
    proofs = tuple(read_entry_pair(item, "parcel.bad") for item in given)
    via = IdentityId(_bytes(value["via"], 32))
    return Delivery(via, [_read_parcel(item) for item in parcels], "erase" in value, proofs)


def _read_parcel(value: Any) -> Parcel:
    if type(value) is not dict or value.keys() != {"instance", "recipients", "entries"}:
        raise ParcelError("parcel.bad", "a parcel has an instance, recipients and entries")
    recipients = [
        IdentityId(_bytes(item, 32)) for item in _list(value["recipients"], MAX_PARCEL_RECIPIENTS, "recipients")
    ]
    items = _list(value["entries"], MAX_DELIVERY_ENTRIES, "entries")
    entries = [read_entry_pair(item, "parcel.bad") for item in items]
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
    """Check a parcel; raises an error of an entry, payload or message, `LacksCreate` or `parcel.bad`.

    `create` is the entry that the instance begins with, if it is held already. `held`: hashes of entries that were
    verified before; many come again, in pools or after a lost receipt.
    """
    for _, payload in parcel.entries:
        if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:  # not worth to be hashed
            raise MessageError(
                "message.too-large", f"a message has at most {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}"
            )
    signed = [_verify_unless(held, decode_entry(entry)) for entry, _ in parcel.entries]
    logs = {(item.entry.author, item.entry.log_id) for item in signed}
    if len(logs) != 1:
        raise ParcelError("parcel.bad", "the entries of a parcel are of one log")
    ((author, log_id),) = logs
    if log_id == 0:
        raise ParcelError("parcel.bad", "log 0 is about an identity: it is read from its own node, never sent")
    is_of_other_log = create is not None and (create.author, create.log_id) != (author, log_id)
    seq_nums = [item.entry.seq_num for item in signed]
    if any(earlier >= later for earlier, later in pairwise(seq_nums)):
        raise ParcelError("parcel.bad", "the entries of a parcel come in their order, each once")
    if is_of_other_log:
        messages = _read_ends(parcel, signed)
    else:
        messages = _read_messages(parcel, signed, create.seq_num if create is not None else None)
    # The last entry may be one that the owner of the log has pinned: its pool comes with everything of the log.
    pools = set(union_of_pools([*(item.seq_num for item in messages), seq_nums[-1]]))
    if not pools.issuperset(seq_nums):
        raise ParcelError("parcel.bad", "the parcel holds entries that prove nothing about its instance")
    return OpenedParcel(parcel, signed, author, log_id, messages, is_of_other_log)


def _verify_unless(held: Container[Hash], entry: Entry) -> SignedEntry:
    name = hash_entry(entry)  # of all bytes, the signature among them
    return trust_signed(entry, name) if name in held else verify_signed(entry)


def read_end(parcel: Parcel) -> tuple[PublicKey, int, InstanceRef] | None:
    """Read a parcel of deletes without their create: the log, and how they name the instance; None for other parcels.

    Raises if a signature or payload in it does not hold.
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


def _read_ends(parcel: Parcel, signed: Sequence[SignedEntry]) -> list[ParcelMessage]:
    """Read deletes that another key of the owner has signed, in its own log; whose key it is the receiver finds out."""
    messages: list[ParcelMessage] = []
    for item, (_, payload) in zip(signed, parcel.entries, strict=True):
        if payload is None:
            continue
        verify_payload(item.entry, payload)
        message = decode_message(payload)
        if not isinstance(message, Delete) or message.instance != parcel.instance or message.schema is None:
            raise ParcelError(
                "parcel.bad", "the instance is in another log: all that can be said about it there is that it has ended"
            )
        messages.append(ParcelMessage(item.entry.seq_num, item.hash, message))
    if not messages:
        raise ParcelError("parcel.bad", "the parcel holds no payload")
    return messages


def encode_receipts(receipts: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the answer to a delivery: a receipt for each parcel and recipient."""
    return cbor.encode({"form": DELIVERY_FORMAT, "receipts": [dict(item) for item in receipts]})


# Bundles

BUNDLE_FORMAT: Final = "inkgrove bundle 2"
_FIRST_BUNDLE_FORMAT: Final = "inkgrove bundle 1"
"""Is read as well; it has no documents."""
MAX_INSTANCES: Final = 10_000

BundledEntry = EntryPair


@dataclass(frozen=True, slots=True)
class BundledInstance:
    """One instance of a bundle: its messages with payloads, and the pools that prove them without."""

    instance: Hash
    entries: Sequence[BundledEntry]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of the file."""

    instances: Sequence[BundledInstance]
    schemas: Sequence[BundledEntry]
    """The logs of the schemas that the instances name."""
    documents: Sequence[bytes] = ()
    """Of each owner whose document the writer holds, the entries that prove it, in the form of a notice of it."""


def encode_bundle(bundle: Bundle) -> bytes:
    """Encode the file."""
    instances: list[cbor.Value] = [
        {"instance": bytes(item.instance), "entries": write_entry_pairs(item.entries)} for item in bundle.instances
    ]
    return cbor.encode(
        {
            "form": BUNDLE_FORMAT,
            "instances": instances,
            "schemas": write_entry_pairs(bundle.schemas),
            "documents": list(bundle.documents),
        }
    )


def decode_bundle(data: bytes) -> Bundle:
    """Decode a file; checks only its form, and raises `parcel.bad-bundle`."""
    try:
        value: Any = cbor.decode(data)
    except InkgroveError as err:
        raise ParcelError("parcel.bad-bundle", f"the file is no bundle: {err.message}") from err
    if type(value) is dict and value.get("form") == _FIRST_BUNDLE_FORMAT:
        value = {"documents": [], **value, "form": BUNDLE_FORMAT}
    names = {"form", "instances", "schemas", "documents"}
    if type(value) is not dict or value.keys() != names or value["form"] != BUNDLE_FORMAT:
        raise ParcelError("parcel.bad-bundle", f"the file is not of the form {BUNDLE_FORMAT!r}")
    documents = _list_bundle(value["documents"])
    if not all(type(item) is bytes for item in documents):
        raise ParcelError("parcel.bad-bundle", "a document comes as bytes")
    instances = [_read_instance(item) for item in _list_bundle(value["instances"])]
    return Bundle(instances, _read_items(value["schemas"]), documents)


def _read_instance(value: Any) -> BundledInstance:
    if type(value) is not dict or value.keys() != {"instance", "entries"} or type(value["instance"]) is not bytes:
        raise ParcelError("parcel.bad-bundle", "an instance comes with its id and its entries")
    return BundledInstance(Hash(value["instance"]), _read_items(value["entries"]))


def _read_items(value: Any) -> list[BundledEntry]:
    return [read_entry_pair(item, "parcel.bad-bundle") for item in _list_bundle(value, MAX_DELIVERY_ENTRIES)]


def _list_bundle(value: Any, most: int = MAX_INSTANCES) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise ParcelError("parcel.bad-bundle", f"a list has at most {most} items")
    return value
