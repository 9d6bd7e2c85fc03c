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
    trusted_proxies: tuple[str, ...] = field(
        default=(),
        metadata={
            "about": "Addresses and networks of proxies that are believed when they say whom they speak for "
            "(X-Forwarded-For, X-Forwarded-Proto), such as `127.0.0.1`; of all others these headers are ignored."
        },
    )
    domains: tuple[str, ...] = field(
        default=(),
        metadata={"about": "Domains of this node: people take names of one more label, such as jane.haiku.ink."},
    )
    left_name_seconds: int = field(
        default=90 * 86_400,
        metadata={"about": "How long a name that somebody has left is kept for them, and given to nobody else."},
    )
    administrators: tuple[str, ...] = field(
        default=(),
        metadata={
            "about": "Names of the identities that administer this node; the rights are bound to whoever has such a "
            "name when the node starts, and only the operator's command gives one that is free."
        },
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
    access_record_seconds: int = field(
        default=365 * 86_400, metadata={"about": "How long an identity can see what a service did for it."}
    )
    idempotency_seconds: int = field(
        default=86_400, metadata={"about": "How long the answer to a request with an Idempotency-Key is kept."}
    )
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
    registrations_per_address: int = field(
        default=50, metadata={"about": "Identities that an address may create per hour, where anybody may."}
    )
    identity_entries: int = field(
        default=1_000_000,
        metadata={"about": "Entries that a hosted identity may publish, unless it has its own quota."},
    )
    identity_payload_bytes: int = field(
        default=1024 * 1024 * 1024,
        metadata={"about": "Bytes of messages that a hosted identity may publish, unless it has its own quota."},
    )
    identity_blob_bytes: int = field(
        default=5 * 1024 * 1024 * 1024,
        metadata={"about": "Bytes of blobs that a hosted identity may keep here, unless it has its own quota."},
    )
    disk_reserve_bytes: int = field(
        default=512 * 1024 * 1024,
        metadata={
            "about": "Free disk space below which only sign-in, deletes and small deliveries go on; 0 is no reserve."
        },
    )
    fork_proofs_per_address: int = field(
        default=100, metadata={"about": "Proofs of forks that are looked at per hour from an address."}
    )
    schema_names: tuple[str, ...] = field(
        default=(),
        metadata={"about": "Names of schemas that this node answers for, each written `FQDN=AUTHOR/LOG`."},
    )
    max_body_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"about": "The largest body of a request, blobs excepted."}
    )
    max_page_bytes: int = field(
        default=4 * 1024 * 1024,
        metadata={"about": "How much a page of rows holds, about: it ends there, however many rows were asked for."},
    )
    stranger_query_seconds: float = field(
        default=0.15,
        metadata={
            "about": "Seconds of processor that a question to a view may take without a token; 0 is no limit. "
            "PostgreSQL gets ten times as long on the clock for each statement."
        },
    )
    query_seconds: float = field(
        default=5.0, metadata={"about": "Seconds of processor that a question to a view may take with a token."}
    )
    max_past_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata={
            "about": "How long the past of an instance may be, about, for its history, an earlier state or a proof."
        },
    )
    max_blob_bytes: int = field(default=64 * 1024 * 1024, metadata={"about": "The largest blob."})
    give_up_seconds: int = field(
        default=7 * 86_400, metadata={"about": "How long deliveries to a node that does not answer are tried."}
    )
    new_follower_posts: int = field(
        default=100,
        metadata={"about": "How many of the newest earlier instances for followers a new follower elsewhere is sent."},
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
    peer_bytes_per_minute: int = field(
        default=64 * 1024 * 1024, metadata={"about": "How much another node may deliver to this one in a minute."}
    )
    stranger_bytes_per_minute: int = field(
        default=4 * 1024 * 1024,
        metadata={"about": "How much is fetched in a minute to find out who strangers are; of one domain a sixteenth."},
    )
    peer_answer_bytes_per_minute: int = field(
        default=1024 * 1024 * 1024, metadata={"about": "How much another node may fetch from this one in a minute."}
    )
    replication_seconds: int = field(
        default=300, metadata={"about": "How often a running node syncs with its peers; 0 is never."}
    )
    peer_sync_seconds: int = field(
        default=3600,
        metadata={"about": "How long another node is asked in one round for what it offers; the rest is for the next."},
    )
    blob_grace_seconds: int = field(
        default=86_400, metadata={"about": "How long a blob that nothing refers to is kept."}
    )
    blob_collection_seconds: int = field(
        default=3_600, metadata={"about": "How often a running node removes unused blobs; 0 is never."}
    )
    erase_grace_seconds: int = field(
        default=7 * 86_400,
        metadata={"about": "How long the content of an instance is kept after its delete came here, or it expired."},
    )
    erase_seconds: int = field(
        default=3_600, metadata={"about": "How often a running node erases what is due; 0 is never."}
    )
    compact_seconds: int = field(
        default=86_400,
        metadata={
            "about": "How often a running node rewrites its database without what was erased, if anything was; writers "
            "wait for it. 0 is never: `inkgrove erase` does it."
        },
    )
    export_seconds: int = field(
        default=7 * 86_400, metadata={"about": "How long the file of an export can be downloaded."}
    )
    arrival_bytes: int = field(
        default=16 * 1024 * 1024 * 1024,
        metadata={"about": "The largest file that somebody may bring who moves here; 0: nobody brings one."},
    )
    arrival_seconds: int = field(
        default=7 * 86_400,
        metadata={"about": "How long somebody who moves here has, without doing anything, before it is given up."},
    )
    arrivals_at_once: int = field(
        default=20, metadata={"about": "How many people may be on their way here at the same time."}
    )
    workers: int = field(default=1, metadata={"about": "How many processes serve."})
    shutdown_seconds: int = field(
        default=30, metadata={"about": "How long requests that are under way may take to finish when the node stops."}
    )
    body_seconds: int = field(
        default=30,
        metadata={"about": "How long the head of a request may take, and how long its body may stay under 16 KiB/s."},
    )
    max_header_bytes: int = field(
        default=64 * 1024, metadata={"about": "The largest head of a request: its first line and its headers."}
    )
    max_connections: int = field(
        default=10_000,
        metadata={
            "about": "How many connections one process keeps open; fewer if the limit of open files leaves less, of "
            "which up to 2,048, at most half, are kept for the database. Idle ones give way to new ones."
        },
    )
    connections_per_address: int = field(
        default=256,
        metadata={"about": "How many connections one address may have, trusted proxies excepted; as above."},
    )
    cors_origins: tuple[str, ...] = field(
        default=("*",),
        metadata={"about": "Origins whose pages may call the node with a token; `*` is any, cookies are never sent."},
    )
    metrics: Literal["local", "open", "off"] = field(
        default="off",
        metadata={"about": "Who may read /metrics: nobody, this machine (with no proxy in between) or everybody."},
    )
    log_format: Literal["console", "json"] = field(
        default="console", metadata={"about": "Whether logs are lines for people or JSON for programs."}
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info", metadata={"about": "From which level on something is logged."}
    )
    at_least_seconds: float = field(
        default=10.0, metadata={"about": "How long a reader waits at most until a view has seen a write (`at_least`)."}
    )
    poll_seconds: float = field(
        default=0.1, metadata={"about": "How often a process looks for changes while somebody waits for one."}
    )
    heartbeat_seconds: float = field(
        default=15.0, metadata={"about": "How often a stream of changes shows that it lives when nothing happens."}
    )
    max_listeners: int = field(
        default=1000,
        metadata={
            "about": "How many follow changes in one process; without a token half as many, from one address a tenth."
        },
    )
