"""The tables of the views: for each schema one typed table of rows and one of outcomes, and what all views share.

docs/protocol.md section 6. Everything here follows from the logs: a store of another format is dropped and rebuilt, not
migrated. Row tables hold what the fold of each instance says; rows that go by cascade are listed in `gone`. A row is
itself the outcome of its create, which was applied: outcome tables hold the outcomes of all other messages.

`log` is the store's own number of a log; a group (what is folded together) is named by it and the create's seq num.
For each view the newest changes are kept as well: its rows before and after, numbered by the merge that changed them.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    text,
)
from sqlalchemy.types import TypeEngine

from inkgrove.core import Hash
from inkgrove.messages import Timestamp
from inkgrove.schema import Field, element_of, is_array
from inkgrove.store.db.log_tables import KEY

# Values of fields as cells and back: typed columns where SQL has the type, JSON text for arrays and blobs. Timestamps
# are integers (microseconds since 1970, UTC): both databases compare and index them alike.

# By code points, as SQLite does by itself: a PostgreSQL database may sort by any language.
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
_COLUMN_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "varchar": _TEXT,
    "text": _TEXT,
    "integer": BigInteger(),
    "float": Double(),
    "boolean": Boolean(),
    "timestamp": BigInteger(),
    "relation": LargeBinary(),
    "blob": _TEXT,
}


def is_text(type_name: str) -> bool:
    """Whether the cells of a field are text, which can be of any length."""
    return column_type(type_name) is _TEXT


def column_type(type_name: str) -> TypeEngine[Any]:
    """The SQL type of a field's column."""
    return _TEXT if is_array(type_name) else _COLUMN_TYPES[type_name]


def _keep(value: Any) -> Any:
    return value


def _blob_to_json(value: Any) -> Any:
    return {"hash": value["hash"].hex(), "size": value["size"], "type": value["type"]}


def _blob_from_json(value: Any) -> Any:
    return {"hash": Hash.fromhex(value["hash"]), "size": value["size"], "type": value["type"]}


_TO_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": lambda value: value.microseconds,
    "relation": lambda value: value.hex(),
    "blob": _blob_to_json,
}
_FROM_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": Timestamp,
    "relation": Hash.fromhex,
    "blob": _blob_from_json,
}


def cell_encoder(type_name: str) -> Callable[[Any], Any] | None:
    """The function that makes a cell of a value that is not null; None where the value is the cell."""
    element = element_of(type_name)
    to_json = _TO_JSON.get(element, _keep)
    if is_array(type_name):
        return lambda value: json.dumps([to_json(item) for item in value], ensure_ascii=False)
    if type_name == "timestamp":
        return to_json
    if type_name == "blob":
        return lambda value: json.dumps(to_json(value))
    return bytes if type_name == "relation" else None


@cache
def cell_decoder(type_name: str) -> Callable[[Any], Any] | None:
    """The function that makes a value of a cell that is not null; None where the cell is the value."""
    element = element_of(type_name)
    from_json = _FROM_JSON.get(element, _keep)
    if is_array(type_name):
        return lambda cell: [from_json(item) for item in json.loads(cell)]
    if type_name == "blob":
        return lambda cell: from_json(json.loads(cell))
    if type_name == "timestamp":
        return Timestamp
    if type_name == "float":
        return float
    if type_name == "boolean":
        return bool
    return Hash if type_name == "relation" else None


def decode_cell(type_name: str, cell: Any) -> Any:
    """The value of a cell."""
    decode = cell_decoder(type_name)
    return cell if cell is None or decode is None else decode(cell)


@cache
def node_table(table: Table) -> Table:
    """A table of the node, as transactions on views name it that were opened with the node's tables beside them."""
    return table.to_metadata(_node_metadata)


_node_metadata = MetaData(schema="node")

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
    """Outcomes of messages that are no row's create."""
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
    """Where cascading relations point to; of an instance without a row, the one that continues it."""
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
    """Rows that have gone because what they point to was deleted."""
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


change_counts = Table(
    "view_change_counts",
    metadata,
    Column("view", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("newest", BigInteger, nullable=False),  # the number of the last merge that changed rows
    Column("oldest", BigInteger, nullable=False),  # the first whose changes are kept
)


@lru_cache(maxsize=1024)
def change_table(view: int, generation: int, fields: tuple[tuple[str, str], ...]) -> Table:
    """The changes of a view's rows: the columns of the rows, in which merge, and whether before or after it."""
    # By its name it is dropped when all views are.
    name = f"{rows_of(view, generation, ()).name}_changes"
    rows = row_table("rows", fields, MetaData())
    table = Table(
        name,
        MetaData(),
        Column("_change", BigInteger, nullable=False),
        Column("_is_after", Boolean, nullable=False),
        *(Column(column.name, column.type, nullable=column.nullable) for column in rows.columns),
    )
    Index(f"{name}_by_change", table.c._change, table.c._instance)
    return table


def start_changes(connection: Connection, view: int, generation: int, fields: tuple[tuple[str, str], ...]) -> None:
    """Begin to keep the changes of a view that was built."""
    connection.execute(delete(change_counts).where(change_counts.c.view == view))
    change_table(view, generation, fields).create(connection)
    first = {"view": view, "generation": generation, "newest": 0, "oldest": 1}
    connection.execute(insert(change_counts), first)


def drop_changes(connection: Connection, view: int, generation: int) -> None:
    """Forget the changes of a view, together with its table."""
    connection.execute(delete(change_counts).where(change_counts.c.view == view))
    drop_change_table(connection, view, generation)


def drop_change_table(connection: Connection, view: int, generation: int) -> None:
    """Drop the changes of a generation that is not shown any more."""
    change_table(view, generation, ()).drop(connection, checkfirst=True)
