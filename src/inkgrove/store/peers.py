"""What a node remembers of others, identities elsewhere and requests already seen, and its own key for asking them.

docs/protocol.md sections 7.1 and 8.9.
"""

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, delete, insert, select

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.store.database import insert_new
from inkgrove.store.node_tables import identity_keys, known_identities, node_keys, nonces


@dataclass(frozen=True, slots=True)
class KnownIdentity:
    """An identity that another node serves, as it was found and proved."""

    id: IdentityId
    fqdn: str
    endpoint: str
    """Where its node is reached, by its signed document."""
    key: PublicKey
    """The first one, whose thumbprint the id is."""
    document_seq: int
    node_key: PublicKey
    """What requests of its node are signed with."""
    fetched: int
    expires: int


def find_known(connection: Connection, name: str | IdentityId) -> KnownIdentity | None:
    """An identity elsewhere by its FQDN or id, expired or not."""
    column = known_identities.c.id if isinstance(name, bytes) else known_identities.c.fqdn
    row = connection.execute(select(known_identities).where(column == name)).first()
    if row is None:
        return None
    return KnownIdentity(
        IdentityId(row.id),
        row.fqdn,
        row.endpoint,
        PublicKey(row.key),
        row.document_seq,
        PublicKey(row.node_key),
        row.fetched,
        row.expires,
    )


def put_known(connection: Connection, known: KnownIdentity) -> None:
    """Remember an identity in place of what was known of it, and of whoever had its name before."""
    forget_known(connection, known.id)
    connection.execute(delete(known_identities).where(known_identities.c.fqdn == known.fqdn))
    row = {name: getattr(known, name) for name in KnownIdentity.__slots__}
    # If two processes learn of two identities of one name at once, either may stay: both were there.
    connection.execute(insert_new(connection, known_identities), row)


def forget_known(connection: Connection, identity: IdentityId) -> None:
    """Forget where an identity is."""
    connection.execute(delete(known_identities).where(known_identities.c.id == identity))


def drop_other_keys(connection: Connection, identity: IdentityId, keys: Collection[PublicKey]) -> None:
    """Forget all keys of an identity but these; those that this node keeps stay."""
    rows = identity_keys.c
    is_dropped = (rows.identity == identity) & rows.sealed.is_(None) & rows.author.not_in(list(keys))
    connection.execute(delete(identity_keys).where(is_dropped))


# Requests


def use_nonce(connection: Connection, sender: str, nonce: str, *, now: int, expires: int) -> bool:
    """Note that a signed request was received; False if it was before."""
    connection.execute(delete(nonces).where(nonces.c.expires < now))
    row = {"nonce": sha256(f"{sender} {nonce}".encode()).digest(), "expires": expires}
    return connection.execute(insert_new(connection, nonces).returning(nonces.c.nonce), row).first() is not None


# The node's own key


def newest_node_key(connection: Connection) -> tuple[PublicKey, bytes] | None:
    """The key that this node signs requests with, and its encrypted secret."""
    row = connection.execute(select(node_keys).order_by(node_keys.c.id.desc()).limit(1)).first()
    return (PublicKey(row.key), row.sealed) if row is not None else None


def add_node_key(connection: Connection, key: PublicKey, sealed: bytes, created: int) -> None:
    """Put a new key in place of the one before."""
    connection.execute(insert(node_keys), {"key": key, "sealed": sealed, "created": created})
