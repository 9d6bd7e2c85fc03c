"""Identities elsewhere that have moved, and who is to be told of new documents (docs/protocol.md section 7.10.3)."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Make the tables of relocations and notices."""
    op.create_table(
        "relocations",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("is_new_node", sa.Boolean, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("identity", name="pk_relocations"),
    )
    op.create_table(
        "document_notices",
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("target", sa.String(253), nullable=False),
        sa.Column("queued", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("identity", "target", name="pk_document_notices"),
    )
