"""What log 0 says: the identity document, and which keys count for an identity (docs/protocol.md section 7).

A further key counts only if the newest document lists it and entry 1 of its own log 0 says `key-of`. Everything here is
derived from the logs; the tables only remember it. Call `follow_identity_log` in the transaction that has taken in an
entry of a log 0, and `check_author` before one of any log is taken in.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError, KeyRevoked
from inkgrove.core.keys import IdentityId, PublicKey, identity_of
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages.identity import IdentityDocument, IdentityMessage, KeyOf
from inkgrove.messages.message import decode_message
from inkgrove.node.errors import BadDocument, IdentityExists, UnknownIdentity
from inkgrove.store.facts import lock_logs
from inkgrove.store.identities import (
    find_identity,
    key_standing,
    keys_of,
    put_key,
    remove_keys,
    set_fqdn,
)
from inkgrove.store.ingests import Offset, authors_since
from inkgrove.store.reading import StoredEntry, read_entries, read_newest_entries
from inkgrove.store.revocations import set_key_ends
from inkgrove.store.tables import name_of_log

IDENTITY_LOG: Final = 0
_CHUNK: Final = 20


def newest_document(connection: Connection, first_key: PublicKey) -> tuple[int, IdentityDocument]:
    """The newest valid identity document in log 0 of a first key, with its sequence number."""
    before = MAX_STORED_INTEGER
    while some := read_newest_entries(connection, first_key, IDENTITY_LOG, before, _CHUNK):
        for seq_num, message in _messages(some):
            if isinstance(message, IdentityDocument):
                return seq_num, message
        before = some[-1].entry.seq_num
    raise UnknownIdentity(f"no document of the key {first_key} is held", author=str(first_key))


def key_of(connection: Connection, author: PublicKey) -> IdentityId | None:
    """The identity that a further key says it belongs to, in entry 1 of its log 0."""
    for _, message in _messages(read_entries(connection, author, IDENTITY_LOG, 1, 1)):
        if isinstance(message, KeyOf):
            return message.identity
    return None


def _messages(entries: Iterable[StoredEntry]) -> Iterator[tuple[int, IdentityMessage]]:
    for stored in entries:
        if stored.refusal is None and stored.payload is not None:
            try:
                message = decode_message(stored.payload)
            except InkgroveError:
                continue
            if isinstance(message, IdentityDocument | KeyOf):
                yield stored.entry.seq_num, message


def check_author(connection: Connection, author: PublicKey, log_id: int, seq_num: int) -> IdentityId | None:
    """Whose entry this is, if that is known; refuses one of a revoked key behind the last that counts."""
    standing = key_standing(connection, author)
    if standing is None:
        return None
    if standing.ends is not None and seq_num > (last := standing.ends.get(log_id, 0)):
        raise KeyRevoked(
            f"the key {author} was revoked: of its log {log_id} only what is up to entry {last} counts",
            author=author,
            log_id=log_id,
            last=last,
        )
    return standing.identity


def check_document(connection: Connection, first_key: PublicKey, document: IdentityDocument, endpoint: str) -> None:
    """Refuse a document of a hosted identity that this node could not stand by; `endpoint` is the setting."""
    if document.endpoint != (ours := endpoint.format(fqdn=document.fqdn)):
        raise BadDocument(f"the endpoint must be {ours}, where this node is reached", expected=ours)
    if "." not in document.fqdn:
        raise BadDocument("the name has no domain")
    holder = find_identity(connection, document.fqdn)
    if holder is not None and holder.key != first_key:
        raise IdentityExists(f"the name {document.fqdn} is taken on this node", fqdn=document.fqdn)


def follow_identity_log(connection: Connection, author: PublicKey) -> None:
    """Bring names and keys in line with log 0 after an entry of it came in."""
    claimed = key_of(connection, author)
    if claimed is None:
        _follow_document(connection, author)
        return
    for first_key in keys_of(connection, claimed):
        if identity_of(first_key) == claimed:
            _follow_document(connection, first_key)


def follow_since(connection: Connection, offset: Offset) -> None:
    """The same for every log 0 of which entries came in after an offset, by whatever way."""
    for author in authors_since(connection, IDENTITY_LOG, offset):
        follow_identity_log(connection, author)


def _follow_document(connection: Connection, first_key: PublicKey) -> None:
    identity = identity_of(first_key)
    # Whoever has a newer document is waited for: what an older one says of the keys must not be put in its place.
    lock_logs.rows(connection, [name_of_log(first_key, IDENTITY_LOG)])
    try:
        _, document = newest_document(connection, first_key)
    except UnknownIdentity:
        return
    put_key(connection, first_key, identity)
    counted = {first_key}
    for item in document.keys:
        if item.key != first_key and key_of(connection, item.key) == identity:
            put_key(connection, item.key, identity)
            set_key_ends(connection, item.key, item.revoked)
            counted.add(item.key)
    remove_keys(connection, set(keys_of(connection, identity)) - counted)
    hosted = find_identity(connection, identity)
    if hosted is not None and hosted.fqdn != document.fqdn and find_identity(connection, document.fqdn) is None:
        set_fqdn(connection, identity, document.fqdn)
