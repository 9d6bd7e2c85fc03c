"""Other nodes: finding them, proving who they are, sending them requests, admitting theirs (docs/protocol.md 7.1, 8.9).

`well_known` is the document that proves an identity, `discovery` finds and remembers identities, `transport` carries
requests within limits, `signed_requests` signs and checks them, `senders` authenticates those that arrive, and `limits`
bounds what others may send or make this node do. Names and bytes come in; proved identities and answers go out.
"""

from inkgrove.federation.peers.discovery import Discovery
from inkgrove.federation.peers.limits import LookupQuota, Quotas, SenderQuotas, run_rounds
from inkgrove.federation.peers.senders import LogOwner, RequestAuthenticator, choose_sender_name, received_request
from inkgrove.federation.peers.signed_requests import (
    COMPONENTS,
    StrictEd25519,
    check_signature,
    check_times,
    make_signed_request,
    read_signature,
    sign_request,
)
from inkgrove.federation.peers.transport import (
    Address,
    HttpTransport,
    PeerRequest,
    PeerResponse,
    Target,
    Transport,
    find_target,
    is_allowed,
    parse_resolve,
    parse_url,
    run_with_transport,
)
from inkgrove.federation.peers.well_known import (
    MAX_WELL_KNOWN_BYTES,
    WELL_KNOWN_FORMAT,
    WELL_KNOWN_NODE_PATH,
    WELL_KNOWN_PATH,
    ProofEntry,
    WellKnown,
    claim_of,
    host_document,
    parse_well_known,
    render_well_known,
    serves_authority,
    well_known_of,
)

__all__ = [
    "COMPONENTS",
    "MAX_WELL_KNOWN_BYTES",
    "WELL_KNOWN_FORMAT",
    "WELL_KNOWN_NODE_PATH",
    "WELL_KNOWN_PATH",
    "Address",
    "Discovery",
    "HttpTransport",
    "LogOwner",
    "LookupQuota",
    "PeerRequest",
    "PeerResponse",
    "ProofEntry",
    "Quotas",
    "RequestAuthenticator",
    "SenderQuotas",
    "StrictEd25519",
    "Target",
    "Transport",
    "WellKnown",
    "check_signature",
    "check_times",
    "choose_sender_name",
    "claim_of",
    "find_target",
    "host_document",
    "is_allowed",
    "make_signed_request",
    "parse_resolve",
    "parse_url",
    "parse_well_known",
    "read_signature",
    "received_request",
    "render_well_known",
    "run_rounds",
    "run_with_transport",
    "serves_authority",
    "sign_request",
    "well_known_of",
]
