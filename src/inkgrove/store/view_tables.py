"""The tables of the views: one typed table per schema, and beside them outcomes, deletions, edges and progress.

docs/protocol.md section 6. Everything here follows from the logs: a store of another format is dropped and rebuilt, not
migrated. Row tables hold what the fold of each instance says; rows that go by cascade are listed in `gone`.
"""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from inkgrove.schema.field import Field
from inkgrove.store.cells import column_type
from inkgrove.store.tables import KEY

FORMAT: Final = 2

metadata = MetaData()

view_format = Table("view_format", metadata, Column("format", Integer, primary_key=True, autoincrement=False))

views = Table(
    "views",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("author", LargeBinary, nullable=False),
    Column("log_id", BigInteger, nullable=False),
    Column("name", Text),  # what the schema calls itself
    Column("generation", Integer, nullable=False, default=0),  # of the row table; 0 while there is none
    Column("version", BigInteger, nullable=False, default=0),  # 0 while no version is known
    Column("fields", Text, nullable=False, default="[]"),  # JSON: name, type, and the schema id of cascading relations
    Column("fingerprint", Text),  # of the definition that the rows were folded with
    Column("waits_for", Text, nullable=False, default="[]"),
    Column("stopped", Text),
    UniqueConstraint("author", "log_id"),
)


def group_columns() -> list[Column[Any]]:
    """What a message is folded with: an entry of a log."""
    return [
        Column("author", LargeBinary, nullable=False),
        Column("log_id", BigInteger, nullable=False),
        Column("create_seq", BigInteger, nullable=False),
    ]


def outcome_table(name: str, target: MetaData, *, keyed: bool = True) -> Table:
    """What became of messages; `view` is null for those of no schema."""
    return Table(
        name,
        target,
        Column("hash", LargeBinary, primary_key=keyed),
        Column("view", Integer),
        Column("author", LargeBinary, nullable=False),
        Column("log_id", BigInteger, nullable=False),
        Column("seq_num", BigInteger, nullable=False),
        Column("outcome", String(12), nullable=False),
        Column("code", String(64), nullable=False),
        Column("reason", Text, nullable=False),
    )


def deleted_table(name: str, target: MetaData, *, keyed: bool = True) -> Table:
    """Instances that their authors deleted."""
    return Table(
        name,
        target,
        Column("view", Integer, primary_key=keyed, autoincrement=False),
        Column("instance", LargeBinary, primary_key=keyed),
        *group_columns(),
    )


def edge_table(name: str, target: MetaData) -> Table:
    """Where cascading relations point to."""
    return Table(
        name,
        target,
        Column("view", Integer, nullable=False),
        Column("instance", LargeBinary, nullable=False),
        Column("is_element", Boolean, nullable=False),  # of a relation[]: the element goes, not the row
        Column("target_view", Integer, nullable=False),
        Column("target", LargeBinary, nullable=False),
        *group_columns(),
    )


outcomes = outcome_table("view_outcomes", metadata)
deleted = deleted_table("view_deleted", metadata)
edges = edge_table("view_edges", metadata)

for _table in (deleted, edges):
    Index(None, _table.c.author, _table.c.log_id, _table.c.create_seq)
Index(None, outcomes.c.view, outcomes.c.outcome)
Index(None, edges.c.target_view, edges.c.target)
Index(None, edges.c.view, edges.c.instance)

gone = Table(
    "view_gone",
    metadata,
    Column("view", Integer, primary_key=True, autoincrement=False),
    Column("instance", LargeBinary, primary_key=True),
    Column("round", Integer, nullable=False),
)

progress = Table(
    "view_progress",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

ROW_COLUMNS: Final = (
    "_instance",
    "_author",
    "_log_id",
    "_seq_num",
    "_last_seq_num",
    "_last_hash",
    "_access",
    "_expires",
    "_copied_from",
    "_field_seq_nums",
)


def row_table(name: str, fields: Iterable[tuple[str, str]], target: MetaData, *, keyed: bool = True) -> Table:
    """The table of one view's rows; our own columns begin with an underscore, a field's name never does."""
    return Table(
        name,
        target,
        Column("_instance", LargeBinary, primary_key=keyed),
        Column("_author", LargeBinary, nullable=False),
        Column("_log_id", BigInteger, nullable=False),
        Column("_seq_num", BigInteger, nullable=False),
        Column("_last_seq_num", BigInteger, nullable=False),
        Column("_last_hash", LargeBinary, nullable=False),
        Column("_access", Text),
        Column("_expires", BigInteger),
        Column("_copied_from", LargeBinary),
        Column("_field_seq_nums", Text, nullable=False),
        *(Column(field_name, column_type(type_name)) for field_name, type_name in fields),
    )


def row_table_name(view: int, generation: int) -> str:
    """The name of a view's table; each rebuild makes a new one."""
    return f"view_{view}_rows_{generation}"


def names_and_types(fields: Iterable[Field]) -> list[tuple[str, str]]:
    """The fields of a view as its table needs them."""
    return [(field.name, field.type) for field in fields]
