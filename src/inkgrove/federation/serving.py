"""What this node says about its own identities: the other side of discovery (docs/protocol.md section 7.1)."""

from typing import Any

from sqlalchemy import Connection

from inkgrove.core.keys import PublicKey
from inkgrove.core.links import certificate_pool
from inkgrove.federation.fetch import parse_url
from inkgrove.federation.well_known import FORMAT, OfferedEntry, WellKnown, claim_of, host_claim_of
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import IDENTITY_LOG, IdentityRecord, parse_fqdn, show_identity
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.logs.entries import find_log, read_entries, read_entry_bytes
from inkgrove.store.node.identities import find_identity, keys_of


def host_document(node: Node, host: str) -> dict[str, Any]:
    """Which node answers at a name: whoever wants the name here is shown to have led it to this node by that."""
    fqdn = parse_fqdn(host)
    own_key, endpoint = load_node_key(node), node.settings.endpoint.format(fqdn=fqdn)
    proof = own_key.sign(host_claim_of(fqdn, endpoint))
    return {
        "inkgrove": FORMAT,
        "fqdn": fqdn,
        "node": {"endpoint": endpoint, "key": own_key.public.hex(), "proof": proof.hex()},
    }


def well_known_of(node: Node, fqdn: str) -> WellKnown:
    """The document of an identity that is hosted here, with what proves it.

    However long its log 0 is, only the entries that prove the document are read, and two payloads.
    """
    identity = show_identity(node, fqdn)
    document = identity.document
    if document.fqdn != fqdn.lower().rstrip("."):
        # Its newest document came from elsewhere: this node does not stand by a name that it has not given.
        raise UnknownIdentity(f"{fqdn[:253]} calls itself {document.fqdn} now, which it has not taken on this node")
    if document.endpoint != node.settings.endpoint.format(fqdn=document.fqdn):
        # Signed elsewhere, or under another setting: to vouch for it would lead other people's mail there.
        raise UnknownIdentity(f"{document.fqdn} names another node as its own: {document.endpoint}")
    log, keys = node.database.read(lambda connection: (_proof(connection, identity), _keys(connection, identity)))
    own_key = load_node_key(node)
    return WellKnown(
        fqdn=document.fqdn,
        id=identity.id,
        endpoint=document.endpoint,
        node_key=own_key.public,
        proof=own_key.sign(claim_of(identity.id, document.fqdn, document.endpoint)),
        log=log,
        keys=keys,
    )


def serves_authority(node: Node, authority: str) -> bool:
    """Whether requests for this host and port are for this node: the name of an identity, or its endpoint's."""
    host = authority.rpartition(":")[0] if ":" in authority else authority
    if node.database.read(lambda connection: find_identity(connection, host)) is not None:
        return True
    # With {fqdn} in it the endpoint is the identity's own name.
    endpoint = node.settings.endpoint
    return "{fqdn}" not in endpoint and parse_url(endpoint).authority == authority


def _proof(connection: Connection, identity: IdentityRecord) -> tuple[OfferedEntry, ...]:
    """The certificate pool of the newest document; the document and the first entry come with their payloads."""
    log = find_log(connection, identity.key, IDENTITY_LOG)
    if log is None:
        return ()
    encoded = read_entry_bytes(connection, log.id, certificate_pool(identity.revision, log.height))
    payloads = {number: _payload(connection, identity.key, number) for number in {1, identity.revision}}
    return tuple(OfferedEntry(entry, payloads.get(number)) for number, entry in sorted(encoded.items()))


def _payload(connection: Connection, author: PublicKey, seq_num: int) -> bytes | None:
    found = read_entries(connection, author, IDENTITY_LOG, seq_num, seq_num)
    return next((stored.payload for stored in found if stored.refusal is None), None)


def _keys(connection: Connection, identity: IdentityRecord) -> tuple[OfferedEntry, ...]:
    """Entry 1 of each further key that says itself whose it is; what else a document may list is not shown."""
    counted = set(keys_of(connection, identity.id))
    found = (
        read_entries(connection, item.key, IDENTITY_LOG, 1, 1) for item in identity.document.keys if item.key in counted
    )
    return tuple(
        OfferedEntry(stored.entry.encoded, stored.payload)
        for entries in found
        for stored in entries
        if stored.refusal is None
    )
