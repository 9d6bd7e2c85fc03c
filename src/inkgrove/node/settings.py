"""The settings of a node, each with its default and a sentence on what it does."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How a node behaves; `inkgrove.settings` reads them."""

    host: str = field(default="127.0.0.1", metadata={"about": "The address that the node listens on."})
    port: int = field(default=8750, metadata={"about": "The port that the node listens on."})
    endpoint: str = field(
        default="https://{fqdn}",
        metadata={"about": "Where an identity's node is reached, as its document says; `{fqdn}` stands for its name."},
    )
    administrators: tuple[str, ...] = field(
        default=(), metadata={"about": "Names of the identities that administer this node."}
    )
    registration: Literal["closed", "open"] = field(
        default="closed", metadata={"about": "Whether anybody may create an identity here, or only the administrator."}
    )
    vault_key_file: str = field(
        default="",
        metadata={"about": "File with the passphrase that the kept keys are encrypted with; empty: HOME/vault.key."},
    )
    session_seconds: int = field(default=86_400, metadata={"about": "How long a sign-in lasts."})
    access_token_seconds: int = field(default=900, metadata={"about": "How long an access token of a service lasts."})
    refresh_token_seconds: int = field(default=2_592_000, metadata={"about": "How long a refresh token lasts unused."})
    max_body_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"about": "The largest body of a request, blobs excepted."}
    )
    max_blob_bytes: int = field(default=64 * 1024 * 1024, metadata={"about": "The largest blob."})
    give_up_seconds: int = field(
        default=7 * 86_400, metadata={"about": "How long deliveries to a node that does not answer are tried."}
    )
    resolve: tuple[str, ...] = field(
        default=(),
        metadata={
            "about": "For development: ports of this machine that stand for names of other nodes, without encryption, "
            "such as `jane.haiku.ink=127.0.0.1:8751` or `*.haiku.ink=127.0.0.1:8751`."
        },
    )
    allow_private_addresses: bool = field(
        default=False,
        metadata={"about": "Whether names of other nodes may lead to this machine or to a private network."},
    )
    peer_timeout_seconds: float = field(
        default=20.0, metadata={"about": "How long a request to another node may take, from the name to the last byte."}
    )
    max_answer_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"about": "The largest answer of another node that is read."}
    )
    discovery_seconds: int = field(
        default=3600, metadata={"about": "How long it is believed what was found out about an identity elsewhere."}
    )
