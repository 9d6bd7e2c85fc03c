"""Schemas and versions that something held here names and nobody has sent yet (docs/protocol.md sections 6 and 8)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, delete, select, update

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.store.database import in_lists, insert_new
from inkgrove.store.federation_tables import wanted_schemas
from inkgrove.store.reading import find_logs
from inkgrove.store.registry import number_schemas
from inkgrove.store.tables import log_schemas, logs, name_of_log, schemas


class WantedSchema(NamedTuple):
    """A schema to be asked for."""

    number: int
    """The store's own."""
    schema: SchemaId
    version: int
    failures: int
    via: IdentityId | None
    """Who brought what names it, and so may have it; its author may be unknown here."""


def want_schemas(
    connection: Connection, named: Mapping[SchemaId, int], now: int, via: IdentityId | None = None
) -> None:
    """Note those of the schemas, each with a version, that are not held up to there; `via` brought what names them."""
    lacking = _lacking(connection, named)
    if not lacking:
        return
    numbers = number_schemas(connection, lacking)
    for schema in sorted(lacking):
        row = {"schema": numbers[schema], "version": named[schema], "failures": 0, "next_try": now, "via": via}
        connection.execute(insert_new(connection, wanted_schemas), row)
        # A version that was not named before is asked for at once.
        is_older = (wanted_schemas.c.schema == numbers[schema]) & (wanted_schemas.c.version < named[schema])
        values = {"version": named[schema], "failures": 0, "next_try": now}
        connection.execute(update(wanted_schemas).where(is_older).values(values))
        if via is not None:
            # Somebody new may have what the others had not.
            is_new = (wanted_schemas.c.schema == numbers[schema]) & wanted_schemas.c.via.is_distinct_from(via)
            connection.execute(update(wanted_schemas).where(is_new).values(via=via, next_try=now))


def _lacking(connection: Connection, named: Mapping[SchemaId, int]) -> set[SchemaId]:
    held = find_logs(connection, [name_of_log(*schema) for schema in named])
    return {
        schema
        for schema, version in named.items()
        if (log := held.get(name_of_log(*schema))) is None or (log.invalid_from is None and log.held < version)
    }


def is_any_due(connection: Connection, now: int) -> bool:
    """Whether there is anything to ask for now."""
    query = select(wanted_schemas.c.schema).where(wanted_schemas.c.next_try <= now).limit(1)
    return connection.scalar(query) is not None


def due_schemas(connection: Connection, now: int, limit: int) -> list[WantedSchema]:
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
    forget_schemas(connection, [item.number for item in found if item.schema not in lacking])
    return [item for item in found if item.schema in lacking]


def forget_schemas(connection: Connection, numbers: Collection[int]) -> None:
    """These are wanted no more."""
    for some in in_lists(numbers):
        connection.execute(delete(wanted_schemas).where(wanted_schemas.c.schema.in_(some)))


def put_off(connection: Connection, item: WantedSchema, next_try: int) -> None:
    """Nobody had it: ask again later, unless a newer version has been named meanwhile."""
    is_it = (wanted_schemas.c.schema == item.number) & (wanted_schemas.c.version == item.version)
    connection.execute(update(wanted_schemas).where(is_it).values(failures=item.failures + 1, next_try=next_try))


def authors_naming(connection: Connection, number: int, limit: int) -> list[PublicKey]:
    """Some authors whose messages name a schema."""
    query = select(logs.c.author).join_from(log_schemas, logs).where(log_schemas.c.schema == number)
    return [PublicKey(author) for author in connection.scalars(query.distinct().order_by(logs.c.author).limit(limit))]
