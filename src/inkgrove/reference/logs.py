"""Held entries sorted into logs: which are verified, which are in the invalid part, which message each payload holds.

docs/protocol.md sections 2 and 7. The order in which the entries come, and how often, does not matter. What revoked
keys have signed after the last entry that counts, or outside of the branch that is pinned, is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from inkgrove.core import (
    Hash,
    HeldEntry,
    PublicKey,
    SignedEntry,
    check_storable,
    find_fork,
    lipmaa,
    verify_log,
    verify_payload,
)
from inkgrove.core.errors import InkgroveError, IntegerTooLarge, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.messages import (
    Create,
    Delete,
    InstanceRef,
    Message,
    RevokedLog,
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
    held: tuple[HeldEntry, ...] = ()
    """Everything that is held of it, each entry once."""

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
    items = tuple(HeldEntry(entry, payloads.get(entry.hash)) for entry in entries)
    report = verify_log(items, partial=True)
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
    return Log(*key, valid, invalid, invalid_from, report.fork.seq_num if report.fork else None, items)


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


def without_revoked(logs: dict[LogKey, Log], ends: Mapping[PublicKey, Iterable[RevokedLog]]) -> dict[LogKey, Log]:
    """Return the logs without what does not count of ended keys: behind the last entry, or beside a pinned branch.

    `ends` has the ended keys, each with the logs that count in part (section 7.2.6).
    """
    listed = {(key, end.log_id): end for key, some in ends.items() for end in some}
    return {
        key: log if key[1] == 0 or key[0] not in ends else _cut(log, listed.get(key, RevokedLog(key[1], 0)))
        for key, log in logs.items()
    }


def _cut(log: Log, end: RevokedLog) -> Log:
    branch = pinned_branch(log, end)
    if branch is not None:
        return _branch_as_log(log, branch)
    return replace(
        log,
        valid={seq_num: held for seq_num, held in log.valid.items() if seq_num <= end.last},
        invalid=[held for held in log.invalid if held.seq_num <= end.last],
    )


def _branch_as_log(log: Log, branch: list[HeldEntry]) -> Log:
    """The log of which only this branch counts: all of it, unless one of its entries lies about a size."""
    lies = [item.signed.entry.seq_num for item in branch if _is_lie(item)]
    valid: dict[int, HeldMessage] = {}
    invalid: list[HeldMessage] = []
    for item in sorted(branch, key=lambda item: item.signed.entry.seq_num):
        seq_num = item.signed.entry.seq_num
        message = HeldMessage(log.author, log.log_id, seq_num, item.signed.hash, _read(item.payload))
        if lies and seq_num >= min(lies):
            invalid.append(message)
        else:
            valid[seq_num] = message
    return replace(log, valid=valid, invalid=invalid, invalid_from=min(lies, default=None), forked_at=None)


def _is_lie(item: HeldEntry) -> bool:
    return item.payload is not None and len(item.payload) != item.signed.entry.payload_size


def pinned_branch(log: Log, end: RevokedLog) -> list[HeldEntry] | None:
    """What a pin leads to, if it decides which branch of the log counts (docs/protocol.md section 7.2)."""
    by_hash = {item.signed.hash: item for item in log.held}
    pin = by_hash.get(end.hash) if end.hash is not None else None
    if pin is None or pin.signed.entry.seq_num != end.last:
        return None
    branch: dict[Hash, HeldEntry] = {}
    waiting = [pin]
    while waiting:
        item = waiting.pop()
        branch[item.signed.hash] = item
        entry = item.signed.entry
        for link, seq_num in ((entry.backlink, entry.seq_num - 1), (entry.lipmaa_link, lipmaa(entry.seq_num))):
            target = by_hash.get(link) if link is not None else None
            if target is not None and target.signed.entry.seq_num == seq_num and target.signed.hash not in branch:
                waiting.append(target)
    entries = [item.signed.entry for item in branch.values()]
    has_first = any(entry.seq_num == 1 for entry in entries)
    is_forked = find_fork(item.signed for item in branch.values()) is not None
    goes_past_end = any(entry.is_end_of_log and entry.seq_num < end.last for entry in entries)
    return list(branch.values()) if has_first and not is_forked and not goes_past_end else None
