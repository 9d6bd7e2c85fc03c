"""Identities: created, shown, changed, signed in (docs/protocol.md section 7).

The identity document is a message in log 0 of the identity's first key, signed like everything else; the database
beside it only knows whom this node serves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import KEY_BYTES, IdentityId, PublicKey, SecretKey, identity_of
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.core.next_entry import sign_next
from inkgrove.messages.identity import IdentityDocument
from inkgrove.messages.message import decode_message, encode_message
from inkgrove.messages.reading import read_host
from inkgrove.node.caller import ANYBODY, Caller
from inkgrove.node.errors import BadName, BadPassword, BadToken, IdentityExists, UnknownIdentity, WeakPassword
from inkgrove.node.node import Node
from inkgrove.store.identities import (
    HostedIdentity,
    add_identity,
    add_session,
    end_sessions,
    find_identity,
    find_session,
    set_fqdn,
    set_password,
)
from inkgrove.store.ingest import ingest_batch
from inkgrove.store.prepare import by_log, prepare
from inkgrove.store.reading import next_place, read_entries

IDENTITY_LOG: Final = 0
MIN_PASSWORD: Final = 8
_SECOND: Final = 1_000_000
_hasher = PasswordHasher()


@dataclass(frozen=True, slots=True)
class Identity:
    """A hosted identity with its document."""

    id: IdentityId
    key: PublicKey
    document: IdentityDocument
    revision: int
    """The sequence number of the document in log 0."""


def create_identity(
    node: Node, fqdn: str, password: str | None, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Identity:
    """Host a new identity whose key this node keeps."""
    fqdn = parse_fqdn(fqdn)
    key = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    document = IdentityDocument(fqdn, node.settings.endpoint.format(fqdn=fqdn), name, dict(profile or {}))
    hosted = HostedIdentity(identity_of(key.public), fqdn, key.public, hash_password(password), node.clock())

    def work(connection: Connection) -> None:
        if not add_identity(connection, hosted, node.vault.seal(key)):
            raise IdentityExists(f"the name {fqdn} is taken on this node", fqdn=fqdn)
        append_document(connection, key, document)

    node.database.write(work, durable=True)
    return Identity(hosted.id, key.public, document, 1)


def show_identity(node: Node, name: str | IdentityId) -> Identity:
    """A hosted identity by FQDN or id."""
    hosted = node.database.read(lambda connection: find_identity(connection, name))
    if hosted is None:
        raise UnknownIdentity(f"no identity {name} is hosted here", identity=str(name))
    revision, document = newest_document(node, hosted.key)
    return Identity(hosted.id, hosted.key, document, revision)


def newest_document(node: Node, key: PublicKey) -> tuple[int, IdentityDocument]:
    """The newest valid identity document in log 0 of a first key, with its sequence number."""
    return node.database.read(lambda connection: document_on(connection, key))


def document_on(connection: Connection, key: PublicKey) -> tuple[int, IdentityDocument]:
    """The same as this transaction sees it."""
    for stored in reversed(read_entries(connection, key, IDENTITY_LOG, 1, MAX_STORED_INTEGER)):
        if stored.refusal is None and stored.payload is not None:
            try:
                message = decode_message(stored.payload)
            except InkgroveError:
                continue
            if isinstance(message, IdentityDocument):
                return stored.entry.seq_num, message
    raise UnknownIdentity(f"no document of the key {key} is held", author=str(key))


def change_identity(
    node: Node,
    identity: IdentityId,
    *,
    fqdn: str | None = None,
    name: str | None = None,
    profile: Mapping[str, str] | None = None,
) -> Identity:
    """Publish a new document; what is None stays."""
    before = show_identity(node, identity)
    key = node.secret_key(before.key)
    document = before.document
    if fqdn is not None:
        fqdn = parse_fqdn(fqdn)
        document = replace(document, fqdn=fqdn, endpoint=node.settings.endpoint.format(fqdn=fqdn))
    if name is not None:
        document = replace(document, name=name)
    if profile is not None:
        document = replace(document, profile=dict(profile))

    def work(connection: Connection) -> int:
        if fqdn is not None and fqdn != before.document.fqdn:
            if find_identity(connection, fqdn) is not None:
                raise IdentityExists(f"the name {fqdn} is taken on this node", fqdn=fqdn)
            set_fqdn(connection, identity, fqdn)
        return append_document(connection, key, document)

    return replace(before, document=document, revision=node.database.write(work, durable=True))


def append_document(connection: Connection, key: SecretKey, document: IdentityDocument) -> int:
    """Sign a document as the next entry of log 0, inside the caller's transaction; its sequence number."""
    payload = encode_message(document)
    place = next_place(connection, key.public, IDENTITY_LOG)
    prepared, rejected = prepare([(sign_next(key, payload, place).encoded, payload)])
    for refused in rejected:
        raise refused.error
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=True).values():
        if receipt.error is not None:
            raise receipt.error
    return place.seq_num


def parse_fqdn(text: str) -> str:
    """A fully qualified domain name in lower case."""
    try:
        fqdn = read_host(text.lower().rstrip("."), "fqdn")
    except InkgroveError as err:
        raise BadName(f"{text[:80]!r} is no name like jane.haiku.ink") from err
    if "." not in fqdn:
        raise BadName(f"{text[:80]!r} has no domain: write a name like jane.haiku.ink")
    return fqdn


# Passwords and sign-ins


def hash_password(password: str | None) -> str | None:
    """The argon2 hash that is stored; None: nobody signs in with a password."""
    if password is None:
        return None
    if len(password) < MIN_PASSWORD:
        raise WeakPassword(f"a password has at least {MIN_PASSWORD} characters")
    return _hasher.hash(password)


_NOBODY = _hasher.hash("nobody has this password")


def sign_in(node: Node, name: str, password: str) -> tuple[str, int]:
    """A token for the identity itself, and when it ends; takes as long whether the name exists or not."""
    hosted = node.database.read(lambda connection: find_identity(connection, name.lower().rstrip(".")))
    stored = hosted.password if hosted is not None else None
    try:
        _hasher.verify(stored or _NOBODY, password)
    except (VerificationError, InvalidHashError):
        stored = None
    if hosted is None or stored is None:
        raise BadPassword("the name or the password is wrong")
    token, expires = node.random_bytes(32).hex(), node.clock() + node.settings.session_seconds * _SECOND
    node.database.write(lambda connection: add_session(connection, hash_token(token), hosted.id, expires))
    return token, expires


def hash_token(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode()).digest()


def change_password(node: Node, identity: IdentityId, password: str) -> None:
    """Set a new password and end all sign-ins."""
    hashed = hash_password(password)

    def work(connection: Connection) -> None:
        set_password(connection, identity, hashed)
        end_sessions(connection, identity=identity)

    node.database.write(work)


def sign_out(node: Node, token: str) -> None:
    """End a sign-in."""
    node.database.write(lambda connection: end_sessions(connection, token=hash_token(token)))


def authenticate(node: Node, token: str | None) -> Caller:
    """Who holds this token; without one, anybody."""
    if token is None:
        return ANYBODY
    return node.database.read(lambda connection: authenticate_on(connection, node, token))


def authenticate_on(connection: Connection, node: Node, token: str) -> Caller:
    """Who holds this token, as this transaction sees it."""
    identity = find_session(connection, hash_token(token), node.clock())
    if identity is None:
        raise BadToken("the token is not known here, has expired or was revoked: sign in again")
    hosted = find_identity(connection, identity)
    is_administrator = hosted is not None and hosted.fqdn in node.settings.administrators
    return Caller(identity, is_administrator=is_administrator)
