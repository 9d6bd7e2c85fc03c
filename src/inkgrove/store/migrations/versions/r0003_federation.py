"""Sharing between nodes: deliveries and their queues, the box of requests, peers."""

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
        sa.PrimaryKeyConstraint("fqdn", name="pk_peers"),
    )
