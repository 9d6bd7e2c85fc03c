"""Pins of revoked keys: entries that a pin does not lead to get a table of their own (docs/protocol.md section 7.2).

What is in a store of the revision before is not pinned. Proofs of forks may name entries of either table.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("logs", sa.Column("pin", sa.LargeBinary()))
    op.add_column("logs", sa.Column("is_pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("logs", sa.Column("aside", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "branch_entries",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("log", _KEY, nullable=False),
        sa.Column("seq_num", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.String(20)),
        sa.Column("schema", _KEY),
        sa.Column("schema_version", sa.BigInteger()),
        sa.Column("create_seq", sa.BigInteger()),
        sa.Column("ref_hash", sa.LargeBinary()),
        sa.Column("code", sa.String(64)),
        sa.Column("access", sa.String(10)),
        sa.Column("encoded", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name="pk_branch_entries"),
        sa.ForeignKeyConstraint(["log"], ["logs.id"], name="fk_branch_entries_log"),
        sa.ForeignKeyConstraint(["schema"], ["schemas.id"], name="fk_branch_entries_schema"),
        sa.UniqueConstraint("hash", name="uq_branch_entries_hash"),
    )
    op.create_index("ix_branch_entries_log_seq_num", "branch_entries", ["log", "seq_num"])
    with op.batch_alter_table("fork_proofs") as table:
        table.drop_constraint("fk_fork_proofs_first", type_="foreignkey")
        table.drop_constraint("fk_fork_proofs_second", type_="foreignkey")
