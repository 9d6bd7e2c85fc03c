"""Clients, grants, codes and tokens of services (docs/protocol.md section 7); secrets only as SHA-256."""

import json
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select, update

from inkgrove.core import IdentityId
from inkgrove.store.compiled import Compiled
from inkgrove.store.node_tables import accesses, clients, codes, grants, tokens

TokenKind = Literal["access", "refresh"]


@dataclass(frozen=True, slots=True)
class Client:
    """A service as it registered."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    created: int


class Grant(NamedTuple):
    """What an identity granted to a service."""

    id: int
    identity: IdentityId
    client: str
    scopes: str
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class StoredCode:
    """An authorisation code, without the code itself."""

    grant: Grant
    redirect_uri: str
    challenge: str
    expires: int
    is_used: bool


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token of a service, without the token itself."""

    grant: Grant
    kind: TokenKind
    expires: int
    is_used: bool


_GRANT = (grants.c.id, grants.c.identity, grants.c.client, grants.c.scopes, grants.c.revoked.is_not(None))


# Clients


def add_client(connection: Connection, client: Client) -> None:
    """Note a service."""
    uris = json.dumps(client.redirect_uris)
    row = {"id": client.id, "name": client.name, "redirect_uris": uris, "created": client.created}
    connection.execute(insert(clients), row)


def find_client(connection: Connection, client: str) -> Client | None:
    """A service by its id."""
    row = connection.execute(select(clients).where(clients.c.id == client)).first()
    return Client(row.id, row.name, tuple(json.loads(row.redirect_uris)), row.created) if row is not None else None


# Grants


def add_grant(connection: Connection, identity: IdentityId, client: str, scopes: str, now: int) -> int:
    """Note what an identity granted; the number of the grant."""
    values = {"identity": identity, "client": client, "scopes": scopes, "created": now}
    number: int = connection.execute(insert(grants).values(values).returning(grants.c.id)).scalar_one()
    return number


def end_grant(connection: Connection, grant: int, now: int) -> None:
    """End a grant, and with it every token of it."""
    connection.execute(update(grants).where(grants.c.id == grant, grants.c.revoked.is_(None)).values(revoked=now))


def end_grants_to(connection: Connection, identity: IdentityId, client: str, now: int) -> bool:
    """End all that an identity granted to a service; whether there was anything."""
    theirs = (grants.c.identity == identity, grants.c.client == client, grants.c.revoked.is_(None))
    return bool(connection.execute(update(grants).where(*theirs).values(revoked=now)).rowcount)


class LivingGrant(NamedTuple):
    """A grant that a service can still use."""

    client: str
    name: str
    scopes: str
    created: int
    last_used: int | None


def living_grants(connection: Connection, identity: IdentityId, now: int) -> list[LivingGrant]:
    """What services can use of an identity's now, oldest first."""
    last_used = select(func.max(accesses.c.at)).where(accesses.c.grant == grants.c.id).scalar_subquery()
    is_alive = exists().where(tokens.c.grant == grants.c.id, tokens.c.expires > now, tokens.c.used.is_(False))
    query = (
        select(grants.c.client, clients.c.name, grants.c.scopes, grants.c.created, last_used)
        .join_from(grants, clients)
        .where(grants.c.identity == identity, grants.c.revoked.is_(None), is_alive)
        .order_by(grants.c.id)
    )
    return [LivingGrant(*row) for row in connection.execute(query)]


# Codes


def add_code(
    connection: Connection, code: bytes, grant: int, *, redirect_uri: str, challenge: str, expires: int
) -> None:
    """Note a code, by its hash."""
    row = {"code": code, "grant": grant, "redirect_uri": redirect_uri, "challenge": challenge}
    connection.execute(insert(codes), {**row, "expires": expires, "used": False})


def find_code(connection: Connection, code: bytes) -> StoredCode | None:
    """A code, be it used or expired."""
    query = select(codes, *_GRANT).join_from(codes, grants).where(codes.c.code == code)
    row = connection.execute(query).first()
    if row is None:
        return None
    return StoredCode(_grant(row[-5:]), row.redirect_uri, row.challenge, row.expires, row.used)


def use_code(connection: Connection, code: bytes, now: int) -> bool:
    """Use a code up; False if it is unknown, expired or used already."""
    is_good = (codes.c.code == code, codes.c.used.is_(False), codes.c.expires > now)
    return connection.execute(update(codes).where(*is_good).values(used=True)).rowcount == 1


# Tokens


def add_token(connection: Connection, token: bytes, grant: int, kind: TokenKind, expires: int) -> None:
    """Note a token, by its hash."""
    row = {"token": token, "grant": grant, "kind": kind, "expires": expires, "used": False}
    connection.execute(insert(tokens), row)


def find_token(connection: Connection, token: bytes) -> StoredToken | None:
    """A token, be it used, expired or revoked."""
    row = _token.first(connection, token=token)
    return StoredToken(_grant(row[:5]), row[5], row[6], bool(row[7])) if row is not None else None


_token: Final = Compiled(
    lambda _: (
        select(*_GRANT, tokens.c.kind, tokens.c.expires, tokens.c.used)
        .join_from(tokens, grants)
        .where(tokens.c.token == bindparam("token"))
    )
)


def use_refresh_token(connection: Connection, token: bytes, now: int) -> bool:
    """Use a refresh token up; False if it is unknown, expired or used already."""
    is_good = (tokens.c.token == token, tokens.c.kind == "refresh", tokens.c.used.is_(False), tokens.c.expires > now)
    return connection.execute(update(tokens).where(*is_good).values(used=True)).rowcount == 1


def remove_token(connection: Connection, token: bytes) -> None:
    """Forget a token."""
    connection.execute(delete(tokens).where(tokens.c.token == token))


def _grant(columns: tuple[int, bytes, str, str, bool]) -> Grant:
    number, identity, client, scopes, is_revoked = columns
    return Grant(number, IdentityId(identity), client, scopes, bool(is_revoked))
