"""The node beside its logs: identities, services, relations, shares, blobs, other nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From the log store alone."""
    op.create_table(
        "identities",
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("password", sa.Text),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identities"),
        sa.UniqueConstraint("fqdn", name="uq_identities_fqdn"),
    )
    op.create_table(
        "identity_keys",
        sa.Column("author", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary),
        sa.Column("revoked", sa.Text),
        sa.PrimaryKeyConstraint("author", name="pk_identity_keys"),
    )
    op.create_index("ix_identity_keys_identity", "identity_keys", ["identity"])
    op.create_table(
        "sessions",
        sa.Column("token", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_sessions"),
        sa.ForeignKeyConstraint(["identity"], ["identities.id"], name="fk_sessions_identity"),
    )
    op.create_index("ix_sessions_identity", "sessions", ["identity"])
    op.create_table(
        "attempts",
        sa.Column("who", sa.String(80), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("who", name="pk_attempts"),
    )
    op.create_table(
        "clients",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("redirect_uris", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clients"),
    )
    op.create_table(
        "grants",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("revoked", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_grants"),
        sa.ForeignKeyConstraint(["identity"], ["identities.id"], name="fk_grants_identity"),
        sa.ForeignKeyConstraint(["client"], ["clients.id"], name="fk_grants_client"),
    )
    op.create_index("ix_grants_identity", "grants", ["identity"])
    op.create_index("ix_grants_client", "grants", ["client"])
    op.create_table(
        "codes",
        sa.Column("code", sa.LargeBinary, nullable=False),
        sa.Column("grant", _KEY, nullable=False),
        sa.Column("redirect_uri", sa.Text, nullable=False),
        sa.Column("challenge", sa.String(128), nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("code", name="pk_codes"),
        sa.ForeignKeyConstraint(["grant"], ["grants.id"], name="fk_codes_grant"),
    )
    op.create_table(
        "tokens",
        sa.Column("token", sa.LargeBinary, nullable=False),
        sa.Column("grant", _KEY, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_tokens"),
        sa.ForeignKeyConstraint(["grant"], ["grants.id"], name="fk_tokens_grant"),
    )
    op.create_index("ix_tokens_grant", "tokens", ["grant"])
    op.create_table(
        "accesses",
        sa.Column("id", _KEY, nullable=False, primary_key=True),
        sa.Column("grant", _KEY, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("action", sa.String(20), nullable=False),
        sa.Column("schema", sa.Text),
        sa.Column("instance", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name="pk_accesses"),
        sa.ForeignKeyConstraint(["grant"], ["grants.id"], name="fk_accesses_grant"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_accesses_grant_id", "accesses", ["grant", "id"])
    op.create_table(
        "relations",
        sa.Column("follower", sa.LargeBinary, nullable=False),
        sa.Column("followee", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("follower_group", sa.String(64)),
        sa.Column("followee_group", sa.String(64)),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("follower", "followee", name="pk_relations"),
    )
    op.create_index("ix_relations_followee", "relations", ["followee"])
    op.create_table(
        "shares",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("shared", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("instance", "identity", name="pk_shares"),
    )
    op.create_index("ix_shares_identity", "shares", ["identity"])
    _note_changes_of_visibility()
    op.create_table(
        "idempotency",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("identity", "client", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])
    op.create_table(
        "blobs",
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored", sa.BigInteger, nullable=False),
        sa.Column("unused_since", sa.BigInteger),
        sa.PrimaryKeyConstraint("hash", name="pk_blobs"),
    )
    op.create_table(
        "blob_rights",
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("media_type", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("hash", "identity", name="pk_blob_rights"),
        sa.ForeignKeyConstraint(["hash"], ["blobs.hash"], name="fk_blob_rights_hash"),
    )
    op.create_table(
        "node_keys",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_node_keys"),
    )
    op.create_table(
        "known_identities",
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("document_seq", sa.BigInteger, nullable=False),
        sa.Column("node_key", sa.LargeBinary, nullable=False),
        sa.Column("fetched", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_known_identities"),
        sa.UniqueConstraint("fqdn", name="uq_known_identities_fqdn"),
    )
    op.create_table(
        "nonces",
        sa.Column("nonce", sa.LargeBinary, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("nonce", name="pk_nonces"),
    )
    op.create_index("ix_nonces_expires", "nonces", ["expires"])
    op.create_table(
        "blob_references",
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("author", sa.LargeBinary, nullable=False),
        sa.Column("schema_author", sa.LargeBinary, nullable=False),
        sa.Column("schema_log_id", sa.BigInteger, nullable=False),
        sa.Column("media_type", sa.String(255), nullable=False),
        sa.Column("is_lent", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("hash", "instance", "author", name="pk_blob_references"),
    )
    op.create_index("ix_blob_references_instance", "blob_references", ["instance"])
    op.create_table(
        "blob_progress",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_blob_progress"),
    )


def _note_changes_of_visibility() -> None:
    """Whoever changes shares or relations, those who follow views learn of it."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    xid = "(pg_current_xact_id()::text::bigint)" if is_postgresql else "0"
    op.create_table(
        "visibility_changes",
        sa.Column("id", _KEY, nullable=False, primary_key=True),
        sa.Column("xid", sa.BigInteger, nullable=False, server_default=sa.text(xid)),
        sa.Column("reader", sa.LargeBinary, nullable=False),
        sa.Column("instance", sa.LargeBinary),
        sa.Column("followee", sa.LargeBinary),
        sa.Column("is_gained", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_visibility_changes"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_visibility_changes_reader_id", "visibility_changes", ["reader", "id"])
    op.create_index("ix_visibility_changes_xid_id", "visibility_changes", ["xid", "id"])
    was, is_now = "(OLD.state = 'accepted')", "(NEW.state = 'accepted')"
    for name, event, condition, values in (
        ("shares", "INSERT", "", "NEW.identity, NEW.instance, NULL, TRUE"),
        ("shares", "DELETE", "", "OLD.identity, OLD.instance, NULL, FALSE"),
        ("relations", "INSERT", is_now, f"NEW.follower, NULL, NEW.followee, {is_now}"),
        ("relations", "UPDATE", f"{was} <> {is_now}", f"NEW.follower, NULL, NEW.followee, {is_now}"),
        ("relations", "DELETE", was, "OLD.follower, NULL, OLD.followee, FALSE"),
    ):
        trigger = f"{name}_seen_after_{event.lower()}"
        work = f"""INSERT INTO visibility_changes (reader, instance, followee, is_gained) VALUES ({values});
            DELETE FROM visibility_changes WHERE id <= (SELECT max(id) FROM visibility_changes) - 100000;"""
        when = f"FOR EACH ROW WHEN ({condition})" if condition else "FOR EACH ROW"
        if is_postgresql:
            op.execute(
                f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {work} RETURN NULL; END $$"
            )
            op.execute(f"CREATE TRIGGER {trigger} AFTER {event} ON {name} {when} EXECUTE FUNCTION {trigger}()")
        else:
            op.execute(f"CREATE TRIGGER {trigger} AFTER {event} ON {name} {when} BEGIN {work} END")
