"""The tables of the views: for each schema one typed table of rows and one of outcomes, and what all views share.

docs/protocol.md section 6. Everything here follows from the logs: a store of another format is dropped and rebuilt, not
migrated. Row tables hold what the fold of each instance says; rows that go by cascade are listed in `gone`. A row is
itself the outcome of its create, which was applied: outcome tables hold the outcomes of all other messages.

`log` is the log store's own number of a log; a group (what is folded together) is named by it and the create's place.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

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
    text,
)

from inkgrove.schema import Field
from inkgrove.store.cells import column_type
from inkgrove.store.tables import KEY

FORMAT: Final = 4
NO_VIEW: Final = 0
"""Stands for the view of messages that belong to no schema."""

metadata = MetaData()

view_format = Table("view_format", metadata, Column("format", Integer, primary_key=True, autoincrement=False))

views = Table(
    "views",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("author", LargeBinary, nullable=False),
    Column("log_id", BigInteger, nullable=False),
    Column("name", Text),  # what the schema calls itself
    Column("generation", Integer, nullable=False, default=0),  # of its tables; 0 while there are none
    Column("version", BigInteger, nullable=False, default=0),  # 0 while no version is known
    Column("fields", Text, nullable=False, default="[]"),  # JSON: name, type, and the schema id of cascading relations
    Column("fingerprint", Text),  # of the definition that the rows were folded with
    Column("waits_for", Text, nullable=False, default="[]"),
    Column("stopped", Text),
    UniqueConstraint("author", "log_id"),
)

builds = Table(
    "view_builds",
    metadata,
    Column("view", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("owner", String(64), nullable=False),  # the pipeline that builds it
    Column("retired_at", BigInteger),  # in seconds since 1970: when a newer generation took its place
)


def outcome_table(name: str, target: MetaData) -> Table:
    """What became of messages that are no row's create."""
    return Table(
        name,
        target,
        Column("log", BigInteger, nullable=False),
        Column("seq_num", BigInteger, nullable=False),
        Column("hash", LargeBinary, nullable=False),
        Column("author", LargeBinary, nullable=False),
        Column("log_id", BigInteger, nullable=False),
        Column("outcome", String(12), nullable=False),
        Column("code", String(64), nullable=False),
        Column("reason", Text),  # null where it is what the code means anyway
    )


def deleted_table(name: str, target: MetaData, *, keyed: bool = True) -> Table:
    """Instances that their authors deleted."""
    return Table(
        name,
        target,
        Column("view", Integer, primary_key=keyed, autoincrement=False),
        Column("instance", LargeBinary, primary_key=keyed),
        Column("log", BigInteger, nullable=False),
        Column("create_seq", BigInteger, nullable=False),
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
        Column("log", BigInteger, nullable=False),
        Column("create_seq", BigInteger, nullable=False),
    )


def gone_table(name: str, target: MetaData, *, keyed: bool = True) -> Table:
    """Rows that went because what they point to was deleted."""
    return Table(
        name,
        target,
        Column("view", Integer, primary_key=keyed, autoincrement=False),
        Column("instance", LargeBinary, primary_key=keyed),
        Column("round", Integer, nullable=False),
    )


outcomes_of_none = outcome_table("view_outcomes", metadata)
deleted = deleted_table("view_deleted", metadata)
edges = edge_table("view_edges", metadata)
gone = gone_table("view_gone", metadata)

Index(None, outcomes_of_none.c.log, outcomes_of_none.c.seq_num, outcomes_of_none.c.hash, unique=True)
for _table in (deleted, edges):
    Index(None, _table.c.log, _table.c.create_seq)
Index(None, edges.c.target_view, edges.c.target)
Index(None, edges.c.view, edges.c.instance)

progress = Table(
    "view_progress",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

pulses = Table(
    "view_pulses",
    metadata,
    Column("stream", String(64), primary_key=True),
    Column("at", BigInteger),  # microseconds since 1970: when the last batch was merged
    Column("moved", BigInteger),
    Column("micros", BigInteger),
    Column("trouble_at", BigInteger),
    Column("code", String(64)),
    Column("message", Text),
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
    "_log",
)


def row_table(name: str, fields: Iterable[tuple[str, str]], target: MetaData) -> Table:
    """The table of one view's rows; our own columns begin with an underscore, a field's name never does.

    It has no key of its own: the index on the instance is made when the table is filled (`row_indexes`).
    """
    return Table(
        name,
        target,
        Column("_instance", LargeBinary, nullable=False),
        Column("_author", LargeBinary, nullable=False),
        Column("_log_id", BigInteger, nullable=False),
        Column("_seq_num", BigInteger, nullable=False),
        Column("_last_seq_num", BigInteger, nullable=False),
        Column("_last_hash", LargeBinary),  # null while the create is the last
        Column("_access", Text),
        Column("_expires", BigInteger),
        Column("_copied_from", LargeBinary),
        Column("_field_seq_nums", Text),  # null while every value is the create's
        Column("_log", BigInteger, nullable=False),
        *(Column(field_name, column_type(type_name)) for field_name, type_name in fields),
    )


# Tables are made once: a statement about a new one is compiled anew, which takes longer than to run it.


@lru_cache(maxsize=4096)
def rows_of(view: int, generation: int, fields: tuple[tuple[str, str], ...]) -> Table:
    """The rows of a view; each rebuild makes a new table."""
    return row_table(f"view_{view}_rows_{generation}", fields, MetaData())


@lru_cache(maxsize=4096)
def outcomes_of(view: int, generation: int) -> Table:
    """The outcomes of a view's messages."""
    return outcome_table(f"view_{view}_outcomes_{generation}", MetaData()) if view != NO_VIEW else outcomes_of_none


NOT_APPLIED: Final = "outcome <> 'applied'"


def row_indexes(table: Table) -> list[Index]:
    """What a filled table of rows is found by: the instance, and the group that made the row."""
    own = table.to_metadata(MetaData())
    return [
        Index(f"{own.name}_by_instance", own.c._instance, unique=True),
        Index(f"{own.name}_by_entry", own.c._log, own.c._seq_num),
    ]


def outcome_indexes(table: Table) -> list[Index]:
    """What a filled table of outcomes is found by: the message; and those few that were not applied."""
    own = table.to_metadata(MetaData())
    condition = text(NOT_APPLIED)
    return [
        Index(f"{own.name}_by_entry", own.c.log, own.c.seq_num, own.c.hash, unique=True),
        Index(
            f"{own.name}_not_applied",
            own.c.outcome,
            own.c.log,
            own.c.seq_num,
            sqlite_where=condition,
            postgresql_where=condition,
        ),
    ]


def names_and_types(fields: Iterable[Field]) -> tuple[tuple[str, str], ...]:
    """The fields of a view as its table needs them."""
    return tuple((field.name, field.type) for field in fields)
