"""Whether a document proves an identity: a pure check of what another node offers (docs/protocol.md sections 7.1, 7.2).

The id must be the thumbprint of the key that signed log 0, the entries must hold, and the newest document must name the
FQDN that all this was found under.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from inkgrove.core.entry import check_storable, decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import IdentityId, PublicKey, identity_of, verify_signature
from inkgrove.core.log import HeldEntry, verify_log
from inkgrove.core.verify import VerifiedEntry, verify_payload, verify_signed
from inkgrove.federation.errors import FederationError, ForkedIdentity, WrongIdentity, WrongName
from inkgrove.federation.well_known import OfferedEntry, WellKnown, claim_of
from inkgrove.messages.identity import IdentityDocument, KeyOf
from inkgrove.messages.message import Message, decode_message
from inkgrove.node.identity import IDENTITY_LOG


@dataclass(frozen=True, slots=True)
class SignedLog:
    """Entries of somebody's log 0, each signed; whether they hold together is another question."""

    id: IdentityId
    author: PublicKey
    entries: tuple[HeldEntry, ...]


@dataclass(frozen=True, slots=True)
class ProvedIdentity:
    """What a document proves, as far as it goes: this node may hold a newer one."""

    log: SignedLog
    document: IdentityDocument
    document_seq: int
    key_entries: tuple[HeldEntry, ...]
    """Entry 1 of log 0 of each further key that both the document and the key itself speak for."""


def read_log(offered: WellKnown) -> SignedLog:
    """The entries of log 0, signed by the key that the id is the thumbprint of."""
    entries = tuple(_signed(offered.log))
    places = {(item.signed.entry.author, item.signed.entry.log_id) for item in entries}
    if len(places) != 1:
        raise FederationError(
            "federation.unproved-document", "the document comes with entries of no log, or of several"
        )
    ((author, log_id),) = places
    if log_id != IDENTITY_LOG:
        raise FederationError(
            "federation.unproved-document", f"the document comes with entries of log {log_id} instead of log 0"
        )
    if identity_of(author) != offered.id:
        raise WrongIdentity(f"{offered.id} is not the id of the key that signed the document", id=offered.id)
    return SignedLog(offered.id, author, entries)


def prove(offered: WellKnown, log: SignedLog, fqdn: str) -> ProvedIdentity:
    """What the entries prove about the identity at an FQDN; raises if they do not, or if it is not the one there."""
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
    documents = {seq_num: found for seq_num, found in messages.items() if isinstance(found, IdentityDocument)}
    if not documents:
        raise FederationError("federation.unproved-document", "there is no identity document among the entries")
    document_seq = max(documents)
    document = documents[document_seq]
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
    return ProvedIdentity(log, document, document_seq, tuple(_key_entries(offered, log.id, document)))


def _signed(offered: Iterable[OfferedEntry]) -> Iterable[HeldEntry]:
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


def _key_entries(offered: WellKnown, identity: IdentityId, document: IdentityDocument) -> Iterable[HeldEntry]:
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
    """Whether a payload is a key's own word that it belongs to an identity."""
    return payload is not None and _decode(payload) == KeyOf(identity)
