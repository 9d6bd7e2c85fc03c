"""What an identity sees of its sign-ins: when each began, was used last, what began it; and the closing of accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add columns and a table; sign-ins from before have no label, and nobody knows when they began."""
    op.add_column("sessions", sa.Column("created", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("last_used", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("label", sa.String(100), nullable=False, server_default=""))
    op.create_table(
        "closings",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("fqdn", sa.String(253), nullable=False),
        sa.Column("token", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("begun", "total", "deleted", "undeleted", "log", "seq_num")
        ),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("closed", sa.BigInteger),
        sa.Column("certificate", sa.Text),
        sa.PrimaryKeyConstraint("identity", name="pk_closings"),
        sa.UniqueConstraint("token", name="uq_closings_token"),
    )
