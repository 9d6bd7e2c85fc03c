"""Sharing between nodes: deliveries and their queues, the box of requests, peers and what is replicated."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From a node by itself."""
    op.create_table(
        "deliveries",
        sa.Column("place", _KEY, nullable=False, primary_key=True),
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("recipient", sa.LargeBinary, nullable=False),
        sa.Column("via", sa.LargeBinary, nullable=False),
        sa.Column("wanted", sa.BigInteger, nullable=False),
        sa.Column("delivered", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("queued", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_deliveries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_instance_recipient_via", "deliveries", ["instance", "recipient", "via"], unique=True)
    op.create_index("ix_deliveries_state_recipient", "deliveries", ["state", "recipient"])
    op.create_table(
        "targets",
        sa.Column("target", sa.String(300), nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("next_try", sa.BigInteger, nullable=False),
        sa.Column("failing_since", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("target", name="pk_targets"),
    )
    op.create_table(
        "request_box",
        sa.Column("id", _KEY, nullable=False, primary_key=True),
        sa.Column("recipient", sa.LargeBinary, nullable=False),
        sa.Column("via", sa.LargeBinary, nullable=False),
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("parcel", sa.LargeBinary, nullable=False),
        sa.Column("arrived", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_request_box"),
    )
    op.create_index(
        "ix_request_box_recipient_via_instance", "request_box", ["recipient", "via", "instance"], unique=True
    )
    op.create_table(
        "peers",
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("added", sa.BigInteger, nullable=False),
        sa.Column("synced", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("node_key", sa.LargeBinary),
        sa.Column("position", sa.Text),
        sa.PrimaryKeyConstraint("fqdn", name="pk_peers"),
    )
    op.create_table(
        "notices",
        sa.Column("id", _KEY, nullable=False, primary_key=True),
        sa.Column("me", sa.LargeBinary, nullable=False),
        sa.Column("other", sa.LargeBinary, nullable=False),
        sa.Column("as_follower", sa.Boolean, nullable=False),
        sa.Column("move", sa.String(12), nullable=False),
        sa.Column("queued", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notices_me_other_as_follower", "notices", ["me", "other", "as_follower"], unique=True)
    op.create_index("ix_notices_other", "notices", ["other"])
    op.create_table(
        "early_ends",
        sa.Column("author", sa.LargeBinary, nullable=False),
        sa.Column("log_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("instance", sa.String(200), nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("author", "log_id", "instance", name="pk_early_ends"),
    )
    op.create_index("ix_early_ends_expires", "early_ends", ["expires"])
    op.create_table(
        "public_instances",
        sa.Column("log", _KEY, sa.ForeignKey("logs.id", name="fk_public_instances_log"), nullable=False),
        sa.Column("create_seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("log", "create_seq", name="pk_public_instances"),
    )
    op.create_table(
        "wanted_schemas",
        sa.Column("schema", _KEY, sa.ForeignKey("schemas.id", name="fk_wanted_schemas_schema"), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("next_try", sa.BigInteger, nullable=False),
        sa.Column("via", sa.LargeBinary),
        sa.PrimaryKeyConstraint("schema", name="pk_wanted_schemas"),
    )
    op.create_table(
        "index_progress",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_index_progress"),
    )
