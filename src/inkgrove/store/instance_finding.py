"""Where an instance is found: the view of its schema, and its place in the log store."""

from typing import Any, Final

from sqlalchemy import Connection, MetaData, Select, and_, bindparam, select

from inkgrove.core import Hash
from inkgrove.store.compiled import Compiled
from inkgrove.store.tables import entries, schemas
from inkgrove.store.view_store import VIEW_COLUMNS, View, make_view
from inkgrove.store.view_tables import views

_beside = MetaData(schema="node")
_schemas, _entries = schemas.to_metadata(_beside), entries.to_metadata(_beside)


def _query(_: Connection) -> Select[Any]:
    is_of_schema = and_(views.c.author == _schemas.c.author, views.c.log_id == _schemas.c.log_id)
    named = select(*VIEW_COLUMNS).select_from(_entries).join(_schemas, _schemas.c.id == _entries.c.schema)
    is_it = and_(_entries.c.hash == bindparam("instance"), _entries.c.kind == "create")
    return named.join(views, is_of_schema).where(is_it)


_view_of_instance: Final = Compiled(_query)


def view_of_instance(connection: Connection, instance: Hash) -> View | None:
    """The view that an instance's row would be in; `connection` is one of the views, with the node's tables."""
    row = _view_of_instance.first(connection, instance=instance)
    return None if row is None else make_view(*row)
