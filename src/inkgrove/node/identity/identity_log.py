"""Log 0: the identity document, and which keys belong to an identity (docs/protocol.md section 7).

A further key counts only if the newest document lists it and entry 1 of its own log 0 says `key-of`. Everything here is
derived from the logs; the tables only remember it. Call `apply_identity_log` in the transaction that has taken in an
entry of a log 0, and `check_author` before one of any log is taken in.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from inkgrove.core import IdentityId, PublicKey, identity_of
from inkgrove.core.errors import KeyRevoked
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import IdentityDocument, IdentityMessage, KeyOf, decode_if_valid
from inkgrove.node.errors import IdentityError, UnknownIdentity
from inkgrove.store.db import Connection, encode_log_key
from inkgrove.store.federation import find_remote_identity, forget_remote_identity, newest_node_key
from inkgrove.store.logs import (
    Offset,
    StoredEntry,
    authors_since,
    lock_logs,
    note_key_change,
    read_entries,
    read_newest_entries,
    set_key_ends,
)
from inkgrove.store.node import (
    HostedIdentity,
    NameRecord,
    find_identity,
    find_key_status,
    find_name,
    identities_of,
    keys_of,
    leave_name,
    lock_fqdn,
    put_key,
    put_name,
    remove_keys,
    sealed_key,
    set_fqdn,
    set_home,
)

IDENTITY_LOG: Final = 0
_CHUNK: Final = 20


def read_newest_document(connection: Connection, first_key: PublicKey) -> tuple[int, IdentityDocument]:
    """Return what `find_newest_document` does; raises `UnknownIdentity` if no document is held."""
    found = find_newest_document(connection, first_key)
    if found is None:
        raise UnknownIdentity(f"no document of the key {first_key} is held", author=str(first_key))
    return found


def find_newest_document(connection: Connection, first_key: PublicKey) -> tuple[int, IdentityDocument] | None:
    """Return the newest valid document in log 0 of a first key, with its sequence number; None if none is held."""
    before, count = MAX_STORED_INTEGER, 1  # it is the last entry almost always, and each may be large
    while some := read_newest_entries(connection, first_key, IDENTITY_LOG, before, count):
        for seq_num, message in _messages(some):
            if isinstance(message, IdentityDocument):
                return seq_num, message
        before, count = some[-1].entry.seq_num, min(2 * count, _CHUNK)
    return None


def find_identity_of_key(connection: Connection, author: PublicKey) -> IdentityId | None:
    """Return the identity that a further key names in entry 1 of its log 0."""
    for _, message in _messages(read_entries(connection, author, IDENTITY_LOG, 1, 1)):
        if isinstance(message, KeyOf):
            return message.identity
    return None


def _messages(entries: Iterable[StoredEntry]) -> Iterator[tuple[int, IdentityMessage]]:
    for stored in entries:
        message = decode_if_valid(stored.payload) if stored.refusal is None else None
        if isinstance(message, IdentityDocument | KeyOf):
            yield stored.entry.seq_num, message


def check_author(connection: Connection, author: PublicKey, log_id: int, seq_num: int) -> IdentityId | None:
    """Return whose entry this is, if that is known; raises `KeyRevoked` behind the last entry of a revoked key."""
    status = find_key_status(connection, author)
    if status is None:
        return None
    if status.ends is not None and seq_num > (last := status.ends.get(log_id, 0)):
        raise KeyRevoked(
            f"the key {author} was revoked: of its log {log_id} only what is up to entry {last} counts",
            author=author,
            log_id=log_id,
            last=last,
        )
    return status.identity


def check_document(connection: Connection, first_key: PublicKey, document: IdentityDocument, endpoint: str) -> None:
    """Refuse a document of a hosted identity that this node could not stand by; `endpoint` is the setting."""
    if document.endpoint != (ours := endpoint.format(fqdn=document.fqdn)):
        raise IdentityError(
            "identity.bad-document", f"the endpoint must be {ours}, where this node is reached", expected=ours
        )
    if "." not in document.fqdn:
        raise IdentityError("identity.bad-document", "the name has no domain")
    holder = find_identity(connection, document.fqdn)
    if holder is not None and holder.key != first_key:
        raise IdentityError("identity.exists", f"the name {document.fqdn} is taken on this node", fqdn=document.fqdn)


def apply_identity_log(connection: Connection, author: PublicKey, *, is_ours: bool = False) -> None:
    """Bring names, keys and who lives here in line with log 0 after an entry of it came in.

    `is_ours`: it is a document that this node has just taken for its own, by `check_document`.
    """
    claimed = find_identity_of_key(connection, author)
    if claimed is None:
        _apply_document(connection, author, is_ours=is_ours)
        return
    for first_key in keys_of(connection, claimed):
        if identity_of(first_key) == claimed:
            _apply_document(connection, first_key, is_ours=False)


def apply_identity_logs_since(connection: Connection, offset: Offset) -> None:
    """Call `apply_identity_log` for every log 0 of which entries came in after an offset."""
    for author in authors_since(connection, IDENTITY_LOG, offset):
        apply_identity_log(connection, author)


def _apply_document(connection: Connection, first_key: PublicKey, *, is_ours: bool) -> None:
    identity = identity_of(first_key)
    # Waits for a transaction with a newer document, whose keys must not be overwritten by those of an older one.
    lock_logs.rows(connection, [encode_log_key(first_key, IDENTITY_LOG)])
    found = find_newest_document(connection, first_key)
    if found is None:
        return
    _, document = found
    further = {
        item.key: item.revoked
        for item in document.keys
        if item.key != first_key and find_identity_of_key(connection, item.key) == identity
    }
    before = set(keys_of(connection, identity))
    removed = before - {first_key, *further}
    for key in (first_key, *further):
        put_key(connection, key, identity)
    after = set(keys_of(connection, identity)) - removed
    if before != after and len(before | after) > 1:
        note_key_change(connection, before | after)
    for key, revoked in further.items():
        set_key_ends(connection, key, revoked)
    remove_keys(connection, removed)
    hosted = find_identity(connection, identity)
    if hosted is None:
        return
    if hosted.fqdn != document.fqdn:
        hosted = _apply_name(connection, hosted, document.fqdn)
    _apply_home(connection, hosted, document, is_ours=is_ours)


def _apply_home(connection: Connection, hosted: HostedIdentity, document: IdentityDocument, *, is_ours: bool) -> None:
    """Note whether a hosted identity lives here: its newest document names this node, under the name it has here.

    Whose key this node keeps has not moved: nobody else could have signed that. Who was found on another node under
    the very name that it has here has.
    """
    endpoint, is_here = hosted.endpoint, True
    if is_ours:
        forget_remote_identity(connection, hosted.id)
        endpoint = document.endpoint
    else:
        is_named = document.fqdn == hosted.fqdn and endpoint in (None, document.endpoint)
        is_kept = sealed_key(connection, hosted.key) is not None
        is_here = is_kept or (is_named and not _is_found_elsewhere(connection, hosted.id))
    if (endpoint, is_here) != (hosted.endpoint, hosted.lives_here):
        set_home(connection, hosted.id, endpoint, lives_here=is_here)


def _is_found_elsewhere(connection: Connection, identity: IdentityId) -> bool:
    """Whether discovery has found an identity on another node than this one."""
    known, own = find_remote_identity(connection, identity), newest_node_key(connection)
    return known is not None and (own is None or known.node_key != own[0])


def _apply_name(connection: Connection, hosted: HostedIdentity, fqdn: str) -> HostedIdentity:
    """Serve a hosted identity under the name in its newest document, if it is theirs; the one so far is left anyway.

    Documents come in by many ways, also from other nodes: one alone gives nobody a name here. What this node signed
    itself it has decided before, in a past that a restored home does not remember.
    """
    record = find_name(connection, fqdn)
    is_theirs = record is not None and record.identity == hosted.id and record.left_at is None
    if record is None and sealed_key(connection, hosted.key) is not None:
        lock_fqdn(connection, fqdn)
        if find_name(connection, fqdn) is None:  # nobody has taken it while this transaction waited
            put_name(connection, NameRecord(fqdn, hosted.id, False, 0, None))
            is_theirs = True
    leave_name(connection, hosted.fqdn, hosted.id)
    if not is_theirs or find_identity(connection, fqdn) is not None:
        return hosted
    set_fqdn(connection, hosted.id, fqdn)
    return replace(hosted, fqdn=fqdn)


def find_owner(connection: Connection, author: PublicKey) -> IdentityId:
    """Whose instances a key writes: those of the identity that it is known to belong to, else of its own."""
    return identities_of(connection, [author]).get(author) or identity_of(author)
