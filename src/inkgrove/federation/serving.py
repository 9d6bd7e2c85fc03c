"""What this node says about its own identities: the other side of discovery (docs/protocol.md section 7.1)."""

from inkgrove.core.certificate import certificate_pool
from inkgrove.core.keys import PublicKey
from inkgrove.federation.fetch import parse_url
from inkgrove.federation.well_known import OfferedEntry, WellKnown, claim_of
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identities import show_identity
from inkgrove.node.identity_log import IDENTITY_LOG
from inkgrove.node.node import Node
from inkgrove.node.node_key import node_key
from inkgrove.store.identities import find_identity
from inkgrove.store.reading import StoredEntry


def well_known_of(node: Node, fqdn: str) -> WellKnown:
    """The document of an identity that is hosted here, with what proves it."""
    identity = show_identity(node, fqdn)
    document = identity.document
    if document.endpoint != node.settings.endpoint.format(fqdn=document.fqdn):
        # Signed elsewhere, or under another setting: to vouch for it would lead other people's mail there.
        raise UnknownIdentity(f"{document.fqdn} names another node as its own: {document.endpoint}")
    held = {stored.entry.seq_num: stored for stored in _valid_entries(node, identity.key)}
    pool = certificate_pool(identity.revision, max(held))
    shown = {1, identity.revision}
    log = tuple(_offer(held[seq_num], with_payload=seq_num in shown) for seq_num in pool if seq_num in held)
    keys = (_valid_entries(node, item.key, last=1) for item in document.keys)
    own_key = node_key(node)
    return WellKnown(
        fqdn=document.fqdn,
        id=identity.id,
        endpoint=document.endpoint,
        node_key=own_key.public,
        proof=own_key.sign(claim_of(identity.id, document.fqdn, document.endpoint)),
        log=log,
        keys=tuple(_offer(stored, with_payload=True) for entries in keys for stored in entries),
    )


def serves_authority(node: Node, authority: str) -> bool:
    """Whether requests for this host and port are for this node: the name of an identity, or its endpoint's."""
    host = authority.rpartition(":")[0] if ":" in authority else authority
    if node.database.read(lambda connection: find_identity(connection, host)) is not None:
        return True
    # With {fqdn} in it the endpoint is the identity's own name.
    endpoint = node.settings.endpoint
    return "{fqdn}" not in endpoint and parse_url(endpoint).authority == authority


def _valid_entries(node: Node, key: PublicKey, last: int | None = None) -> list[StoredEntry]:
    entries = node.store.entries_of(key, IDENTITY_LOG, *((1, last) if last is not None else ()))
    return [stored for stored in entries if stored.refusal is None]


def _offer(stored: StoredEntry, *, with_payload: bool) -> OfferedEntry:
    return OfferedEntry(stored.entry.encoded, stored.payload if with_payload else None)
