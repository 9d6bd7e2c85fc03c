"""Sign-ins, and who holds a token (docs/protocol.md section 7).

Every token begins with a word on what it is, so that one look-up tells who holds it. Only SHA-256 of it is stored.
"""

from dataclasses import replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.keys import IdentityId
from inkgrove.node.accesses import record
from inkgrove.node.attempts import begin_sign_in, succeed
from inkgrove.node.caller import ANYBODY, Caller, Scope, parse_scope
from inkgrove.node.errors import BadPassword, BadToken
from inkgrove.node.name_rules import bind_if_given, is_administrator
from inkgrove.node.node import Node
from inkgrove.node.passwords import hash_password, is_password
from inkgrove.store.node import (
    HostedIdentity,
    add_session,
    end_sessions,
    find_identity,
    find_session,
    find_token,
    lock_password,
    set_password,
)

SESSION, ACCESS, REFRESH, CODE = "ink_s_", "ink_a_", "ink_r_", "ink_c_"
_SECOND: Final = 1_000_000
_WRONG: Final = "the name or the password is wrong"


def new_token(node: Node, prefix: str) -> str:
    """A token that nobody can guess."""
    return prefix + node.random_bytes(32).hex()


def hash_token(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode()).digest()


def sign_in(node: Node, name: str, password: str, address: str = "") -> tuple[str, int]:
    """A token for the identity itself, and when it ends; takes as long whether the name exists or not."""
    hosted = _check(node, name, password, address)
    token, expires = new_token(node, SESSION), node.clock() + node.settings.session_seconds * _SECOND

    def work(connection: Connection) -> None:
        # To change a password ends all sign-ins: also one that was about to begin with the old one.
        if lock_password(connection, hosted.id) != hosted.password:
            raise BadPassword(_WRONG)
        add_session(connection, hash_token(token), hosted.id, expires)
        bind_if_given(connection, node, hosted.fqdn, hosted.id)

    node.database.write(work)
    return token, expires


def check_own_password(node: Node, identity: IdentityId, password: str, address: str) -> None:
    """Raise unless the password of an identity is right; attempts are limited."""
    hosted = node.database.read(lambda connection: find_identity(connection, identity))
    if hosted is None:
        raise BadPassword(_WRONG)
    _check(node, hosted.fqdn, password, address)


def _check(node: Node, name: str, password: str, address: str) -> HostedIdentity:
    name = name.lower().rstrip(".")
    counted = begin_sign_in(node, name, address)
    hosted = node.database.read(lambda connection: find_identity(connection, name))
    if not is_password(hosted.password if hosted is not None else None, password) or hosted is None:
        raise BadPassword(_WRONG)
    succeed(node, name, address, counted)
    return hosted


def change_password(node: Node, identity: IdentityId, password: str) -> None:
    """Set a new password and end all sign-ins."""
    hashed = hash_password(password)

    def work(connection: Connection) -> None:
        set_password(connection, identity, hashed)
        end_sessions(connection, identity=identity)

    node.database.write(work)


def sign_out(node: Node, token: str) -> None:
    """End a sign-in."""
    node.database.write(lambda connection: end_sessions(connection, token=hash_token(token)))


def authenticate(node: Node, token: str | None) -> Caller:
    """Who holds this token; without one, anybody."""
    if token is None:
        return ANYBODY
    return node.database.read(lambda connection: authenticate_on(connection, node, token))


def authenticate_on(connection: Connection, node: Node, token: str) -> Caller:
    """Who holds this token, as this transaction sees it."""
    find = {SESSION: _find_identity, ACCESS: _find_service}.get(token[: len(SESSION)])
    caller = find(connection, node, hash_token(token)) if find is not None else None
    if caller is None:
        raise BadToken(
            "the token is not known here, has expired or was revoked: sign in again (POST /sessions); a service"
            " refreshes its token (POST /oauth/token)"
        )
    return caller


def _find_identity(connection: Connection, node: Node, token: bytes) -> Caller | None:
    found = find_session(connection, token, node.clock())
    return Caller(found[0], is_administrator=is_administrator(node, found[1])) if found is not None else None


def _find_service(connection: Connection, node: Node, token: bytes) -> Caller | None:
    found = find_token(connection, token)
    if found is None or found.kind != "access" or found.expires <= node.clock() or found.grant.is_revoked:
        return None
    grant = found.grant
    caller = Caller(grant.identity, grant.id, grant.client, parse_scopes(grant.scopes))
    return replace(caller, note=partial(record, node, caller))


@lru_cache(maxsize=4096)
def parse_scopes(text: str) -> frozenset[Scope]:
    """Scopes as a grant holds them."""
    return frozenset(parse_scope(scope) for scope in text.split())
