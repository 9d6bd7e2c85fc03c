"""The tables of changes: for each view the rows before and after each change, numbered by the merge that made them.

They follow from the logs as the views do, and go with them; only the newest changes are kept.
"""

from functools import lru_cache

from sqlalchemy import BigInteger, Boolean, Column, Connection, Index, Integer, MetaData, Table, delete, insert

from inkgrove.store.view_tables import metadata, row_table, rows_of

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
    # The name is one that goes when the views are made anew.
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
    """A view was built: from now on its changes are kept."""
    connection.execute(delete(change_counts).where(change_counts.c.view == view))
    change_table(view, generation, fields).create(connection)
    first = {"view": view, "generation": generation, "newest": 0, "oldest": 1}
    connection.execute(insert(change_counts), first)


def drop_changes(connection: Connection, view: int, generation: int) -> None:
    """The table of a view goes, and its changes with it."""
    connection.execute(delete(change_counts).where(change_counts.c.view == view))
    drop_change_table(connection, view, generation)


def drop_change_table(connection: Connection, view: int, generation: int) -> None:
    """The changes of a generation that is shown no more."""
    change_table(view, generation, ()).drop(connection, checkfirst=True)
