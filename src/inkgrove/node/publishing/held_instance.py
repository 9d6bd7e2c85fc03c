"""What this node holds of an instance, as sharing needs to know it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.core.links import union_of_pools
from inkgrove.messages.delivery import Parcel
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Access, Create, Delete, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.timestamp import Timestamp
from inkgrove.messages.value_readers import Unset
from inkgrove.node.identity.identity_log import find_owner  # noqa: F401
from inkgrove.schema.log_fold import LogMessage
from inkgrove.store.db import Connection
from inkgrove.store.logs.entries import find_entry, find_log, read_entry_bytes
from inkgrove.store.logs.messages import InstanceKey, messages_of

MAX_PARCEL_BYTES: Final = 4 * 1024 * 1024
"""How much of an instance goes into one parcel."""


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance whose create is held with its payload."""

    instance: Hash
    schema: SchemaId
    author: PublicKey
    log: int
    """The store's own number of its log."""
    height: int
    create_seq: int
    access: Access | None
    """The newest word."""
    access_seq: int
    """Where that was said; 0 if nothing was."""
    expires: Timestamp | None
    """The newest word."""
    is_deleted: bool
    messages: Sequence[LogMessage]
    """The valid ones with payloads, in order."""

    def is_expired(self, now: int) -> bool:
        """Whether its time is over, by the newest word on that."""
        return self.expires is not None and self.expires.microseconds <= now

    @property
    def last_seq(self) -> int:
        """The place of the newest message."""
        return self.messages[-1].seq_num


def find_held_instance(connection: Connection, instance: Hash) -> HeldInstance | None:
    """The instance, if its create counts and is held."""
    stored = find_entry(connection, instance)
    if stored is None or stored.refusal is not None or stored.payload is None:
        return None
    entry = stored.entry
    log = find_log(connection, entry.author, entry.log_id)
    assert log is not None
    key = InstanceKey(log.id, entry.seq_num)
    access, access_seq, expires, is_deleted, messages = None, 0, None, False, []
    try:
        create = decode_message(stored.payload)
    except InkgroveError:
        return None
    if not isinstance(create, Create):
        return None
    for item in messages_of(connection, [key])[key]:
        if item.payload is None:
            continue
        try:
            message = decode_message(item.payload)
        except InkgroveError:
            continue
        if item.invalid_code is not None:
            is_deleted |= isinstance(message, Delete)  # in whatever branch of a forked log
            continue
        if isinstance(message, Create | Update) and message.access is not None:
            access, access_seq = message.access, item.seq_num
        if isinstance(message, Create | Update) and not isinstance(message.expires, Unset):
            expires = message.expires
        is_deleted |= isinstance(message, Delete)
        messages.append(item)
    return HeldInstance(
        instance,
        create.schema.schema_id,
        entry.author,
        log.id,
        log.height,
        entry.seq_num,
        access,
        access_seq,
        expires,
        is_deleted,
        messages,
    )


def pack_parcel(
    connection: Connection, held: HeldInstance, recipients: Sequence[IdentityId], *, after: int, deletions_only: bool
) -> Parcel | None:
    """A parcel with everything said after a message, with the entries that prove it; None if there is nothing."""
    messages = [item for item in held.messages if item.seq_num > after]
    if deletions_only:
        messages = [item for item in messages if isinstance(decode_message(item.payload or b""), Delete)]
    if not messages:
        return None
    payloads = {item.seq_num: item.payload for item in messages}
    pool = union_of_pools(payloads, held.height)
    encoded = read_entry_bytes(connection, held.log, pool)
    entries = [(encoded[seq_num], payloads.get(seq_num)) for seq_num in pool if seq_num in encoded]
    return Parcel(held.instance, tuple(recipients), entries)


def pack_next_parcel(
    connection: Connection, held: HeldInstance, recipients: Sequence[IdentityId], *, after: int, deletions_only: bool
) -> tuple[Parcel, int] | None:
    """The same, no larger than fits into a request, and up to which message it goes: the rest is for the next one."""
    part, reached = (held, held.last_seq) if deletions_only else _cut(held, after)
    parcel = pack_parcel(connection, part, recipients, after=after, deletions_only=deletions_only)
    return (parcel, reached) if parcel is not None else None


def _cut(held: HeldInstance, after: int) -> tuple[HeldInstance, int]:
    messages: list[LogMessage] = []
    size = 0
    for item in held.messages:
        if item.seq_num > after:
            size += len(item.payload or b"")
            if messages and size > MAX_PARCEL_BYTES:
                break
            messages.append(item)
    reached = messages[-1].seq_num if messages else held.last_seq
    if reached < held.access_seq:
        # Who may see it is known from the first part on: an older word may let others see it, or refuse the recipient.
        messages += [item for item in held.messages if item.seq_num == held.access_seq]
    return replace(held, messages=messages), reached
