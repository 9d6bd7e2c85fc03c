"""The document at `https://<fqdn>/.well-known/inkgrove`: which identity lives there, proved, and how to reach it.

docs/protocol.md sections 7.1 and 7.2. It carries what proves the identity's document to a node that knows nothing yet:
the certificate pool of the newest document in log 0 of the first key, with the payloads of the first entry and of the
document; for each controller that speaks, entry 1 of its log 0 and the pool of its document; and entry 1 of log 0 of
each further key. `well_known_of` makes it, `parse_well_known` reads it, `prove_identity` checks it: the id must be the
thumbprint of the key that signed log 0, the entries must hold, and the document in effect must name the FQDN that all
this was found under.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from inkgrove.core import (
    SIGNATURE_BYTES,
    Hash,
    HeldEntry,
    IdentityId,
    PublicKey,
    VerifiedEntry,
    certificate_pool,
    check_storable,
    decode_entry,
    hash_entry,
    identity_of,
    parse_public_key,
    verify_log,
    verify_payload,
    verify_signature,
    verify_signed,
)
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS
from inkgrove.federation.errors import BadAnswer, FederationError, ForkedIdentity, WrongIdentity, WrongName
from inkgrove.federation.peers.transport import parse_url
from inkgrove.messages import (
    IdentityDocument,
    IdentityLogInMemory,
    KeyOf,
    Message,
    SignedDocument,
    decide_control,
    decode_message,
    read_endpoint,
    read_host,
)
from inkgrove.node.errors import IdentityMoved, UnknownIdentity
from inkgrove.node.identity import (
    IDENTITY_LOG,
    find_control,
    find_first_key,
    find_owner,
    parse_fqdn,
    read_control,
    show_identity,
)
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.db import Connection
from inkgrove.store.logs import find_entry, find_log, read_entries, read_entry_bytes
from inkgrove.store.node import find_identity, keys_of

WELL_KNOWN_PATH: Final = "/.well-known/inkgrove"
WELL_KNOWN_NODE_PATH: Final = "/.well-known/inkgrove-node"
"""Which node answers at a name, whether somebody lives there or not."""
WELL_KNOWN_FORMAT: Final = 2
_FORMATS: Final = (1, WELL_KNOWN_FORMAT)
"""The formats that are read: in format 1 nobody but the first key speaks."""
_CLAIM_FORMAT: Final = 1
"""The format of what nodes sign about names, and of the document of a host."""
MAX_SPEAKERS: Final = 16
"""How many controllers may lead to the document, one after the other."""
MAX_WELL_KNOWN_BYTES: Final = 4 * 1024 * 1024
"""Two payloads of the largest size, in base64, with room for the entries."""

_LOOKED_THROUGH: Final = 32
"""How many entries of log 0, from the first on, are looked through for the one that first named a controller."""
_LARGE_BYTES: Final = 64 * 1024
MAX_LOG_ENTRIES: Final = 256
"""Above any certificate pool: a path in a log of 2^63 entries has less than 130."""


@dataclass(frozen=True, slots=True)
class ProofEntry:
    """An entry as another node sends it, with its payload or without."""

    encoded: bytes
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class DocumentProof:
    """The entries that prove the document of an identity, wherever it is served."""

    id: IdentityId
    log: tuple[ProofEntry, ...]
    """Of log 0 of the first key: the newest document and what proves it."""
    keys: tuple[ProofEntry, ...] = ()
    """Entry 1 of log 0 of each further key."""
    speakers: tuple[tuple[ProofEntry, ...], ...] = ()
    """Of log 0 of each controller that leads to the document: entry 1, its document and what proves it."""

    @property
    def entry_count(self) -> int:
        """How many entries have to be verified."""
        return len(self.log) + len(self.keys) + sum(map(len, self.speakers))


@dataclass(frozen=True, slots=True)
class WellKnown:
    """The document of an identity, as the node that serves it makes it."""

    fqdn: str
    id: IdentityId
    endpoint: str
    node_key: PublicKey
    proof: bytes
    """The node's signature of `claim_of`: that it serves this identity, there."""
    log: tuple[ProofEntry, ...]
    """As in `DocumentProof`."""
    keys: tuple[ProofEntry, ...] = ()
    speakers: tuple[tuple[ProofEntry, ...], ...] = ()

    @property
    def document(self) -> DocumentProof:
        """What proves the document, without who serves it."""
        return DocumentProof(self.id, self.log, self.keys, self.speakers)


def claim_of(identity: IdentityId, fqdn: str, endpoint: str) -> bytes:
    """The bytes that a node signs to claim that it serves an identity: nobody else can name its key as their node's."""
    return f"inkgrove node {_CLAIM_FORMAT}\n{identity.hex()}\n{fqdn}\n{endpoint}\n".encode()


def host_claim_of(fqdn: str, endpoint: str) -> bytes:
    """The bytes that a node signs to claim that it answers at a name, whoever lives there."""
    return f"inkgrove host {_CLAIM_FORMAT}\n{fqdn}\n{endpoint}\n".encode()


def leads_to(body: bytes, fqdn: str, endpoint: str, node_key: PublicKey) -> bool:
    """Whether the document at `WELL_KNOWN_NODE_PATH` of a name is the one of a node, by its key and endpoint."""
    return find_node_key(body, fqdn, endpoint) == node_key


def find_node_key(body: bytes, fqdn: str, endpoint: str) -> PublicKey | None:
    """Find the key of the node that answers at a name, in the document at `WELL_KNOWN_NODE_PATH`.

    None unless that key has signed the name and the endpoint.
    """
    try:
        content = json.loads(body, object_pairs_hook=_map_without_doubles)
        node = content["node"]
        node_key = parse_public_key(node["key"])
        verify_signature(node_key, host_claim_of(fqdn, endpoint), _parse_hex(node["proof"], SIGNATURE_BYTES))
        claimed = (content["inkgrove"], content["fqdn"], node["endpoint"])
    except (InkgroveError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return node_key if claimed == (_CLAIM_FORMAT, fqdn, endpoint) else None


def render_well_known(document: WellKnown) -> dict[str, Any]:
    """Render the document as JSON."""
    return {
        "inkgrove": WELL_KNOWN_FORMAT,
        "fqdn": document.fqdn,
        "id": document.id.hex(),
        "node": {"endpoint": document.endpoint, "key": document.node_key.hex(), "proof": document.proof.hex()},
        **_render_proofs(document.document),
    }


def render_document_proof(proof: DocumentProof) -> dict[str, Any]:
    """Render what proves a document as JSON, in the form of the well-known document without the node."""
    return {"inkgrove": WELL_KNOWN_FORMAT, "id": proof.id.hex(), **_render_proofs(proof)}


def _render_proofs(proof: DocumentProof) -> dict[str, Any]:
    return {
        "log": [_render_entry(item) for item in proof.log],
        "speakers": [[_render_entry(item) for item in log] for log in proof.speakers],
        "keys": [_render_entry(item) for item in proof.keys],
    }


def read_document_proofs(content: Any) -> DocumentProof:
    """Read what proves a document from parsed JSON; raises `BadAnswer`, ValueError, TypeError or KeyError."""
    if type(content) is not dict:
        raise BadAnswer("what proves a document is a map")
    speakers = content["speakers"] if content.get("inkgrove") != 1 else []
    if type(speakers) is not list or len(speakers) > MAX_SPEAKERS:
        raise BadAnswer(f"at most {MAX_SPEAKERS} controllers may lead to the document")
    return DocumentProof(
        id=IdentityId(_parse_hex(content["id"], 32)),
        log=_parse_entries(content["log"], MAX_LOG_ENTRIES),
        keys=_parse_entries(content["keys"], MAX_ARRAY_ELEMENTS),
        speakers=tuple(_parse_entries(log, MAX_LOG_ENTRIES) for log in speakers),
    )


def parse_well_known(body: bytes) -> WellKnown:
    """Parse the document from an answer; raises `BadAnswer`. Unknown keys are ignored: later formats may have more."""
    try:
        return _read_well_known(json.loads(body, object_pairs_hook=_map_without_doubles))
    except BadAnswer:
        raise
    except (InkgroveError, ValueError, TypeError, KeyError, RecursionError) as err:
        reason = err.message if isinstance(err, InkgroveError) else repr(err)
        raise BadAnswer(f"the document of the node cannot be read: {reason:.200}") from err


def _read_well_known(content: Any) -> WellKnown:
    if content["inkgrove"] not in _FORMATS:
        raise BadAnswer(f"a document of format {str(content['inkgrove'])[:20]!r}; {WELL_KNOWN_FORMAT} is known")
    proof = read_document_proofs(content)
    return WellKnown(
        fqdn=read_host(content["fqdn"], "fqdn"),
        id=proof.id,
        endpoint=read_endpoint(content["node"]["endpoint"], "endpoint"),
        node_key=parse_public_key(content["node"]["key"]),
        proof=_parse_hex(content["node"]["proof"], SIGNATURE_BYTES),
        log=proof.log,
        keys=proof.keys,
        speakers=proof.speakers,
    )


def _render_entry(item: ProofEntry) -> dict[str, str]:
    rendered = {"entry": b64encode(item.encoded).decode()}
    if item.payload is not None:
        rendered["payload"] = b64encode(item.payload).decode()
    return rendered


def _parse_entries(items: Any, most: int) -> tuple[ProofEntry, ...]:
    if type(items) is not list or len(items) > most:
        raise BadAnswer(f"entries come as a list of at most {most}")
    return tuple(
        ProofEntry(
            b64decode(item["entry"], validate=True),
            b64decode(item["payload"], validate=True) if "payload" in item else None,
        )
        for item in items
    )


def _parse_hex(text: Any, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size:
        raise ValueError(f"{size} bytes are written as {2 * size} hex characters")
    return value


def _map_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("one key stands twice in a map")
    return found


# The documents of this node


def host_document(node: Node, host: str) -> dict[str, Any]:
    """Make the document that says which node answers at a name; it shows that the name leads to this node."""
    fqdn = parse_fqdn(host)
    own_key, endpoint = load_node_key(node), node.settings.endpoint.format(fqdn=fqdn)
    proof = own_key.sign(host_claim_of(fqdn, endpoint))
    return {
        "inkgrove": _CLAIM_FORMAT,
        "fqdn": fqdn,
        "node": {"endpoint": endpoint, "key": own_key.public.hex(), "proof": proof.hex()},
    }


def well_known_of(node: Node, fqdn: str) -> WellKnown:
    """Make the document of an identity that is hosted here, with what proves it; raises `UnknownIdentity`.

    However long its log 0 is, only the entries that prove the document are read, and two payloads.
    """
    identity = show_identity(node, fqdn)
    document = identity.document
    if document.fqdn != fqdn.lower().rstrip("."):
        # Its newest document came from elsewhere: this node does not vouch for a name that it has not given.
        raise UnknownIdentity(f"{fqdn[:253]} calls itself {document.fqdn} now, which it has not taken on this node")
    if document.endpoint != node.settings.endpoint.format(fqdn=document.fqdn):
        # Signed elsewhere, or under another setting: to vouch for it would lead other people's mail there.
        raise UnknownIdentity(f"{document.fqdn} names another node as its own: {document.endpoint}")
    proof = node.database.read(lambda connection: read_document_proof(connection, identity.key))
    own_key = load_node_key(node)
    return WellKnown(
        fqdn=document.fqdn,
        id=identity.id,
        endpoint=document.endpoint,
        node_key=own_key.public,
        proof=own_key.sign(claim_of(identity.id, document.fqdn, document.endpoint)),
        log=proof.log,
        keys=proof.keys,
        speakers=proof.speakers,
    )


def refuse_moved(node: Node, fqdn: str) -> None:
    """Raise `IdentityMoved`, with the entries that prove it, if who was hosted under a name lives elsewhere now."""

    def read(connection: Connection) -> DocumentProof | None:
        hosted = find_identity(connection, fqdn.lower().rstrip("."))
        return None if hosted is None or hosted.lives_here else read_document_proof(connection, hosted.key)

    proof = node.database.read(read)
    if proof is not None:
        text = f"who was {fqdn[:253]} has moved to the node that the newest document names"
        raise IdentityMoved(text, identities=[render_document_proof(proof)])


def serves_authority(node: Node, authority: str) -> bool:
    """Whether requests for this host and port are for this node: the name of an identity, or its endpoint's."""
    host = authority.rpartition(":")[0] if ":" in authority else authority
    if node.database.read(lambda connection: find_identity(connection, host)) is not None:
        return True
    # With {fqdn} in it the endpoint is the identity's own name.
    endpoint = node.settings.endpoint
    return "{fqdn}" not in endpoint and parse_url(endpoint).authority == authority


Log0Proof = tuple[ProofEntry, ...]


def read_document_proof(connection: Connection, first_key: PublicKey) -> DocumentProof:
    """Read the entries that prove the document in effect of an identity; raises `UnknownIdentity` if there is none."""
    control = read_control(connection, first_key)
    root, *steps = control.path
    log = _proof(connection, root, _first_to_name_controller(connection, root))
    identity = identity_of(first_key)
    keys = _keys(connection, identity, first_key, control.document)
    return DocumentProof(identity, log, keys, tuple(_proof(connection, step) for step in steps))


def _first_to_name_controller(connection: Connection, root: SignedDocument) -> SignedDocument | None:
    """The document of a first key that first named a controller: who has seen another branch tolerates that by it.

    None if entry 1 does, which is shown anyway, or if it stands far from the beginning, or is large.
    """
    if root.document.controller is None:
        return None
    for item in read_entries(connection, root.author, IDENTITY_LOG, 1, min(_LOOKED_THROUGH, root.seq_num - 1)):
        message = _decode(item.payload) if item.payload is not None and item.refusal is None else None
        if isinstance(message, IdentityDocument) and message.under is None and message.controller is not None:
            seq_num = item.entry.seq_num
            is_left_out = seq_num == 1 or len(item.payload or b"") > _LARGE_BYTES
            return None if is_left_out else SignedDocument(root.author, seq_num, item.hash, message)
    return None


def list_key_proofs(connection: Connection, keys: Collection[PublicKey]) -> list[ProofEntry]:
    """List what proves that keys are of one identity: its documents that count, and the claims of these keys.

    Empty if they are not, as far as this node knows.
    """
    owners = {find_owner(connection, key) for key in keys}
    owner = owners.pop() if len(owners) == 1 else None
    first_key = find_first_key(connection, owner) if owner is not None else None
    control = None if first_key is None else find_control(connection, first_key)
    if control is None or first_key is None:
        return []
    found = [item for step in control.path for item in _proof(connection, step)]
    for key in sorted(set(keys) - {first_key}):
        firsts = read_entries(connection, key, IDENTITY_LOG, 1, 1)
        found += [ProofEntry(stored.entry.encoded, stored.payload) for stored in firsts]
    return found


def _proof(connection: Connection, step: SignedDocument, other: SignedDocument | None = None) -> Log0Proof:
    """The certificate pools of a document and of another; they and the first entry come with their payloads."""
    log = find_log(connection, step.author, IDENTITY_LOG)
    if log is None:
        return ()
    if log.standing.forked_at is None:
        encoded = read_entry_bytes(connection, log.id, certificate_pool(step.seq_num, log.height))
    else:
        encoded = _branch_below(connection, step)
    shown = {1, step.seq_num}
    if other is not None:
        encoded |= _branch_below(connection, other)
        shown.add(other.seq_num)
    payloads = {number: _payload(connection, hash_entry(decode_entry(encoded[number]))) for number in shown}
    return tuple(ProofEntry(entry, payloads.get(number)) for number, entry in sorted(encoded.items()))


def _branch_below(connection: Connection, step: SignedDocument) -> dict[int, bytes]:
    """The entries that lead from a document to entry 1, in its branch of a forked log."""
    found: dict[int, bytes] = {}
    waiting = [step.hash]
    while waiting:
        stored = find_entry(connection, waiting.pop())
        if stored is None or stored.entry.seq_num in found:
            continue
        found[stored.entry.seq_num] = stored.entry.encoded
        if stored.entry.seq_num == 1:
            break
        # The lipmaa link is followed before the backlink.
        waiting += [link for link in (stored.entry.backlink, stored.entry.lipmaa_link) if link is not None]
    return found


def _payload(connection: Connection, entry_hash: Hash) -> bytes | None:
    stored = find_entry(connection, entry_hash)
    return None if stored is None else stored.payload


def _keys(
    connection: Connection, identity: IdentityId, first_key: PublicKey, document: IdentityDocument
) -> tuple[ProofEntry, ...]:
    """Entry 1 of log 0 of each further key that names its identity; other keys of the document are left out."""
    counted = set(keys_of(connection, identity))
    listed = [item.key for item in document.keys if item.key in counted and item.key != first_key]
    found = (read_entries(connection, key, IDENTITY_LOG, 1, 1) for key in listed)
    return tuple(ProofEntry(stored.entry.encoded, stored.payload) for entries in found for stored in entries)


# The documents of other nodes, checked without I/O


@dataclass(frozen=True, slots=True)
class SignedLog:
    """Entries of somebody's log 0, each signed; their links are not checked yet."""

    id: IdentityId
    author: PublicKey
    entries: tuple[HeldEntry, ...]


@dataclass(frozen=True, slots=True)
class ProvedIdentity:
    """An identity that a document proves; this node may hold a newer document."""

    log: SignedLog
    document: IdentityDocument
    document_seq: int
    """The sequence number of the first key's newest document, which is or led to the one in effect."""
    key_entries: tuple[HeldEntry, ...]
    """Log 0 of the controllers that speak, and entry 1 of that of each further key which names the identity itself."""


def read_identity_log(offered: DocumentProof) -> SignedLog:
    """Return the entries of log 0; raises a `FederationError` unless the key of the id has signed all of them."""
    entries = tuple(_signed(offered.log))
    logs = {(item.signed.entry.author, item.signed.entry.log_id) for item in entries}
    if len(logs) != 1:
        raise FederationError(
            "federation.unproved-document", "the document comes with entries of no log, or of several"
        )
    ((author, log_id),) = logs
    if log_id != IDENTITY_LOG:
        raise FederationError(
            "federation.unproved-document", f"the document comes with entries of log {log_id} instead of log 0"
        )
    if identity_of(author) != offered.id:
        raise WrongIdentity(f"{offered.id} is not the id of the key that signed the document", id=offered.id)
    return SignedLog(offered.id, author, entries)


def prove_document(offered: DocumentProof, log: SignedLog) -> ProvedIdentity:
    """Return what the entries prove about an identity, wherever they came from; raises a `FederationError`."""
    report = verify_log(log.entries, partial=True)
    if report.invalid_from is not None:
        raise ForkedIdentity(f"log 0 of {log.id} contradicts itself at entry {report.invalid_from}", id=log.id)
    for verdict in report.verdicts:
        if not isinstance(verdict, VerifiedEntry):
            raise FederationError(
                "federation.unproved-document", f"an entry of log 0 does not hold: {verdict.message}"
            ) from verdict
    messages = {item.signed.entry.seq_num: _decode(item.payload) for item in log.entries if item.payload is not None}
    if 1 not in messages or isinstance(messages[1], KeyOf):
        # A key whose log 0 begins so belongs to another identity, and is the first one of none.
        raise FederationError(
            "federation.unproved-document", "log 0 does not show that it begins as the log of a first key"
        )
    speakers = _read_speakers(offered)
    logs = {log.author: IdentityLogInMemory(log.entries)} | {
        entries[0].signed.entry.author: IdentityLogInMemory(entries) for entries in speakers
    }
    nothing = IdentityLogInMemory(())
    control = decide_control(log.author, lambda author: logs.get(author, nothing))
    if control is None:
        raise FederationError("federation.unproved-document", "there is no identity document among the entries")
    if [step.author for step in control.path] != [
        log.author,
        *(entries[0].signed.entry.author for entries in speakers),
    ]:
        raise FederationError(
            "federation.unproved-document", "an entry is offered of a key that does not lead to the document"
        )
    spoken = tuple(item for entries in speakers for item in entries)
    key_entries = (*spoken, *_key_entries(offered, log.id, control.document))
    return ProvedIdentity(log, control.document, control.path[0].seq_num, key_entries)


def prove_identity(offered: WellKnown, log: SignedLog, fqdn: str) -> ProvedIdentity:
    """Return what the entries prove about the identity at an FQDN; raises a `FederationError` if they do not."""
    proved = prove_document(offered.document, log)
    document = proved.document
    if fqdn not in {offered.fqdn} & {document.fqdn}:
        raise WrongName(f"the identity at {fqdn} calls itself {document.fqdn}", fqdn=fqdn, named=document.fqdn)
    if document.endpoint != offered.endpoint:
        raise FederationError(
            "federation.wrong-endpoint", f"the node at {fqdn} is not the one that its identity names", fqdn=fqdn
        )
    try:
        verify_signature(offered.node_key, claim_of(log.id, fqdn, document.endpoint), offered.proof)
    except InkgroveError as err:
        # What is due to several identities of a node goes there in one request: nobody may pose as living there.
        raise FederationError(
            "federation.unproved-node", f"the key that {fqdn} names has not signed that its node serves the identity"
        ) from err
    return proved


def _read_speakers(offered: DocumentProof) -> list[tuple[HeldEntry, ...]]:
    """Return log 0 of each controller that is offered, verified; raises a `FederationError`."""
    speakers = [tuple(_signed(entries)) for entries in offered.speakers]
    for entries in speakers:
        logs = {(item.signed.entry.author, item.signed.entry.log_id) for item in entries}
        if len(logs) != 1 or next(iter(logs))[1] != IDENTITY_LOG:
            raise FederationError(
                "federation.unproved-document", "a controller speaks in log 0 of its key, and in no other log"
            )
        for verdict in verify_log(entries, partial=True).verdicts:
            if not isinstance(verdict, VerifiedEntry):
                raise FederationError(
                    "federation.unproved-document", f"an entry of a controller does not hold: {verdict.message}"
                ) from verdict
    return speakers


def _signed(offered: Iterable[ProofEntry]) -> Iterable[HeldEntry]:
    try:
        for item in offered:
            entry = decode_entry(item.encoded)
            check_storable(entry)
            yield HeldEntry(verify_signed(entry), item.payload)
    except InkgroveError as err:
        raise FederationError(
            "federation.unproved-document", f"an entry of the document does not hold: {err.message}"
        ) from err


def _decode(payload: bytes) -> Message | None:
    try:
        return decode_message(payload)
    except InkgroveError:
        return None


def _key_entries(offered: DocumentProof, identity: IdentityId, document: IdentityDocument) -> Iterable[HeldEntry]:
    listed = {item.key for item in document.keys}
    for item in _signed(offered.keys):
        entry = item.signed.entry
        is_first = entry.author in listed and (entry.log_id, entry.seq_num) == (IDENTITY_LOG, 1)
        if not is_first or item.payload is None:
            raise FederationError(
                "federation.unproved-document", "an entry is offered for a key that the document does not list"
            )
        try:
            verify_payload(entry, item.payload)
        except InkgroveError as err:
            raise FederationError(
                "federation.unproved-document", f"an entry of a further key does not hold: {err.message}"
            ) from err
        if is_key_of(item.payload, identity):
            yield item


def is_key_of(payload: bytes | None, identity: IdentityId) -> bool:
    """Whether a payload is the message of a key that it belongs to an identity."""
    return payload is not None and _decode(payload) == KeyOf(identity)
