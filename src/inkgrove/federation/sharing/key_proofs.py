"""What proves to third parties that two keys are of one identity: it travels with a delete in another log.

docs/protocol.md sections 5.7 and 8.4. Who got an instance passed on may know nothing of its owner but the key that
wrote it. `pack_key_proofs` gathers the documents that list both keys, and their claims; `take_key_proofs` keeps these
entries if they prove just that.
"""

from collections.abc import Collection, Iterable
from typing import Final

from inkgrove.core import HeldEntry, PublicKey, check_storable, decode_entry, identity_of, verify_payload, verify_signed
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.federation.peers.documents import store_log0_entries
from inkgrove.federation.peers.well_known import list_key_proofs
from inkgrove.messages import IdentityLogInMemory, KeyOf, decide_control, decode_if_valid
from inkgrove.messages.value_readers import EntryPair
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log
from inkgrove.store.db import Connection

_MOST_BYTES: Final = 256 * 1024
"""Of what proves the keys of one identity; larger documents are left to be looked up."""


def pack_key_proofs(connection: Connection, pairs: Iterable[tuple[PublicKey, PublicKey]]) -> list[EntryPair]:
    """Return the entries of log 0 that prove of each pair that both keys are of one identity, each once."""
    found: dict[bytes, bytes | None] = {}
    for keys in sorted(set(pairs)):
        entries = list_key_proofs(connection, keys)
        if sum(len(item.encoded) + len(item.payload or b"") for item in entries) > _MOST_BYTES:
            continue
        for item in entries:
            found[item.encoded] = found.get(item.encoded) or item.payload
    return list(found.items())


def take_key_proofs(connection: Connection, offered: Collection[EntryPair], keys: Collection[PublicKey]) -> bool:
    """Store entries of log 0 if they prove that keys are of one identity, as far as they go; whether they do."""
    try:
        items = [_read(pair) for pair in offered]
    except InkgroveError:
        return False
    of_author: dict[PublicKey, list[HeldEntry]] = {}
    for item in items:
        of_author.setdefault(item.signed.entry.author, []).append(item)
    try:
        logs = {author: IdentityLogInMemory(held) for author, held in of_author.items()}
    except InkgroveError:
        return False
    nothing = IdentityLogInMemory(())
    claimed = {
        message.identity
        for item in items
        if item.signed.entry.seq_num == 1 and isinstance(message := decode_if_valid(item.payload), KeyOf)
    }
    for first_key in (author for author in of_author if identity_of(author) in claimed):
        control = decide_control(first_key, lambda author: logs.get(author, nothing))
        states = {} if control is None else control.keys
        if all(key in states and states[key].belongs for key in keys):
            store_log0_entries(connection, items)
            apply_identity_log(connection, first_key)
            return True
    return False


def _read(pair: EntryPair) -> HeldEntry:
    encoded, payload = pair
    entry = decode_entry(encoded)
    check_storable(entry)
    if payload is not None:
        verify_payload(entry, payload)
    signed = verify_signed(entry)
    if entry.log_id != IDENTITY_LOG:
        raise ParcelError("parcel.bad", "keys are proved by entries of log 0")
    return HeldEntry(signed, payload)
