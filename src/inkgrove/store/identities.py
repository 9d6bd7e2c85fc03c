"""Hosted identities, their keys and sign-ins, in the node's database (docs/protocol.md section 7)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.store.compiled import Compiled, CompiledList
from inkgrove.store.database import TryAgain, in_lists, insert_new
from inkgrove.store.node_tables import identities, identity_keys, sessions
from inkgrove.store.revocations import Ends, ends_of, parse_ends, set_key_ends


@dataclass(frozen=True, slots=True)
class HostedIdentity:
    """An identity that this node serves."""

    id: IdentityId
    fqdn: str
    key: PublicKey
    password: str | None
    created: int


def add_identity(connection: Connection, identity: HostedIdentity, sealed: bytes | None) -> bool:
    """Host an identity; False if its name or id is taken."""
    row = {
        "id": identity.id,
        "fqdn": identity.fqdn,
        "key": identity.key,
        "password": identity.password,
        "created": identity.created,
    }
    added = connection.execute(insert_new(connection, identities).returning(identities.c.id), row).first()
    if added is None:
        return False
    put_key(connection, identity.key, identity.id, sealed)
    return True


def find_identity(connection: Connection, name: str | IdentityId) -> HostedIdentity | None:
    """A hosted identity by its FQDN or id."""
    if isinstance(name, str) and not (name.isascii() and name.isprintable()):
        return None  # nobody has such a name, and PostgreSQL refuses to look for some
    row = (_with_id if isinstance(name, bytes) else _with_name).first(connection, name=name)
    if row is None:
        return None
    number, fqdn, key, password, created = row
    return HostedIdentity(IdentityId(number), fqdn, PublicKey(key), password, created)


_IDENTITY: Final = select(
    identities.c.id, identities.c.fqdn, identities.c.key, identities.c.password, identities.c.created
)
_with_id: Final = Compiled(lambda _: _IDENTITY.where(identities.c.id == bindparam("name")))
_with_name: Final = Compiled(lambda _: _IDENTITY.where(identities.c.fqdn == bindparam("name")))


def list_identities(connection: Connection) -> list[HostedIdentity]:
    """Every hosted identity, by name."""
    return [
        HostedIdentity(IdentityId(row.id), row.fqdn, PublicKey(row.key), row.password, row.created)
        for row in connection.execute(select(identities).order_by(identities.c.fqdn))
    ]


def set_fqdn(connection: Connection, identity: IdentityId, fqdn: str) -> None:
    """Give a hosted identity another name, which nobody has."""
    try:
        connection.execute(update(identities).where(identities.c.id == identity).values(fqdn=fqdn))
    except IntegrityError as err:
        raise TryAgain from err  # somebody has taken it since this transaction looked


def set_password(connection: Connection, identity: IdentityId, password: str | None) -> None:
    """Replace the argon2 hash of an identity's password."""
    connection.execute(update(identities).where(identities.c.id == identity).values(password=password))


def lock_password(connection: Connection, identity: IdentityId) -> str | None:
    """The argon2 hash of an identity's password, which nobody changes before this transaction has ended."""
    query = select(identities.c.password).where(identities.c.id == identity)
    return connection.scalar(query.with_for_update(read=True))


# Keys


def put_key(connection: Connection, author: PublicKey, identity: IdentityId, sealed: bytes | None = None) -> None:
    """Note whose key this is; a key has one identity for good."""
    _put_key.run(connection, new_author=author, new_identity=identity, new_sealed=sealed)


_put_key: Final = Compiled(
    lambda connection: insert_new(connection, identity_keys).values(
        {name: bindparam(f"new_{name}") for name in ("author", "identity", "sealed")}
    )
)


class KeyStanding(NamedTuple):
    """Whose key this is, and how far it counts."""

    identity: IdentityId
    ends: Ends | None
    """For a revoked key: how far its logs count."""


def key_standing(connection: Connection, author: PublicKey) -> KeyStanding | None:
    """What is known of a key; None if it is no identity's."""
    row = _standing.first(connection, author=author)
    if row is None:
        return None
    identity, revoked = row
    return KeyStanding(IdentityId(identity), None if revoked is None else parse_ends(revoked))


_standing: Final = Compiled(
    lambda _: select(identity_keys.c.identity, identity_keys.c.revoked).where(
        identity_keys.c.author == bindparam("author")
    )
)


def remove_keys(connection: Connection, authors: Collection[PublicKey]) -> None:
    """Forget that these keys are anybody's, and so that anybody has revoked them."""
    for author in sorted(ends_of(connection, authors)):
        set_key_ends(connection, author, None)
    connection.execute(delete(identity_keys).where(identity_keys.c.author.in_(authors)))


def keys_of(connection: Connection, identity: IdentityId) -> list[PublicKey]:
    """The keys that are known to be an identity's."""
    query = select(identity_keys.c.author).where(identity_keys.c.identity == identity).order_by(identity_keys.c.author)
    return [PublicKey(author) for author in connection.scalars(query)]


def identities_of(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, IdentityId]:
    """Whose keys these are, as far as it is known."""
    return {
        PublicKey(author): IdentityId(identity)
        for some in in_lists(authors)
        for author, identity in _owners.rows(connection, some)
    }


_owners: Final = CompiledList(
    lambda authors: select(identity_keys.c.author, identity_keys.c.identity).where(identity_keys.c.author.in_(authors))
)


def sealed_key(connection: Connection, author: PublicKey) -> bytes | None:
    """The encrypted secret of a key, if this node keeps it."""
    return connection.scalar(select(identity_keys.c.sealed).where(identity_keys.c.author == author))


# Sign-ins


def add_session(connection: Connection, token: bytes, identity: IdentityId, expires: int) -> None:
    """Note a sign-in, by the hash of its token."""
    connection.execute(insert(sessions), {"token": token, "identity": identity, "expires": expires})


def find_session(connection: Connection, token: bytes, now: int) -> tuple[IdentityId, str] | None:
    """Who signed in with this token, by id and name, unless that has ended."""
    row = _session.first(connection, token=token, now=now)
    return (IdentityId(row[0]), row[1]) if row is not None else None


_session: Final = Compiled(
    lambda _: (
        select(sessions.c.identity, identities.c.fqdn)
        .join_from(sessions, identities)
        .where(sessions.c.token == bindparam("token"), sessions.c.expires > bindparam("now"))
    )
)


def end_sessions(connection: Connection, *, token: bytes | None = None, identity: IdentityId | None = None) -> None:
    """End one sign-in, or all of an identity."""
    connection.execute(delete(sessions).where(or_(sessions.c.token == token, sessions.c.identity == identity)))
