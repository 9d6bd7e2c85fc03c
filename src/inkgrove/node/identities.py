"""Identities: created, shown, changed (docs/protocol.md section 7).

The identity document is a message in log 0 of the identity's first key, signed like everything else, by this node or
by the client that holds the key; the database beside it only knows whom this node serves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from inkgrove.core.entry import Entry, decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import KEY_BYTES, IdentityId, PublicKey, SecretKey, identity_of
from inkgrove.core.next_entry import sign_next
from inkgrove.messages.identity import FurtherKey, IdentityDocument, KeyOf
from inkgrove.messages.message import Message, decode_message, encode_message
from inkgrove.messages.reading import UNSET, Unset, read_host
from inkgrove.node.errors import BadDocument, BadName, IdentityExists, UnknownIdentity
from inkgrove.node.identity_log import (
    IDENTITY_LOG,
    check_author,
    check_document,
    follow_identity_log,
    key_of,
    newest_document,
)
from inkgrove.node.node import Node
from inkgrove.node.passwords import hash_password
from inkgrove.store.identities import HostedIdentity, add_identity, find_identity, list_identities
from inkgrove.store.ingest import ingest_batch
from inkgrove.store.prepare import by_log, prepare
from inkgrove.store.publishing import lock_keys
from inkgrove.store.reading import heights_of, next_place


@dataclass(frozen=True, slots=True)
class Identity:
    """A hosted identity with its document."""

    id: IdentityId
    key: PublicKey
    document: IdentityDocument
    revision: int
    """The sequence number of the document in log 0."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """An entry that a client signed, with its payload."""

    entry: bytes
    payload: bytes


def create_identity(
    node: Node, fqdn: str, password: str | None, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Identity:
    """Host a new identity whose key this node keeps."""
    fqdn = parse_fqdn(fqdn)
    key = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    document = IdentityDocument(fqdn, node.settings.endpoint.format(fqdn=fqdn), name, dict(profile or {}))
    hosted = HostedIdentity(identity_of(key.public), fqdn, key.public, hash_password(password), node.clock())

    def work(connection: Connection) -> None:
        _host(connection, hosted, node.vault.seal(key))
        append_document(connection, key, document)

    node.database.write(work, durable=True)
    return Identity(hosted.id, key.public, document, 1)


def adopt_identity(node: Node, fqdn: str, password: str | None, signed: SignedMessage) -> Identity:
    """Host a new identity whose key the client holds: it signed the first entry of its log 0."""
    entry, document = _read_signed(signed)
    if not isinstance(document, IdentityDocument) or (entry.log_id, entry.seq_num) != (IDENTITY_LOG, 1):
        raise BadDocument("this must be entry 1 of log 0 with an `identity` message")
    if document.fqdn != (fqdn := parse_fqdn(fqdn)):
        raise BadDocument(f"the document names {document.fqdn}, not {fqdn}")
    hosted = HostedIdentity(identity_of(entry.author), fqdn, entry.author, hash_password(password), node.clock())

    def work(connection: Connection) -> None:
        check_document(connection, entry.author, document, node.settings.endpoint)
        _host(connection, hosted, None)
        _take_in(connection, signed)
        follow_identity_log(connection, entry.author)

    node.database.write(work, durable=True)
    return Identity(hosted.id, hosted.key, document, 1)


def _host(connection: Connection, hosted: HostedIdentity, sealed: bytes | None) -> None:
    if not add_identity(connection, hosted, sealed):
        raise IdentityExists(f"the name {hosted.fqdn} or the key is taken on this node", fqdn=hosted.fqdn)


def show_identity(node: Node, name: str | IdentityId) -> Identity:
    """A hosted identity by FQDN or id."""

    def work(connection: Connection) -> Identity:
        hosted = find_identity(connection, name if isinstance(name, IdentityId) else name.lower().rstrip("."))
        if hosted is None:
            raise UnknownIdentity(f"no identity {str(name)[:80]} is hosted here")
        revision, document = newest_document(connection, hosted.key)
        return Identity(hosted.id, hosted.key, document, revision)

    return node.database.read(work)


def show_all(node: Node) -> list[HostedIdentity]:
    """Every identity that this node hosts."""
    return node.database.read(list_identities)


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
) -> Identity:
    """Publish a new document, signed by the key that the node keeps; what is not given stays."""

    def edit(document: IdentityDocument) -> IdentityDocument:
        if not isinstance(fqdn, Unset):
            new = parse_fqdn(fqdn)
            document = replace(document, fqdn=new, endpoint=node.settings.endpoint.format(fqdn=new))
        if not isinstance(name, Unset):
            document = replace(document, name=name)
        return document if isinstance(profile, Unset) else replace(document, profile=dict(profile))

    return _publish(node, identity, lambda _connection, document: edit(document))


def add_key(node: Node, identity: IdentityId, signed: SignedMessage) -> Identity:
    """Let a further key count: take in its own word, entry 1 of its log 0, and list it in the document."""
    entry, message = _read_signed(signed)
    if (entry.log_id, entry.seq_num, message) != (IDENTITY_LOG, 1, KeyOf(identity)):
        raise BadDocument("this must be entry 1 of the key's log 0 with a `key-of` message that names you")

    def edit(connection: Connection, document: IdentityDocument) -> IdentityDocument:
        if key_of(connection, entry.author) != identity:
            _take_in(connection, signed)
        others = tuple(item for item in document.keys if item.key != entry.author)
        return replace(document, keys=(*others, FurtherKey(entry.author)))

    return _publish(node, identity, edit)


def revoke_key(node: Node, identity: IdentityId, key: PublicKey) -> Identity:
    """Let nothing more of a further key count than what is held of it now."""

    def edit(connection: Connection, document: IdentityDocument) -> IdentityDocument:
        if all(item.key != key for item in document.keys):
            raise UnknownIdentity(f"the document lists no key {key}")
        ends = tuple(sorted(heights_of(connection, key).items()))
        keys = (FurtherKey(key, ends) if item.key == key and item.revoked is None else item for item in document.keys)
        return replace(document, keys=tuple(keys))

    return _publish(node, identity, edit)


def _publish(
    node: Node, identity: IdentityId, edit: Callable[[Connection, IdentityDocument], IdentityDocument]
) -> Identity:
    before = show_identity(node, identity)
    key = node.secret_key(before.key)

    def work(connection: Connection) -> Identity:
        # Read again, while nobody else publishes with these keys: only what this transaction sees is what it changes.
        lock_keys(connection, [identity])
        revision, newest = newest_document(connection, key.public)
        document = edit(connection, newest)
        if document == newest:
            return Identity(identity, key.public, newest, revision)
        check_document(connection, key.public, document, node.settings.endpoint)
        revision = append_document(connection, key, document)
        follow_identity_log(connection, key.public)
        return Identity(identity, key.public, document, revision)

    return node.database.write(work, durable=True)


def take_document(node: Node, identity: IdentityId, signed: SignedMessage) -> Identity:
    """A new document that the client signed as the next entry of log 0."""
    before = show_identity(node, identity)
    entry, document = _read_signed(signed)
    if not isinstance(document, IdentityDocument) or (entry.author, entry.log_id) != (before.key, IDENTITY_LOG):
        raise BadDocument("this must be the next entry of log 0 of your first key, with an `identity` message")

    def work(connection: Connection) -> None:
        check_document(connection, entry.author, document, node.settings.endpoint)
        _take_in(connection, signed)
        follow_identity_log(connection, entry.author)

    node.database.write(work, durable=True)
    return replace(before, document=document, revision=entry.seq_num)


def append_document(connection: Connection, key: SecretKey, document: IdentityDocument) -> int:
    """Sign a document as the next entry of log 0, inside the caller's transaction; its sequence number."""
    payload = encode_message(document)
    place = next_place(connection, key.public, IDENTITY_LOG)
    _take_in(connection, SignedMessage(sign_next(key, payload, place).encoded, payload))
    return place.seq_num


def _read_signed(signed: SignedMessage) -> tuple[Entry, Message]:
    return decode_entry(signed.entry), decode_message(signed.payload)


def _take_in(connection: Connection, signed: SignedMessage) -> None:
    """Verify and append the very next entry of its log."""
    prepared, rejected = prepare([(signed.entry, signed.payload)])
    for refused in rejected:
        raise refused.error
    for item in prepared:
        if item.payload_error is not None:
            raise item.payload_error
        entry = item.signed.entry
        check_author(connection, entry.author, entry.log_id, entry.seq_num)
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=True).values():
        if receipt.error is not None:
            raise receipt.error


def parse_fqdn(text: str) -> str:
    """A fully qualified domain name in lower case."""
    try:
        fqdn = read_host(text.lower().rstrip("."), "fqdn")
    except InkgroveError as err:
        raise BadName(f"{text[:80]!r} is no name like jane.haiku.ink") from err
    if "." not in fqdn:
        raise BadName(f"{text[:80]!r} has no domain: write a name like jane.haiku.ink")
    return fqdn
