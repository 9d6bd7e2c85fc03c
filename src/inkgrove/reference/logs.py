"""Held entries sorted into logs: which are verified, which are in the invalid part, which message each payload holds.

docs/protocol.md sections 2 and 7. The order in which the entries come, and how often, does not matter. What revoked
keys have signed after the last entry that counts is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inkgrove.core import (
    Hash,
    HeldEntry,
    IdentityId,
    PublicKey,
    SignedEntry,
    check_storable,
    identity_of,
    verify_log,
    verify_payload,
)
from inkgrove.core.errors import InkgroveError, IntegerTooLarge, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.messages import (
    Create,
    Delete,
    IdentityDocument,
    InstanceRef,
    KeyOf,
    Message,
    SchemaId,
    SchemaMeta,
    Update,
    decode_message,
)

LogKey = tuple[PublicKey, int]


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """One entry and the message that its payload holds."""

    author: PublicKey
    log_id: int
    seq_num: int
    hash: Hash
    content: Message | InkgroveError | None
    """The error if the payload is malformed, None if no payload is held."""


@dataclass(frozen=True, slots=True)
class Log:
    """The entries held of one log, and from where on they do not count."""

    author: PublicKey
    log_id: int
    valid: dict[int, HeldMessage]
    """The verified entries by sequence number."""
    invalid: list[HeldMessage]
    """Every signed entry from `invalid_from` on."""
    invalid_from: int | None
    forked_at: int | None

    @property
    def messages(self) -> list[HeldMessage]:
        """All entries that are there, in the order of the log."""
        return [self.valid[seq_num] for seq_num in sorted(self.valid)] + self.invalid

    def is_invalid_at(self, seq_num: int) -> bool:
        """Whether the sequence number lies in the invalid part."""
        return self.invalid_from is not None and seq_num >= self.invalid_from

    @property
    def is_schema_log(self) -> bool:
        """Whether entry 1 is verified and a `schema-meta`."""
        return self.log_id >= 1 and 1 in self.valid and isinstance(self.valid[1].content, SchemaMeta)


def gather_logs(held: Iterable[HeldEntry]) -> dict[LogKey, Log]:
    """The logs by author and log id."""
    signed: dict[Hash, SignedEntry] = {}
    payloads: dict[Hash, bytes] = {}
    for item in held:
        if not _is_storable(item.signed):
            continue
        signed[item.signed.hash] = item.signed
        if item.payload is not None and _has_right_hash(item.signed, item.payload):
            payloads[item.signed.hash] = item.payload
    keys = {(entry.entry.author, entry.entry.log_id) for entry in signed.values()}
    return {
        key: _gather_log(
            key, [entry for entry in signed.values() if (entry.entry.author, entry.entry.log_id) == key], payloads
        )
        for key in sorted(keys)
    }


def _gather_log(key: LogKey, entries: list[SignedEntry], payloads: dict[Hash, bytes]) -> Log:
    report = verify_log([HeldEntry(entry, payloads.get(entry.hash)) for entry in entries], partial=True)
    invalid_from = report.invalid_from
    valid: dict[int, HeldMessage] = {}
    invalid: list[HeldMessage] = []
    for entry in sorted(entries, key=lambda entry: (entry.entry.seq_num, entry.hash)):
        seq_num = entry.entry.seq_num
        held = HeldMessage(*key, seq_num, entry.hash, _read(payloads.get(entry.hash)))
        if invalid_from is not None and seq_num >= invalid_from:
            invalid.append(held)
        elif seq_num in report.verified:
            valid[seq_num] = held
    return Log(*key, valid, invalid, invalid_from, report.fork.seq_num if report.fork else None)


def _is_storable(signed: SignedEntry) -> bool:
    try:
        check_storable(signed.entry)
    except IntegerTooLarge:
        return False
    return True


def _has_right_hash(signed: SignedEntry, payload: bytes) -> bool:
    """A payload of the wrong size is the entry's payload all the same: it is what proves the lie."""
    try:
        verify_payload(signed.entry, payload)
    except PayloadHashMismatch:
        return False
    except PayloadSizeMismatch:
        return True
    return True


def _read(payload: bytes | None) -> Message | InkgroveError | None:
    if payload is None:
        return None
    try:
        return decode_message(payload)
    except InkgroveError as error:
        return error


def verified_by_hash(logs: dict[LogKey, Log]) -> dict[Hash, HeldMessage]:
    """Every verified entry of every log."""
    return {held.hash: held for log in logs.values() for held in log.valid.values()}


def find_named(instance: InstanceRef, log: Log, by_hash: dict[Hash, HeldMessage]) -> HeldMessage | None:
    """Return the verified entry that a message of `log` calls its instance, whatever that entry is."""
    return log.valid.get(instance) if isinstance(instance, int) else by_hash.get(instance)


def schema_named_by(held: HeldMessage) -> SchemaId | None:
    """The schema that an instance message names, if it does."""
    content = held.content
    if isinstance(content, Create | Update):
        return content.schema.schema_id
    if isinstance(content, Delete) and content.schema is not None:
        return content.schema.schema_id
    return None


def find_log_schema(log: Log) -> SchemaId | None:
    """The schema named by the lowest message of the log that names one."""
    for seq_num in sorted(log.valid):
        named = schema_named_by(log.valid[seq_num])
        if named is not None:
            return named
    return None


def schema_of_message(held: HeldMessage, log: Log) -> SchemaId | None:
    """The schema that the outcome of a message belongs to: its own, else its create's, else that of its log."""
    named = schema_named_by(held)
    if named is not None:
        return named
    if isinstance(held.content, Delete) and log.log_id != 0:
        for earlier in log.valid.values():
            is_named = held.content.instance in (earlier.seq_num, earlier.hash)
            if is_named and earlier.seq_num < held.seq_num and isinstance(earlier.content, Create):
                return earlier.content.schema.schema_id
    return find_log_schema(log)


def owners_of_keys(logs: dict[LogKey, Log]) -> dict[PublicKey, IdentityId | None]:
    """Whose each author is: a further key's identity, if its document lists it; None if it does not; else its own."""
    owners: dict[PublicKey, IdentityId | None] = {author: identity_of(author) for author, _ in logs}
    listed = {
        (identity_of(author), item.key)
        for (author, log_id), log in logs.items()
        if log_id == 0 and (document := _newest_document(log)) is not None
        for item in document.keys
        if item.key != author
    }
    for author in owners:
        claimed = _claimed(logs.get((author, 0)))
        if claimed is not None:
            owners[author] = claimed if (claimed, author) in listed else None
    return owners


def without_revoked(logs: dict[LogKey, Log]) -> dict[LogKey, Log]:
    """Return the logs without entries of revoked keys that do not count; invalid parts stay as they are."""
    ends: dict[PublicKey, dict[int, int]] = {}
    for (author, log_id), log in logs.items():
        if log_id == 0:
            ends.update(_revoked_by(author, log, logs))
    return {
        key: log if key[1] == 0 or key[0] not in ends else _cut(log, ends[key[0]].get(key[1], 0))
        for key, log in logs.items()
    }


def _revoked_by(author: PublicKey, log: Log, logs: dict[LogKey, Log]) -> dict[PublicKey, dict[int, int]]:
    """The keys that the newest document in log 0 of a first key revokes, if they say themselves that they are its."""
    newest = _newest_document(log)
    if newest is None:
        return {}
    return {
        item.key: dict(item.revoked)
        for item in newest.keys
        if item.revoked is not None and item.key != author and _claimed(logs.get((item.key, 0))) == identity_of(author)
    }


def _newest_document(log: Log) -> IdentityDocument | None:
    """The newest document in log 0 of a first key; None in that of a further key."""
    if _claimed(log) is not None:
        return None
    documents = [message.content for _, message in sorted(log.valid.items())]
    return next((item for item in reversed(documents) if isinstance(item, IdentityDocument)), None)


def _claimed(log: Log | None) -> IdentityId | None:
    """The identity that a further key says it belongs to."""
    first = log.valid.get(1) if log is not None else None
    return first.content.identity if first is not None and isinstance(first.content, KeyOf) else None


def _cut(log: Log, last: int) -> Log:
    return replace(log, valid={seq_num: held for seq_num, held in log.valid.items() if seq_num <= last})
