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
    idempotency_seconds: int = field(
        default=86_400, metadata={"about": "How long the answer to a request with an Idempotency-Key is kept."}
    )
    max_body_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"about": "The largest body of a request, blobs excepted."}
    )
    max_blob_bytes: int = field(default=64 * 1024 * 1024, metadata={"about": "The largest blob."})
