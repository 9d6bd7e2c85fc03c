"""Rights to names and ids, restores that are noticed, and quotas."""

import sqlalchemy as sa
from alembic import op

from inkgrove.messages.identity import IdentityDocument
from inkgrove.messages.message import decode_message

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """From a node that bound rights to names alone."""
    _names()
    _homes()
    _sharing()
    _restores()
    _blobs()
    _quotas()


def _sharing() -> None:
    """Who is accepted as a sender is kept apart from who follows."""
    op.create_table(
        "accepted_senders",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("sender", sa.LargeBinary, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("identity", "sender", name="pk_accepted_senders"),
    )
    op.create_index("ix_accepted_senders_sender", "accepted_senders", ["sender"])
    op.add_column("request_box", sa.Column("schema", sa.Text))
    op.create_index("ix_request_box_instance", "request_box", ["instance"])
    op.add_column("public_instances", sa.Column("expires", sa.BigInteger))
    op.create_table(
        "backlogs",
        sa.Column("followee", sa.LargeBinary, nullable=False),
        sa.Column("follower", sa.LargeBinary, nullable=False),
        sa.Column("queued", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("followee", "follower", name="pk_backlogs"),
    )
    op.create_table(
        "pending_recipients",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, primary_key=True),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("via", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("queued", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pending_recipients"),
        sqlite_autoincrement=True,
    )
    unique = ["instance", "via", "name"]
    op.create_index("ix_pending_recipients_instance_via_name", "pending_recipients", unique, unique=True)
    op.create_index("ix_pending_recipients_state_name", "pending_recipients", ["state", "name"])
    op.create_index("ix_pending_recipients_via_changed", "pending_recipients", ["via", "changed"])
    for_followers = sa.text("access IN ('public', 'relations')")
    op.create_index(
        "ix_entries_for_followers",
        "entries",
        ["log", "seq_num"],
        sqlite_where=for_followers,
        postgresql_where=for_followers,
    )
    op.execute("DELETE FROM index_progress")  # the index is made anew from the logs, with what expires


def _names() -> None:
    """Who has or had which name, and whose the rights of administrators are."""
    op.create_table(
        "names",
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("is_given", sa.Boolean, nullable=False),
        sa.Column("checked", sa.BigInteger, nullable=False),
        sa.Column("left_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("fqdn", name="pk_names"),
    )
    op.create_index("ix_names_identity", "names", ["identity"])
    op.create_table(
        "administrators",
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("bound", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("fqdn", name="pk_administrators"),
    )
    op.create_index("ix_administrators_identity", "administrators", ["identity"])
    # Whoever is hosted keeps the name, as if the operator had given it; but where discovery has found somebody else
    # under it, anybody may have taken it, and the world is asked.
    op.execute(
        "INSERT INTO names (fqdn, identity, is_given, checked) SELECT i.fqdn, i.id,"
        " NOT EXISTS (SELECT 1 FROM known_identities k WHERE k.fqdn = i.fqdn AND k.id <> i.id), 0 FROM identities i"
    )


_DOCUMENT = sa.text(
    "SELECT e.payload FROM entries e JOIN logs l ON l.id = e.log JOIN identities i ON i.key = l.author"
    " WHERE i.id = :identity AND l.log_id = 0 AND e.kind = 'identity' AND e.payload IS NOT NULL"
    " ORDER BY e.seq_num DESC LIMIT 1"
)


def _homes() -> None:
    """Who lives here: whose key the node keeps, and whose newest document still names the name it has here."""
    op.add_column("identities", sa.Column("endpoint", sa.Text))
    op.add_column("identities", sa.Column("lives_here", sa.Boolean, nullable=False, server_default=sa.true()))
    connection = op.get_bind()
    kept = set(connection.scalars(sa.text("SELECT author FROM identity_keys WHERE sealed IS NOT NULL")))
    put = sa.text("UPDATE identities SET endpoint = :endpoint, lives_here = :is_here WHERE id = :identity")
    for identity, fqdn, key in connection.execute(sa.text("SELECT id, fqdn, key FROM identities")).all():
        payload = connection.scalar(_DOCUMENT, {"identity": identity})
        if payload is not None and isinstance(document := decode_message(bytes(payload)), IdentityDocument):
            is_here = key in kept or document.fqdn == fqdn
            endpoint = document.endpoint if document.fqdn == fqdn else None
            connection.execute(put, {"endpoint": endpoint, "is_here": is_here, "identity": identity})


def _restores() -> None:
    """Whether the database is older than it was."""
    op.create_table(
        "epoch",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("behind_since", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("waits_for", sa.Text),
        sa.Column("resumed", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_epoch"),
    )


def _blobs() -> None:
    """The right to a blob follows from messages: what they say is found anew, from the first one on."""
    op.add_column("blob_references", sa.Column("is_decided", sa.Boolean, nullable=False, server_default=sa.true()))
    for name in ("log", "create_seq", "last_seq", "expires"):
        op.add_column("blob_references", sa.Column(name, sa.BigInteger))
    op.add_column("blob_references", sa.Column("mode", sa.String(10)))
    op.add_column("blob_references", sa.Column("access", sa.Text))
    op.create_index("ix_blob_references_log_create_seq", "blob_references", ["log", "create_seq"])
    op.create_index("ix_blob_references_hash_mode", "blob_references", ["hash", "mode"])
    op.execute("DELETE FROM blob_progress")


def _quotas() -> None:
    """What hosted identities have stored is counted once; from then on with each transaction."""
    op.create_table(
        "identity_usage",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("entries", "payload_bytes", "blob_bytes")),
        *(sa.Column(name, sa.BigInteger) for name in ("max_entries", "max_payload_bytes", "max_blob_bytes")),
        sa.PrimaryKeyConstraint("identity", name="pk_identity_usage"),
    )
    op.execute(
        "INSERT INTO identity_usage (identity, entries, payload_bytes, blob_bytes)"
        " SELECT i.id,"
        " (SELECT count(*) FROM entries e JOIN logs l ON l.id = e.log JOIN identity_keys k ON k.author = l.author"
        "  WHERE k.identity = i.id),"
        " (SELECT coalesce(sum(length(e.payload)), 0) FROM entries e JOIN logs l ON l.id = e.log"
        "  JOIN identity_keys k ON k.author = l.author WHERE k.identity = i.id),"
        " (SELECT coalesce(sum(b.size), 0) FROM blob_rights r JOIN blobs b ON b.hash = r.hash WHERE r.identity = i.id)"
        " FROM identities i"
    )
