"""Schemas and versions that something held names and that are not held (docs/protocol.md sections 6 and 8)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from inkgrove.core import IdentityId, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db.connection import execute_many
from inkgrove.store.db.log_tables import encode_log_key, log_schemas, logs, schemas
from inkgrove.store.db.node_tables import wanted_schemas
from inkgrove.store.logs.entries import find_logs
from inkgrove.store.logs.schema_registry import number_schemas


class WantedSchema(NamedTuple):
    """A schema to be asked for."""

    number: int
    """The store's own."""
    schema: SchemaId
    version: int
    failures: int
    via: IdentityId | None
    """Who sent what names it, and so may have it; its author may be unknown here."""


def want_schemas(
    connection: Connection, named: Mapping[SchemaId, int], now: int, via: IdentityId | None = None
) -> None:
    """Record those of the schemas, each with a version, that are not held up to it; `via` sent what names them."""
    lacking = _lacking(connection, named)
    if not lacking:
        return
    numbers = number_schemas(connection, lacking)
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [
        {"schema": numbers[schema], "version": named[schema], "failures": 0, "next_try": now, "via": via}
        for schema in sorted(lacking)
    ]
    statement = insert(wanted_schemas)
    before, new = wanted_schemas.c, statement.excluded
    # A version that was not named before is asked for at once. So is somebody new, who may have what others had not.
    is_newer = new.version > before.version
    is_by_other = and_(new.via.is_not(None), new.via.is_distinct_from(before.via))
    values = {
        "version": case((is_newer, new.version), else_=before.version),
        "failures": case((is_newer, 0), else_=before.failures),
        "next_try": case((or_(is_newer, is_by_other), new.next_try), else_=before.next_try),
        "via": func.coalesce(new.via, before.via),
    }
    connection.execute(statement.on_conflict_do_update(index_elements=["schema"], set_=values), rows)


def _lacking(connection: Connection, named: Mapping[SchemaId, int]) -> set[SchemaId]:
    held = find_logs(connection, [encode_log_key(*schema) for schema in named])
    return {
        schema
        for schema, version in named.items()
        if (log := held.get(encode_log_key(*schema))) is None or (log.invalid_from is None and log.held < version)
    }


def is_any_schema_due(connection: Connection, now: int) -> bool:
    """Whether there is anything to ask for now."""
    query = select(wanted_schemas.c.schema).where(wanted_schemas.c.next_try <= now).limit(1)
    return connection.scalar(query) is not None


def list_due_schemas(connection: Connection, now: int, limit: int) -> list[WantedSchema]:
    """What is to be asked for now; what has come meanwhile is forgotten."""
    query = (
        select(wanted_schemas, schemas.c.author, schemas.c.log_id)
        .join_from(wanted_schemas, schemas)
        .where(wanted_schemas.c.next_try <= now)
        .order_by(wanted_schemas.c.next_try, wanted_schemas.c.schema)
        .limit(limit)
    )
    found = [
        WantedSchema(
            row.schema,
            SchemaId(PublicKey(row.author), row.log_id),
            row.version,
            row.failures,
            IdentityId(row.via) if row.via is not None else None,
        )
        for row in connection.execute(query)
    ]
    lacking = _lacking(connection, {item.schema: item.version for item in found})
    _forget(connection, [item for item in found if item.schema not in lacking])
    return [item for item in found if item.schema in lacking]


def _forget(connection: Connection, came: Collection[WantedSchema]) -> None:
    """These have come, each up to the version that was wanted; a newer one may have been named since."""
    is_it = and_(wanted_schemas.c.schema == bindparam("number"), wanted_schemas.c.version == bindparam("came"))
    if came:
        values = [{"number": item.number, "came": item.version} for item in came]
        execute_many(connection, delete(wanted_schemas).where(is_it), values)


def postpone_schema(connection: Connection, item: WantedSchema, next_try: int) -> None:
    """Ask again later, unless meanwhile a newer version was named, or by somebody who was not asked."""
    is_same = and_(wanted_schemas.c.version == item.version, wanted_schemas.c.via.is_not_distinct_from(item.via))
    is_it = and_(wanted_schemas.c.schema == item.number, is_same)
    connection.execute(update(wanted_schemas).where(is_it).values(failures=item.failures + 1, next_try=next_try))


def authors_naming(connection: Connection, number: int, limit: int) -> list[PublicKey]:
    """Some authors whose messages name a schema."""
    query = select(logs.c.author).join_from(log_schemas, logs).where(log_schemas.c.schema == number)
    return [PublicKey(author) for author in connection.scalars(query.distinct().order_by(logs.c.author).limit(limit))]
