"""Clients, grants, codes, tokens and accesses of services, and counted attempts (docs/protocol.md section 7).

Secrets are stored only as SHA-256. `forget_expired` removes what has run out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, exists, func, insert, or_, select, update

from inkgrove.core import IdentityId
from inkgrove.store.db.connection import Compiled, execute_many, in_lists, insert_new
from inkgrove.store.db.node_tables import accesses, attempts, clients, codes, grants, sessions, tokens

TokenKind = Literal["access", "refresh"]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A service as it registered."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    created: int


class StoredGrant(NamedTuple):
    """What an identity granted to a service."""

    id: int
    identity: IdentityId
    client: str
    scopes: str
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class StoredCode:
    """An authorisation code, without the code itself."""

    grant: StoredGrant
    redirect_uri: str
    challenge: str
    expires: int
    is_used: bool


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token of a service, without the token itself."""

    grant: StoredGrant
    kind: TokenKind
    expires: int
    is_used: bool


_GRANT = (grants.c.id, grants.c.identity, grants.c.client, grants.c.scopes, grants.c.revoked.is_not(None))


# Clients


def add_client(connection: Connection, client: OAuthClient) -> None:
    """Add a service."""
    uris = json.dumps(client.redirect_uris)
    row = {"id": client.id, "name": client.name, "redirect_uris": uris, "created": client.created}
    connection.execute(insert(clients), row)


def find_client(connection: Connection, client: str) -> OAuthClient | None:
    """A service by its id."""
    row = connection.execute(select(clients).where(clients.c.id == client)).first()
    return OAuthClient(row.id, row.name, tuple(json.loads(row.redirect_uris)), row.created) if row is not None else None


# Grants


def add_grant(connection: Connection, identity: IdentityId, client: str, scopes: str, now: int) -> int:
    """Add a grant; gives its number."""
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


class ActiveGrant(NamedTuple):
    """A grant that a service can still use."""

    client: str
    name: str
    scopes: str
    created: int
    last_used: int | None


def list_active_grants(connection: Connection, identity: IdentityId, now: int) -> list[ActiveGrant]:
    """List the grants of an identity that services can use now, oldest first."""
    last_used = select(func.max(accesses.c.at)).where(accesses.c.grant == grants.c.id).scalar_subquery()
    is_alive = exists().where(tokens.c.grant == grants.c.id, tokens.c.expires > now, tokens.c.used.is_(False))
    query = (
        select(grants.c.client, clients.c.name, grants.c.scopes, grants.c.created, last_used)
        .join_from(grants, clients)
        .where(grants.c.identity == identity, grants.c.revoked.is_(None), is_alive)
        .order_by(grants.c.id)
    )
    return [ActiveGrant(*row) for row in connection.execute(query)]


# Codes


def add_code(
    connection: Connection, code: bytes, grant: int, *, redirect_uri: str, challenge: str, expires: int
) -> None:
    """Add a code, by its hash."""
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
    """Add a token, by its hash."""
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


def _grant(columns: tuple[int, bytes, str, str, bool]) -> StoredGrant:
    number, identity, client, scopes, is_revoked = columns
    return StoredGrant(number, IdentityId(identity), client, scopes, bool(is_revoked))


# Accesses


UPLOAD: Final = "upload"
DOWNLOAD: Final = "download"


class ServiceAccess(NamedTuple):
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


def add_accesses(connection: Connection, news: Sequence[ServiceAccess]) -> None:
    """Write a batch of accesses; those of grants that are gone, with the account that gave them, are passed over."""
    # Locked, so that nobody removes one of them before its accesses are written.
    query = select(grants.c.id).with_for_update(read=True, key_share=True)
    numbers = sorted({access.grant for access in news})
    known = {number for some in in_lists(numbers) for number in connection.scalars(query.where(grants.c.id.in_(some)))}
    rows = [access._asdict() for access in news if access.grant in known]
    if rows:
        execute_many(connection, accesses.insert(), rows)


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


# Attempts to sign in or register


def count_attempt(connection: Connection, who: Sequence[str], now: int, window: int) -> dict[str, tuple[int, int]]:
    """Count one attempt for each; the counts with this one, and when the counting of each began."""
    for name in sorted(who):  # always in one order, so that two at once do not wait for each other
        connection.execute(insert_new(connection, attempts), {"who": name, "tries": 0, "since": now})
        # A time that has not come is that of a clock that was wrong: it must not lock anybody out until then.
        is_over = or_(attempts.c.since <= now - window, attempts.c.since > now)
        values = {"tries": case((is_over, 1), else_=attempts.c.tries + 1)}
        values["since"] = case((is_over, now), else_=attempts.c.since)
        connection.execute(update(attempts).where(attempts.c.who == name).values(values))
    query = select(attempts).where(attempts.c.who.in_(who))
    return {row.who: (row.tries, row.since) for row in connection.execute(query)}


def uncount_attempt(connection: Connection, who: Sequence[str]) -> None:
    """Take one attempt of each off the count: it was no failure."""
    for name in sorted(who):
        is_it = (attempts.c.who == name, attempts.c.tries > 0)
        connection.execute(update(attempts).where(*is_it).values(tries=attempts.c.tries - 1))


def has_attempt(connection: Connection, who: str, since: int) -> bool:
    """Whether an attempt is recorded at or after a time."""
    query = select(attempts.c.who).where(attempts.c.who == who, attempts.c.since >= since)
    return connection.scalar(query) is not None


def record_attempt(connection: Connection, who: str, now: int) -> None:
    """Record an attempt, or renew its time."""
    connection.execute(insert_new(connection, attempts), {"who": who, "tries": 0, "since": now})
    connection.execute(update(attempts).where(attempts.c.who == who).values(since=now))


# Expiry


_DAY: Final = 86_400 * 1_000_000
KNOWN_ADDRESS: Final = 90 * _DAY
"""How long an address counts as one from which an identity signs in."""
UNUSED_CLIENT: Final = 30 * _DAY


def forget_expired(connection: Connection, now: int, *, accesses_since: int) -> None:
    """Remove what no look-up would find any more; a used refresh token stays until it would have expired.

    Of the record of accesses what is older than `accesses_since` goes.
    """
    connection.execute(delete(accesses).where(accesses.c.at < accesses_since))
    connection.execute(delete(sessions).where(sessions.c.expires <= now))
    connection.execute(delete(codes).where(codes.c.expires <= now - _DAY))  # a replay is noticed for a day
    connection.execute(delete(tokens).where(tokens.c.expires <= now))
    connection.execute(delete(attempts).where(attempts.c.since <= now - KNOWN_ADDRESS))
    unused = ~exists().where(grants.c.client == clients.c.id)
    old = select(clients.c.id).where(clients.c.created <= now - UNUSED_CLIENT, unused)
    # Those that somebody is granting something to are passed over; to the others nobody can before they are gone.
    names = connection.scalars(old.with_for_update(skip_locked=True)).all()
    for some in in_lists(names):
        connection.execute(delete(clients).where(clients.c.id.in_(some), unused))


def end_all_sign_ins(connection: Connection) -> None:
    """End every session and remove every code and token."""
    for table in (sessions, codes, tokens):
        connection.execute(delete(table))
