"""Where an instance is found: the view of its schema, and its place in the log store."""

from sqlalchemy import Connection, MetaData, select

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.store.tables import entries, schemas
from inkgrove.store.view_store import View, view_of

_beside = MetaData(schema="node")
_schemas, _entries = schemas.to_metadata(_beside), entries.to_metadata(_beside)


def view_of_instance(connection: Connection, instance: Hash) -> View | None:
    """The view that an instance's row would be in; `connection` is one of the views, with the node's tables."""
    query = select(_schemas.c.author, _schemas.c.log_id).join_from(
        _entries, _schemas, _schemas.c.id == _entries.c.schema
    )
    row = connection.execute(query.where(_entries.c.hash == instance, _entries.c.kind == "create")).first()
    return None if row is None else view_of(connection, SchemaId(PublicKey(row.author), row.log_id))
