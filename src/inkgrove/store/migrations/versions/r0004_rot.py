"""Data rot: the state of foreign copies, reads, pins, runs, summaries."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From a node that keeps everything."""
    op.create_table(
        "copies",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("log", _KEY, sa.ForeignKey("logs.id", name="fk_copies_log"), nullable=False),
        sa.Column("create_seq", sa.BigInteger, nullable=False),
        sa.Column("schema", _KEY, sa.ForeignKey("schemas.id", name="fk_copies_schema"), nullable=False),
        sa.Column("arrival", sa.BigInteger, nullable=False),
        sa.Column("noted", sa.BigInteger, nullable=False),
        sa.Column("born", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("freshness", sa.Double, nullable=False),
        sa.Column("reads", sa.Double, nullable=False),
        sa.Column("last_read", sa.BigInteger),
        sa.Column("step", sa.String(8), nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("run", sa.BigInteger),
        sa.Column("why", sa.Text),
        sa.Column("cooked", sa.BigInteger),
        sa.Column("fetched", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("instance", name="pk_copies"),
    )
    op.create_index("ix_copies_log_create_seq", "copies", ["log", "create_seq"], unique=True)
    op.create_table(
        "copy_reads",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("instance", name="pk_copy_reads"),
    )
    op.create_table(
        "pins",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.LargeBinary, nullable=False),
        sa.Column("pinned", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("instance", "identity", name="pk_pins"),
    )
    op.create_table(
        "answered",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("instance", name="pk_answered"),
    )
    op.create_table(
        "rot_progress",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("xid", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rot_progress"),
    )
    op.create_table(
        "rot_runs",
        sa.Column("tick", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("now", sa.BigInteger, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("finished", sa.BigInteger),
        sa.Column("report", sa.Text),
        sa.PrimaryKeyConstraint("tick", name="pk_rot_runs"),
    )
    op.create_table(
        "rot_victims",
        sa.Column("instance", sa.LargeBinary, nullable=False),
        sa.Column("log", sa.BigInteger, nullable=False),
        sa.Column("create_seq", sa.BigInteger, nullable=False),
        sa.Column("step", sa.String(8), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("instance", name="pk_rot_victims"),
    )
    op.create_table(
        "summaries",
        sa.Column("run", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("reader", sa.LargeBinary, nullable=False),
        sa.Column("owner", sa.LargeBinary, nullable=False),
        sa.Column("schema", _KEY, autoincrement=False, nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("field", sa.String(63), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sum", sa.Double),
        sa.Column("min", sa.Double),
        sa.Column("max", sa.Double),
        sa.Column("quantiles", sa.LargeBinary),
        sa.Column("distinct", sa.LargeBinary),
        sa.Column("first", sa.LargeBinary, nullable=False),
        sa.Column("last", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run", "reader", "owner", "schema", "month", "field", name="pk_summaries"),
    )
    op.create_index("ix_summaries_schema_reader", "summaries", ["schema", "reader"])
