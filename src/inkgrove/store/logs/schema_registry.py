"""The schemas that the administrator materialises, and the store's own numbers for schemas.

docs/protocol.md section 6, step 1.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from inkgrove.core import PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import CompiledList, in_lists, insert_new
from inkgrove.store.db.log_tables import encode_log_key, ingests, registered, schemas
from inkgrove.store.logs.positions import IngestKind


def number_schemas(connection: Connection, wanted: Collection[SchemaId]) -> dict[SchemaId, int]:
    """The number of each schema; one that was never named before gets one."""
    numbers = _find(connection, wanted)
    missing = sorted(set(wanted) - numbers.keys())
    if missing:
        rows = [
            {"name": encode_log_key(*schema), "author": schema.author, "log_id": schema.log_id} for schema in missing
        ]
        connection.execute(insert_new(connection, schemas), rows)
        numbers |= _find(connection, missing)
    return numbers


def find_schema_number(connection: Connection, schema: SchemaId) -> int | None:
    """The number of a schema, if any message named it or it was registered."""
    return _find(connection, [schema]).get(schema)


def _find(connection: Connection, wanted: Collection[SchemaId]) -> dict[SchemaId, int]:
    by_name = {encode_log_key(*schema): schema for schema in wanted}
    return {by_name[name]: number for some in in_lists(by_name) for number, name in _by_name.rows(connection, some)}


_by_name: Final = CompiledList(lambda names: select(schemas.c.id, schemas.c.name).where(schemas.c.name.in_(names)))


def register_schema(connection: Connection, schema: SchemaId) -> bool:
    """Put a schema on the list; whether that was news."""
    number = number_schemas(connection, [schema])[schema]
    added = insert_new(connection, registered).returning(registered.c.schema)
    if connection.scalar(added, {"schema": number}) is None:
        return False
    connection.execute(insert(ingests), {"what": IngestKind.REGISTERED.value, "schema": number})
    return True


def unregister_schema(connection: Connection, schema: SchemaId) -> bool:
    """Take a schema off the list; whether it was on it."""
    number = find_schema_number(connection, schema)
    removed = delete(registered).where(registered.c.schema == number).returning(registered.c.schema)
    if connection.scalar(removed) is None:
        return False
    connection.execute(insert(ingests), {"what": IngestKind.UNREGISTERED.value, "schema": number})
    return True


def read_registered(connection: Connection) -> list[SchemaId]:
    """Every schema on the list, in the order of author and log id."""
    query = select(schemas.c.author, schemas.c.log_id).join_from(registered, schemas).order_by(schemas.c.name)
    return [SchemaId(PublicKey(row.author), row.log_id) for row in connection.execute(query)]
