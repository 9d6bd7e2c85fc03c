"""Services: how they register, get codes and tokens, and lose them again (docs/protocol.md section 7).

OAuth 2.1 for public clients. A code is good for one use and a refresh token too; a second use of either ends the grant,
because somebody else may hold what it gave. A grant that has ended ends all its tokens at once.
"""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from inkgrove.core import IdentityId
from inkgrove.node.errors import OAuthError
from inkgrove.node.identity.caller import Scope
from inkgrove.node.identity.sessions import ACCESS, CODE, REFRESH, hash_token, new_token
from inkgrove.node.runtime.node import Node
from inkgrove.node.services.scopes import render_scopes
from inkgrove.store.db import Connection
from inkgrove.store.node import ActiveGrant, OAuthClient, StoredCode, StoredToken
from inkgrove.store.node import services as store

CODE_SECONDS: Final = 60
MAX_REDIRECT_URIS: Final = 10
MAX_URI_CHARACTERS: Final = 2000
MAX_NAME_CHARACTERS: Final = 80
_SECOND: Final = 1_000_000
_URI = re.compile(r"[!#-\[\]-~]+", re.ASCII)  # printable, no quote, no backslash
_PLACE = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?", re.ASCII)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


# Clients


def register_client(node: Node, name: str, redirect_uris: list[str]) -> OAuthClient:
    """Note a service that will ask identities for access."""
    name = " ".join(name.split())
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise OAuthError(
            "oauth.invalid-client-metadata", f"client_name has 1 to {MAX_NAME_CHARACTERS} printable characters"
        )
    if not 1 <= len(redirect_uris) <= MAX_REDIRECT_URIS or len(set(redirect_uris)) != len(redirect_uris):
        raise OAuthError("oauth.invalid-redirect-uri", f"give 1 to {MAX_REDIRECT_URIS} different redirect_uris")
    for uri in redirect_uris:
        check_redirect_uri(uri)
    client = OAuthClient(node.random_bytes(16).hex(), name, tuple(redirect_uris), node.clock())
    node.database.write(lambda connection: store.add_client(connection, client))
    return client


def check_redirect_uri(uri: str) -> None:
    """Refuse a URI that a code must not be sent to."""
    if len(uri) > MAX_URI_CHARACTERS or not _URI.fullmatch(uri):
        raise OAuthError("oauth.invalid-redirect-uri", "a redirect URI is printable ASCII of at most 2,000 characters")
    try:
        parts = urlsplit(uri)
        host, _port = parts.hostname, parts.port
    except ValueError as err:
        raise OAuthError("oauth.invalid-redirect-uri", f"{uri!r} is no URI") from err
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not host or not is_safe:
        raise OAuthError("oauth.invalid-redirect-uri", f"{uri!r} is neither https nor http on the loopback")
    if "#" in uri or not _PLACE.fullmatch(parts.netloc):
        raise OAuthError("oauth.invalid-redirect-uri", f"{uri!r} has a fragment, a user name or a host that is none")


def find_registered_client(node: Node, client: str) -> OAuthClient | None:
    """A registered service."""
    return node.database.read(lambda connection: store.find_client(connection, client))


# Codes and tokens


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What a service gets; the tokens never show in a repr."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    seconds: int
    scopes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What an identity agreed to."""

    identity: IdentityId
    client: str
    scopes: tuple[Scope, ...]
    redirect_uri: str
    challenge: str


def grant_access(node: Node, consent: Consent, code: str) -> None:
    """Note a grant, and the code that the service gets its tokens with."""
    now, scopes = node.clock(), render_scopes(consent.scopes)

    def work(connection: Connection) -> None:
        grant = store.add_grant(connection, consent.identity, consent.client, scopes, now)
        store.add_code(
            connection,
            hash_token(code),
            grant,
            redirect_uri=consent.redirect_uri,
            challenge=consent.challenge,
            expires=now + CODE_SECONDS * _SECOND,
        )

    node.database.write(work)


def new_code(node: Node) -> str:
    """A code that nobody can guess."""
    return new_token(node, CODE)


def find_usable_code(node: Node, code: str, client: str) -> StoredCode | None:
    """A code of this client that can still be used; a used one ends what it gave."""
    now = node.clock()
    found = node.database.read(lambda connection: store.find_code(connection, hash_token(code)))
    if found is None or found.grant.client != client:
        return None
    if found.is_used:
        node.database.write(lambda connection: store.end_grant(connection, found.grant.id, now))
        return None
    return None if found.expires <= now or found.grant.is_revoked else found


def exchange_code(node: Node, code: str, found: StoredCode) -> IssuedTokens | None:
    """Tokens for a code, once; None, and the end of the grant, if another was faster."""

    def work(connection: Connection) -> IssuedTokens | None:
        if not store.use_code(connection, hash_token(code), node.clock()):
            store.end_grant(connection, found.grant.id, node.clock())
            return None
        return _add_tokens(node, connection, found.grant)

    return node.database.write(work)


def find_usable_refresh_token(node: Node, token: str, client: str) -> StoredToken | None:
    """A refresh token of this client that can still be used; a used one ends the grant."""
    now = node.clock()
    found = node.database.read(lambda connection: store.find_token(connection, hash_token(token)))
    if found is None or found.kind != "refresh" or found.grant.client != client:
        return None
    if found.is_used:
        node.database.write(lambda connection: store.end_grant(connection, found.grant.id, now))
        return None
    return None if found.expires <= now or found.grant.is_revoked else found


def rotate_tokens(node: Node, token: str, found: StoredToken) -> IssuedTokens | None:
    """New tokens for a refresh token, once; None, and the end of the grant, if another was faster."""

    def work(connection: Connection) -> IssuedTokens | None:
        if not store.use_refresh_token(connection, hash_token(token), node.clock()):
            store.end_grant(connection, found.grant.id, node.clock())
            return None
        return _add_tokens(node, connection, found.grant)

    return node.database.write(work)


def _add_tokens(node: Node, connection: Connection, grant: store.StoredGrant) -> IssuedTokens:
    now, settings = node.clock(), node.settings
    access, refresh = new_token(node, ACCESS), new_token(node, REFRESH)
    ends, last = settings.access_token_seconds * _SECOND, settings.refresh_token_seconds * _SECOND
    store.add_token(connection, hash_token(access), grant.id, "access", now + ends)
    store.add_token(connection, hash_token(refresh), grant.id, "refresh", now + last)
    return IssuedTokens(access, refresh, settings.access_token_seconds, grant.scopes)


# The end


def find_issued_token(node: Node, token: str) -> StoredToken | None:
    """A token of any client, be it good or not."""
    return node.database.read(lambda connection: store.find_token(connection, hash_token(token)))


def revoke_token(node: Node, token: str, found: StoredToken) -> None:
    """The service gives a token back: an access token alone, or with the refresh token all that was granted."""

    def work(connection: Connection) -> None:
        if found.kind == "refresh":
            store.end_grant(connection, found.grant.id, node.clock())
        else:
            store.remove_token(connection, hash_token(token))

    node.database.write(work)


def list_services(node: Node, identity: IdentityId) -> list[ActiveGrant]:
    """What services can do for an identity now."""
    node.access_log.flush()
    return node.database.read(lambda connection: store.list_active_grants(connection, identity, node.clock()))


def end_service(node: Node, identity: IdentityId, client: str) -> None:
    """Take back all that the identity granted to a service."""
    ended = node.database.write(lambda connection: store.end_grants_to(connection, identity, client, node.clock()))
    if not ended:
        raise OAuthError("oauth.unknown-service", "you have granted this service nothing, or taken it back already")
