"""Log 0: the identity document, and which keys belong to an identity (docs/protocol.md section 7.2).

The rules are in `inkgrove.messages.control`; here log 0 is read from the store for them, and what they decide is
remembered in tables. Everything is derived from the logs. Call `apply_identity_log` in the transaction that has taken
in an entry of a log 0, and `check_author` before one of any log is taken in.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Final

from inkgrove.core import Hash, IdentityId, NextEntry, PublicKey, flavour_of, identity_of, make_next_entry
from inkgrove.core.errors import KeyRevoked
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import (
    Control,
    DocumentState,
    IdentityDocument,
    IdentityLogEntry,
    IdentityState,
    KeyOf,
    SignedDocument,
    claimed_identities,
    counted_entries,
    decide_control,
    decode_if_valid,
    find_tip,
    fork_state,
    judge_document,
)
from inkgrove.node.errors import IdentityError, UnknownIdentity
from inkgrove.store.db import Connection, encode_log_key
from inkgrove.store.federation import (
    find_remote_identity,
    forget_remote_identity,
    newest_node_key,
    note_document_place,
    queue_relocation,
    send_ended_again,
)
from inkgrove.store.logs import (
    Offset,
    StoredEntry,
    authors_since,
    find_entry,
    find_log,
    lock_logs,
    note_key_change,
    read_entries,
    read_newest_entries,
    read_next_entry,
    set_key_ends,
)
from inkgrove.store.node import (
    HostedIdentity,
    NameRecord,
    find_departure,
    find_identity,
    find_key_status,
    find_name,
    forget_secret,
    identities_of,
    keys_of,
    leave_name,
    lock_fqdn,
    put_key,
    put_name,
    remove_departure,
    remove_keys,
    sealed_key,
    set_fqdn,
    set_home,
)

IDENTITY_LOG: Final = 0
_CHUNK: Final = 20


class StoredIdentityLog:
    """Log 0 of a key as the store holds it, in all branches; a `HeldIdentityLog`."""

    def __init__(self, connection: Connection, author: PublicKey) -> None:
        self._connection = connection
        self._author = author
        log = find_log(connection, author, IDENTITY_LOG)
        self.forked_at: int | None = None
        self.lied_at: int | None = None
        self.ended_at: int | None = None
        if log is not None:
            self.forked_at, self.lied_at = log.standing.forked_at, log.standing.lied_at
            self.ended_at = log.standing.ended_at

    def first_entries(self) -> list[IdentityLogEntry]:
        """Return every entry 1 that is held."""
        return [_identity_entry(item) for item in read_entries(self._connection, self._author, IDENTITY_LOG, 1, 1)]

    def newest_first(self, below: int | None) -> Iterator[IdentityLogEntry]:
        """Yield the entries below a sequence number, or all, by descending sequence number and hash."""
        before: tuple[int, bytes] = (MAX_STORED_INTEGER if below is None else below - 1, _ABOVE_EVERY_HASH)
        count = 1  # what is looked for is the last entry almost always, and each may be large
        while some := read_newest_entries(self._connection, self._author, IDENTITY_LOG, before, count):
            yield from map(_identity_entry, some)
            before, count = (some[-1].entry.seq_num, some[-1].hash), min(2 * count, _CHUNK)

    def find(self, entry_hash: Hash) -> IdentityLogEntry | None:
        """Return the entry with this hash, if it is one of this log and held."""
        found = find_entry(self._connection, entry_hash)
        is_here = found is not None and (found.entry.author, found.entry.log_id) == (self._author, IDENTITY_LOG)
        return _identity_entry(found) if found is not None and is_here else None


_ABOVE_EVERY_HASH: Final = b"\xff"
"""Greater than every hash: those begin with a zero byte."""


def _identity_entry(stored: StoredEntry) -> IdentityLogEntry:
    message = decode_if_valid(stored.payload)
    said = message if isinstance(message, IdentityDocument | KeyOf) else None
    return IdentityLogEntry(stored.entry, stored.hash, said, stored.payload is not None)


def find_control(connection: Connection, first_key: PublicKey) -> Control | None:
    """Find the document in effect of an identity and the states of its keys; None if no document of it is held."""
    return decide_control(first_key, cache(lambda author: StoredIdentityLog(connection, author)))


def read_control(connection: Connection, first_key: PublicKey) -> Control:
    """Return what `find_control` does; raises `UnknownIdentity` if no document is held."""
    found = find_control(connection, first_key)
    if found is None:
        raise UnknownIdentity(f"no document of the key {first_key} is held", author=str(first_key))
    return found


def read_newest_document(connection: Connection, first_key: PublicKey) -> tuple[int, IdentityDocument]:
    """Return what `find_newest_document` does; raises `UnknownIdentity` if no document is held."""
    current = read_control(connection, first_key).current
    return current.seq_num, current.document


def find_newest_document(connection: Connection, first_key: PublicKey) -> tuple[int, IdentityDocument] | None:
    """Return the document in effect, with the sequence number of its entry; None if none is held."""
    found = find_control(connection, first_key)
    return None if found is None else (found.current.seq_num, found.current.document)


def find_branch_end(connection: Connection, author: PublicKey) -> IdentityLogEntry | None:
    """Return the last entry of the branch that counts, if log 0 of a key is forked and that is tolerated."""
    log = StoredIdentityLog(connection, author)
    return find_tip(log) if fork_state(log) is IdentityState.WORDS_USED_TWICE else None


def read_next_of_log0(connection: Connection, author: PublicKey) -> NextEntry:
    """Return what the next entry of log 0 must carry, in the branch that counts; raises if there can be none."""
    tip = find_branch_end(connection, author)
    if tip is None:
        return read_next_entry(connection, author, IDENTITY_LOG)
    branch = {item.entry.seq_num: item.hash for item in counted_entries(StoredIdentityLog(connection, author))}
    return make_next_entry(author, IDENTITY_LOG, tip.entry.seq_num, branch.get, flavour_of(tip.hash))


def is_identity_forked(connection: Connection, first_key: PublicKey) -> bool:
    """Whether log 0 of a first key contradicts itself in a way that ends the identity."""
    log = StoredIdentityLog(connection, first_key)
    return log.lied_at is not None or fork_state(log) is IdentityState.FORKED


def find_document_state(
    connection: Connection, entry_hash: Hash, control_of: Callable[[PublicKey], Control | None] | None = None
) -> DocumentState | None:
    """Return the state of an `identity` message by the hash of its entry; None if it is none, or says nothing.

    `control_of`: `find_control`, cached by who asks for many, since documents may be large.
    """
    stored = find_entry(connection, entry_hash)
    message = None if stored is None else decode_if_valid(stored.payload)
    if stored is None or stored.entry.log_id != IDENTITY_LOG or not isinstance(message, IdentityDocument):
        return None
    author = stored.entry.author
    log = StoredIdentityLog(connection, author)
    owners = claimed_identities(log)
    first_key = find_first_key(connection, owners.pop()) if len(owners) == 1 else author
    find = control_of or partial(find_control, connection)
    control = None if first_key is None else find(first_key)
    under = None if message.under is None else find_entry(connection, message.under)
    item = SignedDocument(author, stored.entry.seq_num, stored.hash, message)
    return judge_document(item, log, control, is_under_readable=under is not None and under.payload is not None)


def find_first_key(connection: Connection, identity: IdentityId) -> PublicKey | None:
    """Return the first key of an identity; None until a document of it is held."""
    return next((key for key in keys_of(connection, identity) if identity_of(key) == identity), None)


def find_identity_of_key(connection: Connection, author: PublicKey) -> IdentityId | None:
    """Return the identity that a further key names in every entry 1 of its log 0."""
    log = StoredIdentityLog(connection, author)
    said = [item.message for item in log.first_entries()]
    named = claimed_identities(log)
    return named.pop() if len(named) == 1 and all(isinstance(message, KeyOf) for message in said) else None


def check_author(connection: Connection, author: PublicKey, log_id: int, seq_num: int) -> IdentityId | None:
    """Return whose entry this is, if that is known; raises `KeyRevoked` behind the last entry of a revoked key.

    Log 0 has no such end: what a former controller says there is judged by section 7.2.4.
    """
    status = find_key_status(connection, author)
    if status is None:
        return None
    if log_id != IDENTITY_LOG and status.ends is not None and seq_num > (last := status.ends.get(log_id, 0)):
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


def apply_identity_log(
    connection: Connection, author: PublicKey, *, is_ours: bool = False, now: int | None = None
) -> None:
    """Bring names, keys and who lives here in line with log 0 after an entry of it came in.

    `is_ours`: it is a document that this node has just taken for its own, by `check_document`. With `now`, what other
    nodes need to see the ends that it sets is sent again.
    """
    claimed = claimed_identities(StoredIdentityLog(connection, author))
    if not claimed:
        _apply_control(connection, author, is_ours=is_ours, now=now)
    for identity in sorted(claimed):
        first_key = find_first_key(connection, identity)
        if first_key is not None:
            _apply_control(connection, first_key, is_ours=is_ours, now=now)


def apply_identity_logs_since(connection: Connection, offset: Offset) -> None:
    """Call `apply_identity_log` for every log 0 of which entries came in after an offset."""
    for author in authors_since(connection, IDENTITY_LOG, offset):
        apply_identity_log(connection, author)


def _apply_control(connection: Connection, first_key: PublicKey, *, is_ours: bool, now: int | None) -> None:
    identity = identity_of(first_key)
    # Waits for a transaction with a newer document, whose keys must not be overwritten by those of an older one.
    lock_logs.rows(connection, [encode_log_key(first_key, IDENTITY_LOG)])
    control = find_control(connection, first_key)
    known = set(keys_of(connection, identity))
    # Without a document nobody but the first key belongs to it: the log was forked before a controller was named.
    ends = control.ends if control is not None else {}
    belonging = {key for key, state in control.keys.items() if state.belongs} if control is not None else {first_key}
    removed = known - belonging
    if control is not None:
        for key in sorted(belonging):
            put_key(connection, key, identity)
    after = set(keys_of(connection, identity)) - removed
    if known != after and len(known | after) > 1:
        note_key_change(connection, known | after)
    for key in sorted(belonging):
        status = find_key_status(connection, key)
        if key in ends or (status is not None and status.ends is not None):
            set_key_ends(connection, key, ends.get(key))
            if now is not None and find_key_status(connection, key) != status:
                send_ended_again(connection, key, now)
    remove_keys(connection, removed)
    hosted = find_identity(connection, identity)
    if control is not None and (hosted is None or not hosted.lives_here):
        note_document_place(connection, identity, control.document.fqdn, control.document.endpoint)
    if hosted is None or control is None:
        return
    if hosted.fqdn != control.document.fqdn:
        hosted = _apply_name(connection, hosted, control)
    _apply_home(connection, hosted, control, is_ours=is_ours)


def _apply_home(connection: Connection, hosted: HostedIdentity, control: Control, *, is_ours: bool) -> None:
    """Note whether a hosted identity lives here: its document names this node, under the name it has here.

    Whose first key this node keeps has not moved: nobody else could have signed that. Who was found on another node
    under the very name that it has here has, unless the document was signed here.
    """
    endpoint, is_here, document = hosted.endpoint, True, control.document
    departure = find_departure(connection, hosted.id)
    if is_ours:
        forget_remote_identity(connection, hosted.id)
        endpoint = document.endpoint
        if departure is not None and departure.state == "moved":
            remove_departure(connection, hosted.id)  # it is back
    elif departure is not None and departure.state == "moved":
        is_here = False  # also if its name and endpoint are the same there, and lead there now
    elif sealed_key(connection, hosted.key) is None or _is_handed_over(connection, control):
        is_named = document.fqdn == hosted.fqdn and endpoint in (None, document.endpoint)
        is_here = is_named and (_is_signed_here(connection, control) or not _is_found_elsewhere(connection, hosted.id))
    if (endpoint, is_here) != (hosted.endpoint, hosted.lives_here):
        set_home(connection, hosted.id, endpoint, lives_here=is_here)
        if hosted.lives_here and not is_here:  # what people here have sent them follows
            queue_relocation(connection, hosted.id, is_new_node=True)
    if not is_here:
        for key in control.ends:  # of a node that was restored: they were destroyed when the identity moved
            if sealed_key(connection, key) is not None:
                forget_secret(connection, key)
    if is_here and document.fqdn == hosted.fqdn and not document.closed:
        _take_name_back(connection, hosted)


def _is_handed_over(connection: Connection, control: Control) -> bool:
    """Whether a key that this node keeps has named a controller that it does not: before it was restored."""
    return control.controller is not None and sealed_key(connection, control.controller) is None


def _take_name_back(connection: Connection, hosted: HostedIdentity) -> None:
    """Let an identity have its name on, which a document that does not count any more has left."""
    record = find_name(connection, hosted.fqdn)
    if record is not None and record.identity == hosted.id and record.left_at is not None:
        put_name(connection, replace(record, left_at=None))


def _is_signed_here(connection: Connection, control: Control) -> bool:
    """Whether this node keeps the key that has signed the document."""
    return sealed_key(connection, control.current.author) is not None


def _is_found_elsewhere(connection: Connection, identity: IdentityId) -> bool:
    """Whether discovery has found an identity on another node than this one."""
    known, own = find_remote_identity(connection, identity), newest_node_key(connection)
    return known is not None and (own is None or known.node_key != own[0])


def _apply_name(connection: Connection, hosted: HostedIdentity, control: Control) -> HostedIdentity:
    """Serve a hosted identity under the name in its newest document, if it is theirs; the one so far is left anyway.

    Documents come in by many ways, also from other nodes: one alone gives nobody a name here. What this node signed
    itself it has decided before, in a past that a restored home does not remember.
    """
    fqdn = control.document.fqdn
    record = find_name(connection, fqdn)
    is_theirs = record is not None and record.identity == hosted.id and record.left_at is None
    if record is None and _is_signed_here(connection, control) and not _is_handed_over(connection, control):
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
