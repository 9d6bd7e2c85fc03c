"""Services lend only the blobs that they may read, and the record of what they did is kept for a while only."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """From a node where a service could lend whatever its identity may read, and the record grew for ever."""
    op.create_table(
        "blob_uploads",
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("hash", "identity", "client", name="pk_blob_uploads"),
        sa.ForeignKeyConstraint(["hash"], ["blobs.hash"], name="fk_blob_uploads_hash"),
    )
    op.add_column("blob_references", sa.Column("is_withheld", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("ix_accesses_at", "accesses", ["at"])
