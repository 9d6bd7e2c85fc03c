"""Indexes on the fields of a view, for those that are filtered and sorted by."""

from typing import Final

from sqlalchemy import Connection, Index, MetaData

from inkgrove.store.view_store import View

INDEXED: Final = frozenset({"varchar", "integer", "float", "timestamp", "relation"})
"""Types that are worth an index; a text may be longer than an index of PostgreSQL takes."""


def index_fields(connection: Connection, view: View) -> None:
    """Index a view's table once it is filled: its fields, each with the instance that breaks ties, and expiry."""
    table = view.table().to_metadata(MetaData())  # its own: an index stays with the object
    for number, (name, type_name) in enumerate(view.fields):
        if type_name in INDEXED:
            Index(f"{table.name}_by_{number}", table.c[name], table.c._instance).create(connection)
    has_end = table.c._expires.is_not(None)
    Index(f"{table.name}_by_expiry", table.c._expires, sqlite_where=has_end, postgresql_where=has_end).create(
        connection
    )
