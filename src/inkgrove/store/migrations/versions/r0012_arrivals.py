"""Identities that come here from another node (docs/protocol.md section 7.10)."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Make the table of arrivals."""
    op.create_table(
        "moves_in",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("token", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("way", sa.String(12), nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("password", sa.Text),
        sa.Column("controller", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("key_of", sa.LargeBinary, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("grant_sealed", sa.LargeBinary),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("code", sa.String(64)),
        sa.Column("reason", sa.Text),
        sa.Column("begun", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("finished", sa.BigInteger),
        sa.PrimaryKeyConstraint("identity", name="pk_moves_in"),
        sa.UniqueConstraint("id", name="uq_moves_in_id"),
        sa.UniqueConstraint("token", name="uq_moves_in_token"),
    )
