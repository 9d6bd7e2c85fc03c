"""The first tables: logs, their entries, and what was ingested when."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From nothing."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "logs",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.LargeBinary, nullable=False),
        sa.Column("author", sa.LargeBinary, nullable=False),
        sa.Column("log_id", sa.BigInteger, nullable=False),
        sa.Column("height", sa.BigInteger, nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("forked_at", sa.BigInteger),
        sa.Column("lied_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_logs"),
        sa.UniqueConstraint("name", name="uq_logs_name"),
    )
    op.create_table(
        "schemas",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.LargeBinary, nullable=False),
        sa.Column("author", sa.LargeBinary, nullable=False),
        sa.Column("log_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schemas"),
        sa.UniqueConstraint("name", name="uq_schemas_name"),
    )
    op.create_table(
        "entries",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("log", _KEY, nullable=False),
        sa.Column("seq_num", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.String(20)),
        sa.Column("schema", _KEY),
        sa.Column("schema_version", sa.BigInteger),
        sa.Column("create_seq", sa.BigInteger),
        sa.Column("ref_hash", sa.LargeBinary),
        sa.Column("code", sa.String(64)),
        sa.Column("access", sa.String(10)),
        sa.Column("encoded", sa.LargeBinary, nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name="pk_entries"),
        sa.UniqueConstraint("hash", name="uq_entries_hash"),
        sa.ForeignKeyConstraint(["log"], ["logs.id"], name="fk_entries_log"),
        sa.ForeignKeyConstraint(["schema"], ["schemas.id"], name="fk_entries_schema"),
    )
    op.create_index("ix_entries_log_seq_num", "entries", ["log", "seq_num"])
    op.create_index("ix_entries_log_create_seq", "entries", ["log", "create_seq"])
    is_waiting = sa.column("ref_hash").is_not(None)
    op.create_index(
        "ix_entries_ref_hash", "entries", ["ref_hash"], sqlite_where=is_waiting, postgresql_where=is_waiting
    )
    op.create_table(
        "log_schemas",
        sa.Column("schema", _KEY, nullable=False),
        sa.Column("log", _KEY, nullable=False),
        sa.PrimaryKeyConstraint("schema", "log", name="pk_log_schemas"),
        sa.ForeignKeyConstraint(["schema"], ["schemas.id"], name="fk_log_schemas_schema"),
        sa.ForeignKeyConstraint(["log"], ["logs.id"], name="fk_log_schemas_log"),
    )
    op.create_index("ix_log_schemas_log", "log_schemas", ["log"])
    transaction_id = sa.text("(pg_current_xact_id()::text::bigint)" if is_postgresql else "0")
    op.create_table(
        "ingests",
        sa.Column("position", _KEY, nullable=False, primary_key=True),
        sa.Column("xid", sa.BigInteger, nullable=False, server_default=transaction_id),
        sa.Column("what", sa.String(20), nullable=False),
        sa.Column("log", _KEY),
        sa.Column("seq_num", sa.BigInteger),
        sa.Column("schema", _KEY),
        sa.PrimaryKeyConstraint("position", name="pk_ingests"),
        sa.ForeignKeyConstraint(["log"], ["logs.id"], name="fk_ingests_log"),
        sa.ForeignKeyConstraint(["schema"], ["schemas.id"], name="fk_ingests_schema"),
        sqlite_autoincrement=True,
    )
    if is_postgresql:
        op.create_index("ix_ingests_xid_position", "ingests", ["xid", "position"])
    op.create_table(
        "fork_proofs",
        sa.Column("log", _KEY, nullable=False, autoincrement=False),
        sa.Column("seq_num", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("first", sa.LargeBinary, nullable=False),
        sa.Column("second", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("log", "seq_num", name="pk_fork_proofs"),
        sa.ForeignKeyConstraint(["log"], ["logs.id"], name="fk_fork_proofs_log"),
        sa.ForeignKeyConstraint(["first"], ["entries.hash"], name="fk_fork_proofs_first"),
        sa.ForeignKeyConstraint(["second"], ["entries.hash"], name="fk_fork_proofs_second"),
    )
    op.create_table(
        "registered",
        sa.Column("schema", _KEY, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("schema", name="pk_registered"),
        sa.ForeignKeyConstraint(["schema"], ["schemas.id"], name="fk_registered_schema"),
    )
