"""Checks items before the database is touched: bytes, signature, payload, message (docs/protocol.md sections 2 and 3).

All of it is computing, done outside the transaction so that no writer waits for it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from inkgrove.core import (
    AreSigned,
    Entry,
    Hash,
    PublicKey,
    SignedEntry,
    check_storable,
    decode_entry,
    hash_entry,
    list_claims,
    verify_all_signed,
    verify_payload,
)
from inkgrove.core.errors import InkgroveError, PayloadError, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.messages import Create, Delete, InstanceRef, Message, SchemaVersion, Update, decode_message
from inkgrove.signature_process import are_signed

Offered = bytes | Entry | SignedEntry
"""An entry that is offered to the store; the signature of a `SignedEntry` has been checked already."""

IngestItem = tuple[Offered, bytes | None]
"""An entry with its payload, if that is at hand."""


class PayloadContent(NamedTuple):
    """What is stored of a payload beside its bytes: kind, schema, instance, and why it is malformed."""

    kind: str | None = None
    schema: SchemaVersion | None = None
    instance: InstanceRef | None = None
    code: str | None = None
    """Why the message is malformed."""
    message: Message | None = None
    access: str | None = None
    """The mode of access, if the message sets one."""
    continues: Hash | None = None
    """The instance that a create continues."""


class PreparedItem(NamedTuple):
    """An item that is signed and can be stored, if its log allows."""

    number: int
    """Its index among the items given."""
    signed: SignedEntry
    claims: tuple[tuple[int, Hash], ...]
    """The hashes it claims: first its own, then those of the entries it links to, each with its sequence number."""
    payload: bytes | None
    """None also where the bytes given were not this entry's payload."""
    payload_error: PayloadError | None
    content: PayloadContent | None

    @property
    def is_lie(self) -> bool:
        """Whether the payload proves that the entry claims a wrong size."""
        return isinstance(self.payload_error, PayloadSizeMismatch)

    @property
    def is_delete(self) -> bool:
        """Whether the payload is here and ends an instance."""
        return self.content is not None and self.content.kind == "delete"


class RejectedItem(NamedTuple):
    """An item that no log would take."""

    number: int
    hash: Hash | None
    error: InkgroveError


LogKey = tuple[PublicKey, int]
"""The author and id of a log."""
Batch = dict[LogKey, list[PreparedItem]]
"""The items of each log, in ascending order."""


def prepare_items(
    items: Iterable[IngestItem], are_signed: AreSigned = are_signed
) -> tuple[list[PreparedItem], list[RejectedItem]]:
    """Check each item on its own; `are_signed` says who checks the signatures."""
    rejected: list[RejectedItem] = []
    decoded: list[tuple[int, Entry, bytes | None]] = []
    signed: dict[int, SignedEntry] = {}
    for number, (offered, payload) in enumerate(items):
        entry = None
        try:
            entry = _entry_of(offered)
            check_storable(entry)
        except InkgroveError as error:
            # Without its frames, which hold all items: they would stay in memory until garbage is collected.
            refusal = error.with_traceback(None)
            rejected.append(RejectedItem(number, hash_entry(entry) if entry is not None else None, refusal))
            continue
        decoded.append((number, entry, payload))
        if isinstance(offered, SignedEntry):
            signed[number] = offered
    unchecked = [(number, entry) for number, entry, _ in decoded if number not in signed]
    verdicts = verify_all_signed([entry for _, entry in unchecked], are_signed)
    for (number, entry), verdict in zip(unchecked, verdicts, strict=True):
        if isinstance(verdict, SignedEntry):
            signed[number] = verdict
        else:
            rejected.append(RejectedItem(number, hash_entry(entry), verdict))
    return [
        _with_payload(number, signed[number], payload) for number, _, payload in decoded if number in signed
    ], rejected


def _entry_of(offered: Offered) -> Entry:
    if isinstance(offered, bytes):
        return decode_entry(offered)
    return offered.entry if isinstance(offered, SignedEntry) else offered


def _with_payload(number: int, signed: SignedEntry, payload: bytes | None) -> PreparedItem:
    claims = tuple(list_claims(signed))
    if payload is None:
        return PreparedItem(number, signed, claims, None, None, None)
    try:
        verify_payload(signed.entry, payload)
    except PayloadHashMismatch as error:
        return PreparedItem(number, signed, claims, None, error, None)
    except PayloadSizeMismatch as error:
        return PreparedItem(number, signed, claims, payload, error, read_content(payload))
    return PreparedItem(number, signed, claims, payload, None, read_content(payload))


def read_content(payload: bytes) -> PayloadContent:
    """Decode a payload; gives the error code alone if it is malformed."""
    try:
        message = decode_message(payload)
    except InkgroveError as error:
        return PayloadContent(code=error.code)
    return content_of(message)


def content_of(message: Message) -> PayloadContent:
    """Make the content of a decoded message."""
    kind = KINDS[type(message).__name__]
    if isinstance(message, Create):
        mode = _mode_of(message)
        return PayloadContent(kind, message.schema, message=message, access=mode, continues=message.continues)
    if isinstance(message, Update):
        return PayloadContent(kind, message.schema, message.instance, message=message, access=_mode_of(message))
    if isinstance(message, Delete):
        return PayloadContent(kind, message.schema, message.instance, message=message)
    return PayloadContent(kind, message=message)


def _mode_of(message: Create | Update) -> str | None:
    return message.access.mode if message.access is not None else None


def prepare_own(signed: SignedEntry, payload: bytes, message: Message) -> PreparedItem:
    """An item that this very process has just encoded and signed: there is nothing to check."""
    return PreparedItem(0, signed, tuple(list_claims(signed)), payload, None, content_of(message))


KINDS = {
    "Create": "create",
    "Update": "update",
    "Delete": "delete",
    "SchemaMeta": "schema-meta",
    "SchemaMigration": "schema-migration",
    "SchemaRevert": "schema-revert",
    "IdentityDocument": "identity",
    "KeyOf": "key-of",
}


def by_log(prepared: Iterable[PreparedItem]) -> Batch:
    """Group items by log in ascending order, so that what an item links to is decided before it."""
    logs: Batch = {}
    for item in prepared:
        entry = item.signed.entry
        logs.setdefault((entry.author, entry.log_id), []).append(item)
    for items in logs.values():
        items.sort(key=lambda item: item.signed.entry.seq_num)
    return logs
