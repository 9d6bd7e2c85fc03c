"""Newer documents of identities, by whatever way they come: a notice of another node, or an answer that says "moved".

docs/protocol.md section 7.10.3. What is stored is what the identity itself signed, whoever brings it, and which
document counts follows from section 7.2. Nobody is believed to live where a document leads before that was looked up:
storing it only queues the look-up (`apply_identity_log`).
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from inkgrove.core import HeldEntry, IdentityId, PublicKey, identity_of
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS
from inkgrove.federation.errors import FederationError, IdentityRelocated, UnprovedMove, WrongName
from inkgrove.federation.peers.transport import PeerResponse
from inkgrove.federation.peers.well_known import (
    MAX_LOG_ENTRIES,
    MAX_SPEAKERS,
    DocumentProof,
    ProofEntry,
    prove_document,
    read_document_proofs,
    read_identity_log,
)
from inkgrove.messages import IdentityDocument, cbor, read_entry_pair, write_entry_pairs
from inkgrove.node.errors import IdentityMoved
from inkgrove.node.identity import (
    apply_identity_log,
    find_newest_document,
    is_identity_forked,
    read_newest_document,
)
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity, find_remote_identity, is_known
from inkgrove.store.logs import by_log, ingest_batch, prepare_items
from inkgrove.store.node import find_identity, keys_of

# Where the newest document leads


def find_newest_name(connection: Connection, identity: IdentityId, first_key: PublicKey | None = None) -> str | None:
    """Return the name in the newest document that is held of an identity, else the one that it was found under.

    Who lives here has the name that they have here; who contradicts themselves has none. `first_key` is looked up if
    it is not given.
    """
    hosted = find_identity(connection, identity)
    if hosted is not None and hosted.lives_here:
        return hosted.fqdn
    known = find_remote_identity(connection, identity)
    if first_key is None:
        candidates = [item.key for item in (known, hosted) if item is not None] or keys_of(connection, identity)
        first_key = next((key for key in candidates if identity_of(key) == identity), None)
    if first_key is None or (known is None and is_identity_forked(connection, first_key)):
        return None
    newest = find_newest_document(connection, first_key)
    if newest is not None:
        return newest[1].fqdn
    return None if known is None else known.fqdn


# Taken in


def store_log0_entries(connection: Connection, entries: Iterable[HeldEntry]) -> None:
    """Store signed entries of log 0 of one identity's keys; call `apply_identity_log` afterwards."""
    prepared, _ = prepare_items((item.signed, item.payload) for item in entries)
    ingest_batch(connection, by_log(prepared), must_be_next=False)


def take_document(node: Node, proof: DocumentProof) -> IdentityDocument:
    """Verify the entries of a document and store them; returns the document in effect then.

    Raises a `FederationError` if they prove nothing, and nothing is stored.
    """
    log = read_identity_log(proof)
    proved = prove_document(proof, log)
    node.disk.require()

    def work(connection: Connection) -> IdentityDocument:
        store_log0_entries(connection, (*log.entries, *proved.key_entries))
        apply_identity_log(connection, log.author)
        return read_newest_document(connection, log.author)[1]

    return node.database.write(work)


# Answers that say that an identity has moved

MOVED_STATUS: Final = 410
_MOST_MOVED: Final = 1_000
"""How many identities one answer may say to have moved: as many as a delivery may be for."""


def take_moved(node: Node, answer: PeerResponse, asked: Collection[RemoteIdentity]) -> IdentityRelocated:
    """Store the documents in an answer that says that identities have moved; returns the error that names who has.

    `asked`: whom the request was for, as they were found. Raises `UnprovedMove` if a document is not proved, is
    somebody else's, or leads to where the request went: then nobody counts as moved.
    """
    expected = {known.id: known for known in asked}
    proofs = _parse_moved(answer.body)
    if not proofs or not {proof.id for proof in proofs} <= expected.keys():
        raise UnprovedMove("the node says that somebody has moved, and proves it for nobody who was asked for")
    moved = []
    for proof in proofs:
        known = expected[proof.id]
        try:
            document = take_document(node, proof)
        except FederationError as err:
            raise UnprovedMove(f"{known.fqdn} is said to have moved, and that is not proved: {err.message}") from err
        if (document.fqdn, document.endpoint) != (known.fqdn, known.endpoint):
            moved.append(proof.id)
    if not moved:
        raise UnprovedMove("the node says that somebody has moved, and their newest document names this very place")
    return IdentityRelocated("they have moved, and are looked up where their newest documents lead", identities=moved)


def take_moved_name(node: Node, fqdn: str, body: bytes) -> WrongName:
    """Store the document of somebody known who had a name and has moved; returns the error that names the new one.

    Of who is not known under that name nothing is stored. Raises `UnprovedMove`.
    """
    proofs = _parse_moved(body)
    known = node.database.read(lambda connection: find_remote_identity(connection, fqdn))
    if len(proofs) != 1 or (known is not None and known.id != proofs[0].id):
        raise UnprovedMove(f"who was {fqdn} is said to have moved, and not proved to be who was found there")
    try:
        proved = prove_document(proofs[0], read_identity_log(proofs[0]))
        document = proved.document if known is None else take_document(node, proofs[0])
    except FederationError as err:
        raise UnprovedMove(f"who was {fqdn} is said to have moved, and that is not proved: {err.message}") from err
    if document.fqdn == fqdn:
        raise UnprovedMove(f"who was {fqdn} is said to have moved, and their newest document says {fqdn}")
    return WrongName(f"who was {fqdn} calls themselves {document.fqdn} now", fqdn=fqdn, named=document.fqdn)


def _parse_moved(body: bytes) -> list[DocumentProof]:
    try:
        content = json.loads(body)
        items = content["identities"]
        if content["code"] != IdentityMoved.code or type(items) is not list or len(items) > _MOST_MOVED:
            raise UnprovedMove("the node answers that something is gone, and not that somebody has moved")
        return [read_document_proofs(item) for item in items]
    except UnprovedMove:
        raise
    except (InkgroveError, ValueError, TypeError, KeyError, RecursionError) as err:
        raise UnprovedMove("the node says that somebody has moved, and the proof cannot be read") from err


# Notices

DOCUMENTS_PATH: Final = "/federation/documents"
DOCUMENT_FORMAT: Final = "inkgrove document 1"
DOCUMENT_MEDIA_TYPE: Final = "application/vnd.inkgrove.document+cbor"
MAX_NOTICE_BYTES: Final = 3 * 1024 * 1024
"""As much as the document of a name may hold, which is in base64."""
_ENTRY_COST: Final = 1024
"""What an entry counts in the sender's quota beside its bytes: to verify it takes longer than to receive it."""


def encode_document(proof: DocumentProof) -> bytes:
    """Encode the entries that prove a document, as notices carry them."""
    return cbor.encode(
        {
            "form": DOCUMENT_FORMAT,
            "id": bytes(proof.id),
            "log": _write(proof.log),
            "speakers": [_write(log) for log in proof.speakers],
            "keys": _write(proof.keys),
        }
    )


def _write(entries: Sequence[ProofEntry]) -> list[Any]:
    return write_entry_pairs((item.encoded, item.payload) for item in entries)


def decode_document(body: bytes) -> DocumentProof:
    """Decode a notice; raises `parcel.bad-document`. Nothing is verified yet."""
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise _bad(f"the notice is no CBOR of ours: {err.message}") from err
    names = {"form", "id", "log", "speakers", "keys"}
    if type(value) is not dict or value.get("form") != DOCUMENT_FORMAT or value.keys() != names:
        raise _bad(f"the notice is not of the form {DOCUMENT_FORMAT!r}, with id, log, speakers and keys")
    if type(value["id"]) is not bytes or len(value["id"]) != 32:
        raise _bad("the id of an identity has 32 bytes")
    if type(value["speakers"]) is not list or len(value["speakers"]) > MAX_SPEAKERS:
        raise _bad(f"at most {MAX_SPEAKERS} controllers may lead to the document")
    return DocumentProof(
        IdentityId(value["id"]),
        _read(value["log"], MAX_LOG_ENTRIES),
        _read(value["keys"], MAX_ARRAY_ELEMENTS),
        tuple(_read(log, MAX_LOG_ENTRIES) for log in value["speakers"]),
    )


def _read(items: Any, most: int) -> tuple[ProofEntry, ...]:
    if type(items) is not list or len(items) > most:
        raise _bad(f"entries come as a list of at most {most}")
    return tuple(ProofEntry(*read_entry_pair(item, "parcel.bad-document")) for item in items)


def _bad(reason: str) -> ParcelError:
    return ParcelError("parcel.bad-document", reason)


def receive_document(node: Node, body: bytes, charge: Callable[[int], None] = lambda _cost: None) -> None:
    """Take in the document in a notice of another node; of an identity that nobody here knows, nothing is kept.

    `charge` is called with what the check of the entries will cost, counted like bytes, and raises if it is too much.
    Raises `parcel.bad-document`. Whether the identity is known here is not told.
    """
    proof = decode_document(body)
    charge(_ENTRY_COST * proof.entry_count)
    if not node.database.read(lambda connection: is_known(connection, proof.id)):
        return
    try:
        take_document(node, proof)
    except FederationError as err:
        raise _bad(f"the entries do not prove the document: {err.message}") from err
