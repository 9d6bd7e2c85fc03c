"""What tasks stage of a rot run: new freshness, moves down the ladder, summaries."""

from sqlalchemy import BigInteger, Column, Double, LargeBinary, MetaData, String, Table, Text


def rot_stage_table(name: str, target: MetaData) -> Table:
    """One of the three tables."""
    if name == "rot_fresh":
        return Table(
            name,
            target,
            Column("instance", LargeBinary, nullable=False),
            Column("freshness", Double, nullable=False),
            Column("reads", Double, nullable=False),
            Column("last_read", BigInteger),
            Column("new_reads", BigInteger, nullable=False),
        )
    if name == "rot_moves":
        return Table(
            name,
            target,
            Column("instance", LargeBinary, nullable=False),
            Column("log", BigInteger, nullable=False),
            Column("create_seq", BigInteger, nullable=False),
            Column("step", String(8), nullable=False),
            Column("why", Text, nullable=False),
            Column("is_cooked", BigInteger, nullable=False),
        )
    return Table(
        name,
        target,
        Column("reader", LargeBinary, nullable=False),
        Column("owner", LargeBinary, nullable=False),
        Column("schema", BigInteger, nullable=False),
        Column("month", String(7), nullable=False),
        Column("field", String(63), nullable=False),
        Column("count", BigInteger, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        Column("sum", Double),
        Column("min", Double),
        Column("max", Double),
        Column("quantiles", LargeBinary),
        Column("distinct", LargeBinary),
        Column("first", LargeBinary, nullable=False),
        Column("last", LargeBinary, nullable=False),
    )
