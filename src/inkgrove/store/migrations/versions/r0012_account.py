"""What an identity sees of its sign-ins: when each began, was used last, and what began it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns; sign-ins from before have no label, and nobody knows when they began."""
    op.add_column("sessions", sa.Column("created", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("last_used", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("label", sa.String(100), nullable=False, server_default=""))
