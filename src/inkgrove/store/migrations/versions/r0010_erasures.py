"""Instances whose content is to be erased, or was (docs/protocol.md section 9.5)."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Make the tables of erasing."""
    op.create_table(
        "erasures",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("log", sa.BigInteger),
        sa.Column("create_seq", sa.BigInteger),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("erased", sa.BigInteger),
        sa.PrimaryKeyConstraint("instance", name="pk_erasures"),
    )
    op.create_index("ix_erasures_log_create_seq", "erasures", ["log", "create_seq"])
    waits = sa.text("erased IS NULL")
    op.create_index("ix_erasures_since", "erasures", ["since"], sqlite_where=waits, postgresql_where=waits)
    op.create_table(
        "erasure_progress",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_erasure_progress"),
    )
    op.create_table(
        "erasure_journal",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("compacted", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_erasure_journal"),
    )
