"""The first key of an identity as words in a drawer, and the way back in with them (docs/protocol.md section 7.2.1).

An identity that was made with a password alone has its first key on the node. `show_words` shows it, `confirm_words`
makes a controller that speaks for it from then on and forgets the first key. `recover_identity` sets a new password for
whoever proves the first key, and can put a new controller in the place of the one so far.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inkgrove.core import KEY_BYTES, IdentityId, SecretKey, parse_words, render_words, sign_entry
from inkgrove.core.errors import KeysError
from inkgrove.messages import FurtherKey, IdentityDocument, encode_message
from inkgrove.node.errors import IdentityError
from inkgrove.node.identity.adoption import KeyProof, adopt_given, check_key_proof
from inkgrove.node.identity.identities import (
    IdentityRecord,
    SignedMessage,
    append_document,
    parse_fqdn,
    read_document,
    replace_document,
    show_identity,
    take_controller,
)
from inkgrove.node.identity.identity_log import IDENTITY_LOG, apply_identity_log, read_control
from inkgrove.node.identity.leaving import require_staying
from inkgrove.node.identity.quotas import spend_document
from inkgrove.node.identity.sessions import change_password, hash_password
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.node import forget_secret, lock_departure, lock_keys, remove_departure

CONTROLLER_LABEL = "server"
"""What a document calls the controller that a node keeps."""


@dataclass(frozen=True, slots=True)
class NewIdentity:
    """An identity that was made with words, which are nowhere else."""

    identity: IdentityRecord
    words: str


def create_with_words(
    node: Node, fqdn: str, password: str | None, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> NewIdentity:
    """Host a new identity as the operator does; the first key is only in the words that are returned."""
    first = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    controller = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    fqdn = parse_fqdn(fqdn)
    document = IdentityDocument(
        fqdn,
        node.settings.endpoint.format(fqdn=fqdn),
        name,
        dict(profile or {}),
        (FurtherKey(controller.public, label=CONTROLLER_LABEL),),
        controller.public,
    )
    payload = encode_message(document)
    entry = sign_entry(first, payload, log_id=IDENTITY_LOG, seq_num=1)
    record = adopt_given(node, password, SignedMessage(entry.encoded, payload), entry, document, controller)
    return NewIdentity(record, render_words(first.seed))


def show_words(node: Node, identity: IdentityId) -> str:
    """Return the words of the first key, which this node keeps; raises `identity.no-key-here` if it does not."""
    return render_words(_first_secret(node, identity).seed)


def _first_secret(node: Node, identity: IdentityId) -> SecretKey:
    record = show_identity(node, identity)
    try:
        return node.secret_key(record.key)
    except IdentityError as err:
        raise IdentityError(
            "identity.no-key-here", "this node does not keep the first key: whoever has its words has all of it"
        ) from err


def confirm_words(node: Node, identity: IdentityId, words: str) -> IdentityRecord:
    """Make a controller and forget the first key, for somebody who has written the words down.

    Raises `key.wrong-word`, `key.bad-words`, or `key.mismatch` if they are the words of another key.
    """
    first = _first_secret(node, identity)
    if parse_words(words) != first.seed:
        raise KeysError("key.mismatch", "these are the words of another key, not of the first key of this identity")
    controller = SecretKey.from_seed(node.random_bytes(KEY_BYTES))

    def work(connection: Connection) -> None:
        require_staying(connection, identity)
        lock_keys(connection, [identity])
        newest = read_control(connection, first.public).document
        listed = (*newest.keys, FurtherKey(controller.public, label=CONTROLLER_LABEL))
        document = replace(newest, keys=listed, controller=controller.public, under=None)
        spend_document(node, connection, identity, document)
        append_document(connection, first, document)
        take_controller(connection, node, identity, document, controller)
        apply_identity_log(connection, first.public, is_ours=True, now=node.clock())
        forget_secret(connection, first.public)

    node.signing.write(work)
    return show_identity(node, identity)


def recover_identity(
    node: Node, name: str, password: str, proof: KeyProof, signed: SignedMessage | None, *, leads_here: bool = False
) -> IdentityRecord:
    """Let whoever proves the first key of a hosted identity set a new password; every sign-in ends.

    `signed` is a document that the first key has signed as the next entry of its log 0: it overrules the controller so
    far, and may name the one that the challenge offered. A move to another node that is under way is taken back: the
    first key overrules whoever asked for it. Raises `identity.unknown`, `identity.unproved` (which words of
    another identity get as well), or why the document is not taken.
    """
    record = show_identity(node, name)
    document = record.document if signed is None else read_document(signed)
    controller = check_key_proof(node, record.key, document, b"" if signed is None else signed.entry, proof)
    hash_password(password)  # a weak one is refused before anything is signed
    node.database.write(lambda connection: _take_move_back(connection, record.id))
    if signed is not None:
        replace_document(node, record.id, signed, controller=controller, leads_here=leads_here)
    change_password(node, record.id, password)
    return show_identity(node, record.id)


def _take_move_back(connection: Connection, identity: IdentityId) -> None:
    departure = lock_departure(connection, identity)
    if departure is not None and departure.state == "leaving":
        remove_departure(connection, identity)
