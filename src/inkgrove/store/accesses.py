"""The record of what services did for identities (docs/protocol.md section 7)."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, select

from inkgrove.core.keys import IdentityId
from inkgrove.store.database import execute_many
from inkgrove.store.node_tables import accesses, clients, grants


class Access(NamedTuple):
    """One use of a grant."""

    grant: int
    at: int
    action: str
    schema: str | None
    instance: bytes | None


class RecordedAccess(NamedTuple):
    """An access as it is shown to the identity."""

    id: int
    client: str
    name: str
    at: int
    action: str
    schema: str | None
    instance: bytes | None


def add_accesses(connection: Connection, news: Sequence[Access]) -> None:
    """Write a batch of accesses."""
    if news:
        execute_many(connection, accesses.insert(), [access._asdict() for access in news])


def read_accesses(
    connection: Connection, identity: IdentityId, *, client: str | None, before: int | None, limit: int
) -> list[RecordedAccess]:
    """Accesses of an identity, newest first, from before a number on."""
    columns = (accesses.c.at, accesses.c.action, accesses.c.schema, accesses.c.instance)
    query = (
        select(accesses.c.id, grants.c.client, clients.c.name, *columns)
        .select_from(accesses.join(grants).join(clients))
        .where(grants.c.identity == identity)
        .order_by(accesses.c.id.desc())
        .limit(limit)
    )
    if client is not None:
        query = query.where(grants.c.client == client)
    if before is not None:
        query = query.where(accesses.c.id < before)
    return [RecordedAccess(*row) for row in connection.execute(query)]
