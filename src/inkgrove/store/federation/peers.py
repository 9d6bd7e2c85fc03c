"""Other nodes in SQL: identities elsewhere, nonces of requests, our own key for requests, peers to replicate from.

docs/protocol.md sections 7.1, 8 and 8.9.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from inkgrove.core import IdentityId, PublicKey
from inkgrove.store.db.connection import Compiled, insert_new, lock_table
from inkgrove.store.db.log_tables import logs, schemas
from inkgrove.store.db.node_tables import (
    accepted_senders,
    deliveries,
    identity_keys,
    known_identities,
    node_keys,
    nonces,
    notices,
    peers,
    relations,
    request_box,
    shares,
    wanted_schemas,
)


@dataclass(frozen=True, slots=True)
class RemoteIdentity:
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

    @property
    def has_moved(self) -> bool:
        """Whether its newest document names another place: nothing is sent to this one any more."""
        return self.expires == MOVED


MOVED: Final = -1
"""The expiry of where an identity was found, once its newest document leads elsewhere."""


def find_remote_identity(connection: Connection, name: str | IdentityId) -> RemoteIdentity | None:
    """An identity elsewhere by its FQDN or id, expired or not."""
    row = (_with_id if isinstance(name, bytes) else _with_name).first(connection, name=name)
    if row is None:
        return None
    number, fqdn, endpoint, key, document_seq, node_key, fetched, expires = row
    return RemoteIdentity(
        IdentityId(number), fqdn, endpoint, PublicKey(key), document_seq, PublicKey(node_key), fetched, expires
    )


_KNOWN: Final = select(*(known_identities.c[name] for name in RemoteIdentity.__slots__))
_with_id: Final = Compiled(lambda _: _KNOWN.where(known_identities.c.id == bindparam("name")))
_with_name: Final = Compiled(lambda _: _KNOWN.where(known_identities.c.fqdn == bindparam("name")))


def forget_remote_name(connection: Connection, fqdn: str) -> None:
    """Forget who is elsewhere under a name."""
    _forget_name.run(connection, name=fqdn)


def put_remote_identity(connection: Connection, known: RemoteIdentity) -> None:
    """Remember an identity instead of what was known of it, and of another one that had its name before."""
    forget_remote_identity(connection, known.id)
    forget_remote_name(connection, known.fqdn)
    # If two processes learn of two identities of one name at once, either may stay: both were there.
    _put_known.run(connection, **{f"new_{name}": getattr(known, name) for name in RemoteIdentity.__slots__})


_forget_name: Final = Compiled(lambda _: delete(known_identities).where(known_identities.c.fqdn == bindparam("name")))
_put_known: Final = Compiled(
    lambda connection: insert_new(connection, known_identities).values(
        {name: bindparam(f"new_{name}") for name in RemoteIdentity.__slots__}
    )
)


def forget_remote_identity(connection: Connection, identity: IdentityId) -> None:
    """Forget where an identity is."""
    _forget_known.run(connection, identity=identity)


_forget_known: Final = Compiled(
    lambda _: delete(known_identities).where(known_identities.c.id == bindparam("identity"))
)


def forget_strangers(connection: Connection, expired_before: int) -> int:
    """Forget where identities are that nothing here refers to; returns how many there were.

    What they signed stays, since entries are never dropped: if they come again, a contradiction with it is noticed.
    """
    mentioned = (
        relations.c.follower,
        relations.c.followee,
        shares.c.identity,
        deliveries.c.recipient,
        request_box.c.via,
        accepted_senders.c.sender,
        notices.c.other,
        wanted_schemas.c.via,
    )
    keys = select(identity_keys.c.identity).where(
        identity_keys.c.author.in_(select(logs.c.author).where(logs.c.log_id > 0))
        | identity_keys.c.author.in_(select(schemas.c.author))
    )
    found = delete(known_identities).where(
        known_identities.c.expires < expired_before,
        known_identities.c.fqdn.not_in(select(peers.c.fqdn)),
        known_identities.c.id.not_in(keys),
        *(known_identities.c.id.not_in(select(column).where(column.is_not(None))) for column in mentioned),
    )
    return connection.execute(found).rowcount


# Requests


def use_nonce(connection: Connection, sender: str, nonce: str, *, now: int, expires: int) -> bool:
    """Record the nonce of a signed request; returns False if it was used before."""
    _forget_nonces.run(connection, now=now)
    digest = sha256(f"{sender} {nonce}".encode()).digest()
    return _use_nonce.first(connection, digest=digest, until=expires) is not None


_forget_nonces: Final = Compiled(lambda _: delete(nonces).where(nonces.c.expires < bindparam("now")))
_use_nonce: Final = Compiled(
    lambda connection: (
        insert_new(connection, nonces)
        .values(nonce=bindparam("digest"), expires=bindparam("until"))
        .returning(nonces.c.nonce)
    )
)


# The node's own key


def newest_node_key(connection: Connection) -> tuple[PublicKey, bytes] | None:
    """The key that this node signs requests with, and its encrypted secret."""
    row = _newest_key.first(connection)
    return (PublicKey(row[0]), row[1]) if row is not None else None


_newest_key: Final = Compiled(
    lambda _: select(node_keys.c.key, node_keys.c.sealed).order_by(node_keys.c.id.desc()).limit(1)
)


def lock_node_keys(connection: Connection) -> None:
    """Lock the table of node keys until the transaction ends."""
    lock_table(connection, node_keys)


def add_node_key(connection: Connection, key: PublicKey, sealed: bytes, created: int) -> None:
    """Add a key, which is used from now on instead of the one before."""
    connection.execute(insert(node_keys), {"key": key, "sealed": sealed, "created": created})


# Peers


@dataclass(frozen=True, slots=True)
class Peer:
    """A node to replicate from, by the name of an identity there."""

    fqdn: str
    added: int
    synced: int | None
    """When everything it offers was last taken."""
    error: str | None
    """Why that failed the last time."""
    node_key: PublicKey | None
    position: str | None
    """Up to where its offers were taken: a token of the node with this key."""


def add_peer(connection: Connection, fqdn: str, now: int) -> bool:
    """Put a node on the list of peers; returns whether it was not on it."""
    statement = insert_new(connection, peers).returning(peers.c.fqdn)
    return connection.scalar(statement, {"fqdn": fqdn, "added": now}) is not None


def remove_peer(connection: Connection, fqdn: str) -> bool:
    """Take a node off the list; returns whether it was on it. What came from there stays."""
    return connection.scalar(delete(peers).where(peers.c.fqdn == fqdn).returning(peers.c.fqdn)) is not None


def list_peers(connection: Connection) -> list[Peer]:
    """Every peer, by name."""
    return [
        Peer(row.fqdn, row.added, row.synced, row.error, row.node_key and PublicKey(row.node_key), row.position)
        for row in connection.execute(select(peers).order_by(peers.c.fqdn))
    ]


def note_synced(connection: Connection, fqdn: str, node_key: PublicKey, position: str, now: int) -> None:
    """Record that everything was taken up to a position of the peer's."""
    values = {"synced": now, "error": None, "node_key": node_key, "position": position}
    connection.execute(update(peers).where(peers.c.fqdn == fqdn).values(values))


def note_error(connection: Connection, fqdn: str, error: str) -> None:
    """Record why a peer could not be replicated from."""
    connection.execute(update(peers).where(peers.c.fqdn == fqdn).values(error=error))
