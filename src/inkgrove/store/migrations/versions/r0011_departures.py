"""Identities that leave for another node with the help of this one (docs/protocol.md section 7.10)."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make the table of departures, and note whose first key nobody has."""
    op.add_column("identities", sa.Column("first_key_lost", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "moves_out",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("grant", sa.LargeBinary, nullable=False),
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("node_key", sa.LargeBinary, nullable=False),
        sa.Column("file", sa.String(32), nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("controller", sa.LargeBinary),
        sa.Column("answer", sa.LargeBinary),
        sa.PrimaryKeyConstraint("identity", name="pk_moves_out"),
        sa.UniqueConstraint("grant", name="uq_moves_out_grant"),
    )
