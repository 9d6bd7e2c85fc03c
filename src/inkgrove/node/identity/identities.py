"""Identities: created, shown, changed (docs/protocol.md section 7).

The identity document is a message in log 0 of the identity's first key, signed like everything else, by this node or
by the client that holds the key; the database beside it only knows whom this node serves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from inkgrove.core import (
    KEY_BYTES,
    Entry,
    Hash,
    IdentityId,
    NextEntry,
    PublicKey,
    SecretKey,
    decode_entry,
    identity_of,
    sign_next,
)
from inkgrove.core.errors import InkgroveError, LogError
from inkgrove.messages import (
    UNSET,
    Control,
    FurtherKey,
    IdentityDocument,
    IdentityState,
    KeyOf,
    KeyState,
    Message,
    RevokedLog,
    Unset,
    decode_message,
    encode_message,
    read_host,
)
from inkgrove.node.errors import IdentityError, UnknownIdentity
from inkgrove.node.identity.identity_log import (
    IDENTITY_LOG,
    apply_identity_log,
    check_author,
    check_document,
    find_branch_end,
    find_control,
    find_identity_of_key,
    read_control,
    read_next_of_log0,
)
from inkgrove.node.identity.leaving import require_staying
from inkgrove.node.identity.names import bind_if_given, date_name, take_name
from inkgrove.node.identity.quotas import spend_document
from inkgrove.node.identity.sessions import hash_password
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import (
    Batch,
    IngestStatus,
    by_log,
    find_pins,
    ingest_batch,
    prepare_items,
    read_entries,
    read_next_entry,
)
from inkgrove.store.node import (
    HostedIdentity,
    add_identity,
    find_identity,
    identities_of,
    identities_with_kept_first_key,
    is_first_key_lost,
    leave_name,
    list_identities,
    lock_keys,
    put_key,
    sealed_key,
)


class RecoveryMeans(StrEnum):
    """Who can get an identity back if its node or password is lost."""

    WORDS = "words"
    """Whoever has the words: the first key is not on this node, which keeps a controller."""
    OWN_KEY = "own-key"
    """A client keeps the first key and signs all documents."""
    NONE = "none"
    """Nobody but this node: it made the first key and keeps it, or one before it did and has destroyed it."""


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """A hosted identity with its document."""

    id: IdentityId
    key: PublicKey
    document: IdentityDocument
    revision: int
    """The sequence number of the entry of the document, in log 0 of the key that signed it."""
    recovery: RecoveryMeans = RecoveryMeans.NONE
    """Who can get the identity back if this node is lost, or the password."""
    keys: Mapping[PublicKey, KeyState] = field(default_factory=dict)
    """The states of the first key and of each that the document lists."""
    state: IdentityState | None = None
    """That log 0 of the first key is forked, and whether that ends the identity."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """An entry that a client signed, with its payload."""

    entry: bytes
    payload: bytes


def create_identity(
    node: Node, fqdn: str, password: str | None, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> IdentityRecord:
    """Host a new identity whose key this node keeps, as the operator does: it gets exactly that name."""
    return _create(node, fqdn, password, name, profile, lambda connection, hosted: give_name(connection, node, hosted))


def register_identity(
    node: Node,
    fqdn: str,
    password: str | None,
    *,
    name: str | None = None,
    profile: Mapping[str, str] | None = None,
    leads_here: bool = False,
) -> IdentityRecord:
    """Host a new identity whose key this node keeps, under a name that people may take.

    `leads_here`: the world was just seen to lead to this node under the name.
    """

    def take(connection: Connection, hosted: HostedIdentity) -> None:
        take_name(connection, node, hosted.fqdn, hosted.id, leads_here=leads_here)

    return _create(node, fqdn, password, name, profile, take)


def _create(
    node: Node,
    fqdn: str,
    password: str | None,
    name: str | None,
    profile: Mapping[str, str] | None,
    take: Callable[[Connection, HostedIdentity], None],
) -> IdentityRecord:
    fqdn = parse_fqdn(fqdn)
    key = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    document = IdentityDocument(fqdn, node.settings.endpoint.format(fqdn=fqdn), name, dict(profile or {}))
    hashed = hash_password(password)
    hosted = HostedIdentity(identity_of(key.public), fqdn, key.public, hashed, node.clock(), document.endpoint)

    date_name(node, fqdn)

    def work(connection: Connection) -> None:
        take(connection, hosted)
        host_identity(connection, hosted, node.vault.seal(key))
        append_document(connection, key, document)

    node.signing.write(work)
    return show_identity(node, hosted.id)


def give_name(connection: Connection, node: Node, hosted: HostedIdentity) -> None:
    """Give somebody a name, as the operator does, with the rights that the settings bind to it."""
    take_name(connection, node, hosted.fqdn, hosted.id, is_operator=True)
    bind_if_given(connection, node, hosted.fqdn, hosted.id)


def take_controller(
    connection: Connection, node: Node, identity: IdentityId, document: IdentityDocument, offered: SecretKey | None
) -> None:
    """Let the controller that a document of the first key names speak here: keep it, if this node `offered` it.

    Raises `identity.bad-document` if the document does not list it, or `identity.unknown-controller` if it is another
    key that has not said whose it is.
    """
    named = document.controller
    if named is None:
        return
    if not any(item.key == named and item.revoked is None for item in document.keys):
        raise IdentityError(
            "identity.bad-document", "the document names a controller that it does not list among its keys in use"
        )
    if offered is not None and named == offered.public:
        put_key(connection, named, identity, node.vault.seal(offered))
        payload = encode_message(KeyOf(identity))
        following = read_next_entry(connection, named, IDENTITY_LOG)
        append_signed(connection, SignedMessage(sign_next(offered, payload, following).encoded, payload))
    elif find_identity_of_key(connection, named) != identity:
        raise IdentityError(
            "identity.unknown-controller",
            f"nobody has shown that the controller {named} is a key of the identity: use the one that the challenge"
            " names, or add the key before (POST /me/keys)",
            controller=named,
        )


def append_unless_newest(connection: Connection, entry: Entry, signed: SignedMessage) -> None:
    """Append the next entry of log 0, unless it is the newest document and came in before by another way."""
    control = find_control(connection, entry.author)
    if control is not None and control.path[0].seq_num == entry.seq_num:
        (stored, *_) = read_entries(connection, entry.author, IDENTITY_LOG, entry.seq_num, entry.seq_num)
        if stored.entry.encoded == signed.entry:
            return
    append_signed(connection, signed)


def host_identity(connection: Connection, hosted: HostedIdentity, sealed: bytes | None) -> None:
    """Add an identity to those that this node hosts; raises `identity.exists`."""
    if not add_identity(connection, hosted, sealed):
        raise IdentityError(
            "identity.exists", f"the name {hosted.fqdn} or the key is taken on this node", fqdn=hosted.fqdn
        )


def show_identity(node: Node, name: str | IdentityId) -> IdentityRecord:
    """A hosted identity by FQDN or id."""

    def work(connection: Connection) -> IdentityRecord:
        hosted = find_identity(connection, name if isinstance(name, IdentityId) else name.lower().rstrip("."))
        if hosted is None:
            raise UnknownIdentity(f"no identity {str(name)[:80]} is hosted here")
        return _record(connection, hosted.key)

    return node.database.read(work)


def _record(connection: Connection, first_key: PublicKey) -> IdentityRecord:
    control = read_control(connection, first_key)
    document, revision = control.document, control.current.seq_num
    recovery = recovery_of(connection, control)
    return IdentityRecord(control.identity, first_key, document, revision, recovery, control.keys, control.state)


def recovery_of(connection: Connection, control: Control) -> RecoveryMeans:
    """Return who can get an identity back, as far as this node can tell."""
    if sealed_key(connection, control.first_key) is not None or is_first_key_lost(connection, control.identity):
        return RecoveryMeans.NONE
    return RecoveryMeans.OWN_KEY if control.controller is None else RecoveryMeans.WORDS


def find_own_log_end(node: Node, first_key: PublicKey) -> tuple[NextEntry, IdentityDocument] | None:
    """Return the place of the next entry in log 0 of an identity that is hosted here, and its document in effect."""

    def work(connection: Connection) -> tuple[NextEntry, IdentityDocument] | None:
        hosted = find_identity(connection, identity_of(first_key))
        if hosted is None:
            return None
        return read_next_of_log0(connection, first_key), read_control(connection, first_key).document

    return node.database.read(work)


def list_hosted_identities(node: Node) -> list[HostedIdentity]:
    """Every identity that this node hosts."""
    return node.database.read(list_identities)


def list_without_recovery(node: Node) -> set[IdentityId]:
    """The hosted identities whose first key this node keeps: nobody else can get them back."""
    return node.database.read(identities_with_kept_first_key)


def parse_identity_name(text: str) -> str | IdentityId:
    """What names an identity in an address: its id in hex, or its FQDN."""
    is_id = len(text) == 64 and all(character in "0123456789abcdef" for character in text)
    return IdentityId.fromhex(text) if is_id else text


# Changes


def change_identity(
    node: Node,
    identity: IdentityId,
    *,
    fqdn: str | Unset = UNSET,
    name: str | Unset | None = UNSET,
    profile: Mapping[str, str] | Unset = UNSET,
    leads_here: bool = False,
) -> IdentityRecord:
    """Publish a new document, signed by the key that the node keeps; what is not given stays.

    `leads_here`: the world was just seen to lead to this node under the new name.
    """

    def edit(document: IdentityDocument) -> IdentityDocument:
        if not isinstance(fqdn, Unset):
            new = parse_fqdn(fqdn)
            document = replace(document, fqdn=new, endpoint=node.settings.endpoint.format(fqdn=new))
        if not isinstance(name, Unset):
            document = replace(document, name=name)
        return document if isinstance(profile, Unset) else replace(document, profile=dict(profile))

    return _publish(node, identity, lambda _connection, document: edit(document), leads_here=leads_here)


def add_key(node: Node, identity: IdentityId, signed: SignedMessage, label: str | None = None) -> IdentityRecord:
    """Add a further key: append its `key-of`, which is entry 1 of its log 0, and list it in the document.

    `label` is what it is called there; None: as before, if it was listed.
    """
    entry, message = read_signed(signed)
    if (entry.log_id, entry.seq_num, message) != (IDENTITY_LOG, 1, KeyOf(identity)):
        raise IdentityError(
            "identity.bad-document", "this must be entry 1 of the key's log 0 with a `key-of` message that names you"
        )

    def edit(connection: Connection, document: IdentityDocument) -> IdentityDocument:
        if find_identity_of_key(connection, entry.author) != identity:
            append_signed(connection, signed)
        others = tuple(item for item in document.keys if item.key != entry.author)
        before = next((item.label for item in document.keys if item.key == entry.author), None)
        return replace(document, keys=(*others, FurtherKey(entry.author, label=label or before)))

    return _publish(node, identity, edit)


def revoke_key(node: Node, identity: IdentityId, key: PublicKey) -> IdentityRecord:
    """Let nothing more of a further key count than what is held of it now, whatever is signed with it later."""

    def edit(connection: Connection, document: IdentityDocument) -> IdentityDocument:
        require_listed_key(document, key)
        ends = tuple(find_pins(connection, key))
        keys = (
            replace(item, revoked=ends) if item.key == key and item.revoked is None else item for item in document.keys
        )
        return replace(document, keys=tuple(keys))

    return _publish(node, identity, edit)


def require_listed_key(document: IdentityDocument, key: PublicKey) -> None:
    """Raise `identity.unknown` unless a document lists a key."""
    if all(item.key != key for item in document.keys):
        raise UnknownIdentity(f"the document lists no key {key}")


def edit_document(
    node: Node, identity: IdentityId, edit: Callable[[Connection, IdentityDocument], IdentityDocument]
) -> IdentityRecord:
    """Publish the document that `edit` makes of the newest one, in one transaction, unless it is the same.

    Raises `identity.no-key-here` if this node keeps no key that may sign it.
    """
    return _publish(node, identity, edit)


def show_ends(node: Node, identity: IdentityId, key: PublicKey) -> list[RevokedLog]:
    """Return how far the logs of a key of an identity go here; a document that revokes it lists this."""

    def work(connection: Connection) -> list[RevokedLog]:
        if identities_of(connection, [key]).get(key) != identity:
            raise UnknownIdentity(f"{key} is no key of the identity")
        return find_pins(connection, key)

    return node.database.read(work)


def _publish(
    node: Node,
    identity: IdentityId,
    edit: Callable[[Connection, IdentityDocument], IdentityDocument],
    *,
    leads_here: bool = False,
) -> IdentityRecord:
    before = show_identity(node, identity)

    def work(connection: Connection) -> IdentityRecord:
        # Read again, while nobody else publishes with these keys: only what this transaction sees is what it changes.
        require_staying(connection, identity)
        lock_keys(connection, [identity])
        control = read_control(connection, before.key)
        key, under = find_document_signer(connection, node, control)
        newest = control.document
        document = edit(connection, newest)
        _rename(connection, node, identity, document.fqdn, leads_here=leads_here)
        if document != newest:
            check_document(connection, before.key, document, node.settings.endpoint)
            spend_document(node, connection, identity, document)
            append_document(connection, key, replace(document, under=under))
        apply_identity_log(connection, key.public, is_ours=document != newest, now=node.clock())
        return _record(connection, before.key)

    return node.signing.write(work)


def find_document_signer(connection: Connection, node: Node, control: Control) -> tuple[SecretKey, Hash | None]:
    """Return the key that this node signs the next document of an identity with, and what that stands under.

    It is the controller, else the first key; raises `identity.no-key-here` if this node keeps neither.
    """
    controller = control.controller
    for author in (controller, control.first_key):
        sealed = None if author is None else sealed_key(connection, author)
        if author is not None and sealed is not None:
            return node.vault.open(sealed), control.under_for(author) if author == controller else None
    raise IdentityError(
        "identity.no-key-here",
        "this node keeps no key that may sign documents of the identity: sign on the client (PATCH /me with `signed`)",
    )


def _rename(connection: Connection, node: Node, identity: IdentityId, fqdn: str, *, leads_here: bool) -> None:
    """Let a hosted identity have the name that its document is about to give, and leave the one so far."""
    hosted = find_identity(connection, identity)
    assert hosted is not None
    take_name(connection, node, fqdn, identity, leads_here=leads_here)
    if hosted.fqdn != fqdn:
        leave_name(connection, hosted.fqdn, identity, node.clock())


_BAD_DOCUMENT: Final = (
    "this must be the next entry of log 0 of your first key, or of the controller that your document names, with an"
    " `identity` message"
)


def replace_document(
    node: Node,
    identity: IdentityId,
    signed: SignedMessage,
    *,
    controller: SecretKey | None = None,
    leads_here: bool = False,
) -> IdentityRecord:
    """A new document that the client signed as the next entry of log 0, or the newest one again for its name.

    `controller` is a key that this node has offered to keep, if the document names it.
    """
    before = show_identity(node, identity)
    entry, document = read_signed(signed)
    if not isinstance(document, IdentityDocument) or entry.log_id != IDENTITY_LOG:
        raise IdentityError("identity.bad-document", _BAD_DOCUMENT)

    def work(connection: Connection) -> IdentityRecord:
        require_staying(connection, identity)
        lock_keys(connection, [identity])  # as all do who publish: what is counted below is counted by one at a time
        check_signer(read_control(connection, before.key), entry.author, document)
        _rename(connection, node, identity, document.fqdn, leads_here=leads_here)
        check_document(connection, before.key, document, node.settings.endpoint)
        spend_document(node, connection, identity, document)
        if entry.author == before.key:
            append_unless_newest(connection, entry, signed)
        else:
            append_signed(connection, signed)
        take_controller(connection, node, identity, document, controller)
        apply_identity_log(connection, entry.author, is_ours=True, now=node.clock())
        return _record(connection, before.key)

    return node.signing.write(work)


def check_signer(control: Control, author: PublicKey, document: IdentityDocument) -> None:
    """Raise `identity.bad-document` unless the author may sign documents, and this one stands under the right entry."""
    if author not in (control.first_key, control.controller):
        raise IdentityError("identity.bad-document", _BAD_DOCUMENT)
    under = None if author == control.first_key else control.under_for(author)
    if document.under != under:
        wanted = "nothing" if under is None else f"{under}, the entry that made this key the controller"
        raise IdentityError("identity.bad-document", f"the document must stand under {wanted}", under=under)


def append_document(connection: Connection, key: SecretKey, document: IdentityDocument) -> int:
    """Sign a document as the next entry of log 0, inside the caller's transaction; its sequence number."""
    payload = encode_message(document)
    following = read_next_of_log0(connection, key.public)
    append_signed(connection, SignedMessage(sign_next(key, payload, following).encoded, payload))
    return following.seq_num


def read_document(signed: SignedMessage) -> IdentityDocument:
    """The identity document in what a client signed."""
    _, document = read_signed(signed)
    if not isinstance(document, IdentityDocument):
        raise IdentityError("identity.bad-document", _BAD_DOCUMENT)
    return document


def read_signed(signed: SignedMessage) -> tuple[Entry, Message]:
    """Decode what a client signed; nothing is verified."""
    return decode_entry(signed.entry), decode_message(signed.payload)


def append_signed(connection: Connection, signed: SignedMessage) -> None:
    """Verify and append the very next entry of its log."""
    prepared, rejected = prepare_items([(signed.entry, signed.payload)])
    for refused in rejected:
        raise refused.error
    for item in prepared:
        if item.payload_error is not None:
            raise item.payload_error
        entry = item.signed.entry
        check_author(connection, entry.author, entry.log_id, entry.seq_num)
        if entry.log_id == IDENTITY_LOG and find_branch_end(connection, entry.author) is not None:
            _append_to_branch(connection, entry, by_log(prepared))
            return
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=True).values():
        if receipt.error is not None:
            raise receipt.error


def _append_to_branch(connection: Connection, entry: Entry, batch: Batch) -> None:
    """Append to the branch that counts of a log 0 whose fork is tolerated; raises `log.stale` for another place."""
    following = read_next_of_log0(connection, entry.author)
    links = entry.seq_num, entry.lipmaa_link, entry.backlink
    if links != (following.seq_num, following.lipmaa_link, following.backlink):
        raise LogError(
            "log.stale",
            f"entry {entry.seq_num} does not follow entry {following.seq_num - 1} of the branch that counts",
            next=following,
        )
    for receipt in ingest_batch(connection, batch, must_be_next=False).values():
        if receipt.status is IngestStatus.REFUSED and receipt.error is not None:
            raise receipt.error


def parse_fqdn(text: str) -> str:
    """A fully qualified domain name in lower case."""
    try:
        fqdn = read_host(text.lower().rstrip("."), "fqdn")
    except InkgroveError as err:
        raise IdentityError("identity.bad-name", f"{text[:80]!r} is no name like jane.haiku.ink") from err
    if "." not in fqdn:
        raise IdentityError("identity.bad-name", f"{text[:80]!r} has no domain: write a name like jane.haiku.ink")
    return fqdn
