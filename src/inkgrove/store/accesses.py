"""The record of what services did for identities (docs/protocol.md section 7)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from inkgrove.core import IdentityId
from inkgrove.store.database import execute_many
from inkgrove.store.node_tables import accesses, clients, grants

UPLOAD: Final = "upload"
DOWNLOAD: Final = "download"


class Access(NamedTuple):
    """One use of a grant."""

    grant: int
    at: int
    action: str
    schema: str | None
    instance: bytes | None
    """Or the blob that was uploaded or downloaded."""


class RecordedAccess(NamedTuple):
    """An access as it is shown to the identity."""

    id: int
    client: str
    name: str
    at: int
    action: str
    schema: str | None
    instance: bytes | None
    blob: bytes | None


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
    return [_recorded(*row) for row in connection.execute(query)]


def _recorded(
    number: int, client: str, name: str, at: int, action: str, schema: str | None, what: bytes | None
) -> RecordedAccess:
    instance, blob = (None, what) if action in (UPLOAD, DOWNLOAD) else (what, None)
    return RecordedAccess(number, client, name, at, action, schema, instance, blob)
