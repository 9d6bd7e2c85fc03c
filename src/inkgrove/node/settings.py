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
    sign_ins_per_name: int = field(
        default=10,
        metadata={
            "about": "Failed sign-ins that a name takes per window, from each address it knows and from all others."
        },
    )
    sign_ins_per_address: int = field(
        default=50, metadata={"about": "Failed sign-ins that an address has per window, whatever the names."}
    )
    sign_in_window_seconds: int = field(
        default=300, metadata={"about": "How long a failed sign-in is held against one."}
    )
    clients_per_address: int = field(default=20, metadata={"about": "Services that an address may register per hour."})
    schema_names: tuple[str, ...] = field(
        default=(),
        metadata={"about": "Names of schemas that this node answers for, each written `FQDN=AUTHOR/LOG`."},
    )
    max_body_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"about": "The largest body of a request, blobs excepted."}
    )
    max_blob_bytes: int = field(default=64 * 1024 * 1024, metadata={"about": "The largest blob."})
