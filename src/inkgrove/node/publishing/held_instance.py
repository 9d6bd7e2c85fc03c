"""Reads what this node holds of an instance and packs it into parcels for other nodes (docs/protocol.md section 8)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from inkgrove.core import Hash, IdentityId, PublicKey, union_of_pools
from inkgrove.messages import Access, Create, Delete, Parcel, SchemaId, Timestamp, Unset, Update, decode_if_valid
from inkgrove.schema import LogMessage
from inkgrove.store.db import Connection
from inkgrove.store.logs import (
    InstanceKey,
    find_entry,
    find_log,
    find_newest_seq,
    messages_of,
    read_ends,
    read_entry_bytes,
)

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
    """The newest one."""
    access_seq: int
    """The sequence number of the message with it; 0 if there is none."""
    expires: Timestamp | None
    """The newest one."""
    is_deleted: bool
    """Whether it has ended: by a delete, or by what another key of its owner says in another log."""
    messages: Sequence[LogMessage]
    """The valid ones with payloads, in order."""
    pinned_seq: int | None = None
    """The entry that the owner of a revoked key has pinned, if that decides which branch of the log counts."""
    ended_by: Hash | None = None
    """The entry of a delete in another log that ends it, if its own log has none."""
    erased_seq: int = 0
    """The sequence number of the newest message whose content was erased, if nothing else is left."""

    def is_expired(self, now: int) -> bool:
        """Whether it has expired at a time in microseconds."""
        return self.expires is not None and self.expires.microseconds <= now

    @property
    def last_seq(self) -> int:
        """The sequence number of the newest message; one more if a delete in another log comes after all of them."""
        newest = self.messages[-1].seq_num if self.messages else self.erased_seq
        return newest + (self.ended_by is not None)


def find_held_instance(connection: Connection, instance: Hash) -> HeldInstance | None:
    """Return an instance; None unless its create is valid and held with its payload."""
    stored = find_entry(connection, instance)
    if stored is None or stored.refusal is not None or stored.payload is None:
        return None
    entry = stored.entry
    log = find_log(connection, entry.author, entry.log_id)
    assert log is not None
    key = InstanceKey(log.id, entry.seq_num)
    access, access_seq, expires, is_deleted, messages = None, 0, None, False, []
    create = decode_if_valid(stored.payload)
    if not isinstance(create, Create):
        return None
    for item in messages_of(connection, [key])[key]:
        message = decode_if_valid(item.payload)
        if message is None:
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
    schema, ended_by = create.schema.schema_id, None
    if not is_deleted:
        found = read_ends(connection, [instance]).of_key(connection, entry.author).get(instance, ())
        ends = [end for end in found if end.message.schema is not None and end.message.schema.schema_id == schema]
        is_deleted = bool(ends)
        ended_by = min((end.hash for end in ends if isinstance(end.message, Delete)), default=None)
    return HeldInstance(
        instance,
        schema,
        entry.author,
        log.id,
        log.height,
        entry.seq_num,
        access,
        access_seq,
        expires,
        is_deleted,
        messages,
        log.pinned_seq,
        ended_by,
    )


def find_erased_instance(connection: Connection, instance: Hash) -> HeldInstance | None:
    """Return an instance of which only the entry of its create and a delete that names its schema are held.

    The delete may stand in another log, by whichever key of its owner (docs/protocol.md section 5.7).
    """
    stored = find_entry(connection, instance)
    if stored is None or stored.refusal is not None or stored.payload is not None:
        return None
    entry = stored.entry
    log = find_log(connection, entry.author, entry.log_id)
    assert log is not None
    key = InstanceKey(log.id, entry.seq_num)
    ends: list[LogMessage] = []
    schema: SchemaId | None = None
    for item in messages_of(connection, [key])[key]:
        message = decode_if_valid(item.payload) if item.invalid_code is None else None
        if isinstance(message, Delete) and message.schema is not None:
            schema = schema or message.schema.schema_id
            ends.append(item)
    ended_by: Hash | None = None
    if schema is None:
        found = read_ends(connection, [instance]).of_key(connection, entry.author).get(instance, ())
        elsewhere = [end for end in found if isinstance(end.message, Delete) and end.message.schema is not None]
        if not elsewhere:
            return None
        first = min(elsewhere, key=lambda end: end.hash)
        assert first.message.schema is not None
        schema, ended_by = first.message.schema.schema_id, first.hash
    return HeldInstance(
        instance,
        schema,
        entry.author,
        log.id,
        log.height,
        entry.seq_num,
        None,
        0,
        None,
        is_deleted=True,
        messages=ends,
        ended_by=ended_by,
        erased_seq=find_newest_seq(connection, key),
    )


def pack_parcel(
    connection: Connection, held: HeldInstance, recipients: Sequence[IdentityId], *, after: int, deletions_only: bool
) -> Parcel | None:
    """Return a parcel with all messages behind the sequence number `after` and the entries that prove them, or None.

    `deletions_only`: of the messages only a delete is packed.
    """
    messages = [item for item in held.messages if item.seq_num > after]
    if deletions_only:
        messages = [item for item in messages if isinstance(decode_if_valid(item.payload), Delete)]
    if not messages:
        return _pack_end(connection, held, recipients) if deletions_only and held.ended_by is not None else None
    payloads = {item.seq_num: item.payload for item in messages}
    pinned = [held.pinned_seq] if held.pinned_seq is not None else []
    pool = union_of_pools([*payloads, *pinned], held.height)
    encoded = read_entry_bytes(connection, held.log, pool)
    entries = [(encoded[seq_num], payloads.get(seq_num)) for seq_num in pool if seq_num in encoded]
    return Parcel(held.instance, tuple(recipients), entries)


def _pack_end(connection: Connection, held: HeldInstance, recipients: Sequence[IdentityId]) -> Parcel | None:
    """Return a parcel with the delete in another log that ends an instance, and the entries that prove it there."""
    stored = find_entry(connection, held.ended_by) if held.ended_by is not None else None
    log = find_log(connection, stored.entry.author, stored.entry.log_id) if stored is not None else None
    if stored is None or log is None or stored.refusal is not None:
        return None
    own = stored.entry.seq_num
    pool = union_of_pools([own], log.height)
    encoded = read_entry_bytes(connection, log.id, pool)
    entries = [(encoded[seq_num], stored.payload if seq_num == own else None) for seq_num in pool if seq_num in encoded]
    return Parcel(held.instance, tuple(recipients), entries)


def pack_next_parcel(
    connection: Connection, held: HeldInstance, recipients: Sequence[IdentityId], *, after: int, deletions_only: bool
) -> tuple[Parcel, int] | None:
    """Return a parcel that fits into a request, and the sequence number it goes up to; None if there is nothing."""
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
        # The newest access goes with the first part: an older one may let others see it, or refuse the recipient.
        messages += [item for item in held.messages if item.seq_num == held.access_seq]
    return replace(held, messages=messages), reached
