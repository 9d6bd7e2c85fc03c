"""Identities that come with a key of their own: the proof of that key, and hosting them (docs/protocol.md section 7.8).

A client asks for a challenge, signs it with the first key and brings an entry of log 0 whose document names this node.
"""

from dataclasses import dataclass
from typing import Final

from inkgrove.core import KEY_BYTES, Entry, IdentityId, PublicKey, SecretKey, identity_of, verify_signature
from inkgrove.core.errors import BadSignature
from inkgrove.messages import IdentityDocument, adoption_claim
from inkgrove.node.errors import IdentityError
from inkgrove.node.identity.identities import (
    IdentityRecord,
    SignedMessage,
    append_signed,
    append_unless_newest,
    give_name,
    host_identity,
    parse_fqdn,
    read_signed,
    show_identity,
    take_controller,
)
from inkgrove.node.identity.identity_log import (
    IDENTITY_LOG,
    apply_identity_log,
    check_document,
    find_control,
    find_identity_of_key,
)
from inkgrove.node.identity.names import date_name, take_name
from inkgrove.node.identity.sessions import hash_password
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import find_remote_identity, use_nonce
from inkgrove.store.logs import find_log
from inkgrove.store.node import HostedIdentity

# Challenges, which a client signs to prove the key of an identity that it brings (docs/protocol.md section 7.8). A
# challenge is a text that only this node can make and read, for one id and a few minutes. It counts once, which is
# recorded when it is used. What the key signs begins with no tag of an entry, so it can never be one.

CHALLENGE_SECONDS: Final = 300
_SECOND: Final = 1_000_000
_KIND: Final = "adopt"
_ADVICE: Final = "ask for a challenge (POST /identities/challenges) and sign it with the first key of the identity"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the key is to sign, until when that counts, and the controller that the node would keep."""

    text: str
    expires: int
    controller: PublicKey


@dataclass(frozen=True, slots=True)
class KeyProof:
    """A challenge with the signature of `adoption_claim`."""

    challenge: str
    signature: bytes


def new_challenge(node: Node, key: PublicKey) -> Challenge:
    """Make a challenge for a client that claims to hold a key."""
    expires = node.clock() + CHALLENGE_SECONDS * _SECOND
    # The seed of the controller travels in the challenge, which nobody else can read: nothing is stored before use.
    controller = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    text = f"{_KIND} {identity_of(key)} {node.settings.endpoint} {expires} {controller.seed.hex()}"
    return Challenge(node.vault.encrypt_text(text), expires, controller.public)


def check_key_proof(
    node: Node, author: PublicKey, document: IdentityDocument, entry: bytes, proof: KeyProof | None
) -> SecretKey:
    """Return the controller of a fresh challenge that the first key has signed for this entry, and use it up.

    Raises `identity.unproved` if it has not.
    """
    if proof is None:
        raise IdentityError("identity.unproved", f"whoever brings an identity proves that they hold its key: {_ADVICE}")
    identity, now = identity_of(author), node.clock()
    found = _read_challenge(node, proof.challenge, identity)
    if found is None or not now < found[0] <= now + CHALLENGE_SECONDS * _SECOND:
        raise IdentityError(
            "identity.unproved", f"the challenge is not one of this node for this identity, or has expired: {_ADVICE}"
        )
    claim = adoption_claim(identity, document.fqdn, document.endpoint, entry, proof.challenge)
    try:
        verify_signature(author, claim, proof.signature)
    except BadSignature as err:
        raise IdentityError("identity.unproved", f"the signature of the challenge does not hold: {_ADVICE}") from err
    is_first = node.database.write(
        lambda connection: use_nonce(connection, f"{_KIND} {identity}", proof.challenge, now=now, expires=found[0])
    )
    if not is_first:
        raise IdentityError("identity.unproved", f"the challenge was used before: {_ADVICE}")
    return found[1]


def _read_challenge(node: Node, text: str, identity: IdentityId) -> tuple[int, SecretKey] | None:
    """Return when a challenge of this node for an identity expires, and its controller; None if it is none."""
    parts = (node.vault.decrypt_text(text) or "").split(" ")
    if len(parts) != 5 or parts[:3] != [_KIND, identity.hex(), node.settings.endpoint]:
        return None
    return int(parts[3]), SecretKey.from_seed(bytes.fromhex(parts[4]))


def read_adoption(fqdn: str, signed: SignedMessage) -> tuple[Entry, IdentityDocument]:
    """The entry of log 0 that a client signed to have its identity hosted, and the document in it."""
    entry, document = read_signed(signed)
    if not isinstance(document, IdentityDocument) or entry.log_id != IDENTITY_LOG:
        raise IdentityError(
            "identity.bad-document",
            "this must be an entry of log 0 with an `identity` message: the first, or the next one",
        )
    if document.fqdn != (fqdn := parse_fqdn(fqdn)):
        raise IdentityError("identity.bad-document", f"the document names {document.fqdn}, not {fqdn}")
    return entry, document


def adopt_identity(
    node: Node,
    fqdn: str,
    password: str | None,
    signed: SignedMessage,
    proof: KeyProof | None,
    *,
    leads_here: bool = False,
) -> IdentityRecord:
    """Host an identity whose key the client holds: it signed an entry of log 0 that names this node, and a challenge.

    What was addressed to the id before is shown to its holder, so nothing is done without the proof.
    """
    entry, document = read_adoption(fqdn, signed)
    controller = check_key_proof(node, entry.author, document, signed.entry, proof)
    return adopt_proved(node, password, signed, entry, document, controller=controller, leads_here=leads_here)


def adopt_proved(
    node: Node,
    password: str | None,
    signed: SignedMessage,
    entry: Entry,
    document: IdentityDocument,
    *,
    controller: SecretKey | None = None,
    leads_here: bool,
) -> IdentityRecord:
    """Host an identity as `adopt_identity` does, after `read_adoption` and `check_key_proof`.

    If the document names the `controller` of the challenge, this node keeps that and speaks for the identity with it.
    """
    author, hashed = entry.author, hash_password(password)
    hosted = HostedIdentity(identity_of(author), document.fqdn, author, hashed, node.clock(), document.endpoint)

    def work(connection: Connection) -> None:
        _check_lives_here(connection, node, entry, document, leads_here=leads_here)
        take_name(connection, node, hosted.fqdn, hosted.id, leads_here=leads_here)
        check_document(connection, author, document, node.settings.endpoint)
        host_identity(connection, hosted, None)
        append_unless_newest(connection, entry, signed)
        take_controller(connection, node, hosted.id, document, controller)
        apply_identity_log(connection, author, is_ours=True, now=node.clock())

    node.signing.write(work)
    return show_identity(node, hosted.id)


def adopt_given(
    node: Node,
    password: str | None,
    signed: SignedMessage,
    entry: Entry,
    document: IdentityDocument,
    controller: SecretKey,
) -> IdentityRecord:
    """Host a new identity whose entry 1 was just signed, with its controller, as the operator does."""
    author, hashed = entry.author, hash_password(password)
    hosted = HostedIdentity(identity_of(author), document.fqdn, author, hashed, node.clock(), document.endpoint)
    date_name(node, document.fqdn)

    def work(connection: Connection) -> None:
        give_name(connection, node, hosted)
        host_identity(connection, hosted, None)
        append_signed(connection, signed)
        take_controller(connection, node, hosted.id, document, controller)
        apply_identity_log(connection, author, is_ours=True, now=node.clock())

    node.signing.write(work)
    return show_identity(node, hosted.id)


def _check_lives_here(
    connection: Connection, node: Node, entry: Entry, document: IdentityDocument, *, leads_here: bool
) -> None:
    """Refuse an identity whose newest document, as far as it is known, is not the one that names this node."""
    if find_identity_of_key(connection, entry.author) is not None:
        raise IdentityError(
            "identity.bad-document",
            "this key says that it is a further key of another identity: bring the first key of that one",
        )
    log = find_log(connection, entry.author, IDENTITY_LOG)
    if entry.seq_num > (height := log.height if log is not None else 0) + 1:
        raise IdentityError(
            "identity.unknown-home",
            f"this is entry {entry.seq_num} of log 0, of which this node holds {height or 'none'}: say where the"
            " identity lives now (`lives_at`), and what lies before it is fetched; never sign a place twice",
            height=height,
        )
    control = find_control(connection, entry.author)
    newest = None if control is None else (control.path[0].seq_num, control.document)
    known = find_remote_identity(connection, identity_of(entry.author))
    is_found_there = known is not None and known.document_seq >= entry.seq_num and not leads_here
    is_held = newest is not None and newest[0] == entry.seq_num
    if newest is not None and newest[0] > entry.seq_num:
        where = newest[1]
    elif is_found_there or (is_held and document.endpoint != node.settings.endpoint.format(fqdn=document.fqdn)):
        where = document
    else:
        return
    raise IdentityError(
        "identity.lives-elsewhere",
        f"the newest document of the identity (entry {newest[0] if newest else entry.seq_num} of log 0) names"
        f" {where.fqdn} at {where.endpoint}: sign one that names this node as the next entry, and bring that",
        fqdn=where.fqdn,
        endpoint=where.endpoint,
    )
