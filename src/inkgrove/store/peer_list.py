"""The nodes that this one replicates from, by the name of an identity there (docs/protocol.md section 8)."""

from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from inkgrove.core import PublicKey
from inkgrove.store.database import insert_new
from inkgrove.store.federation_tables import peers


@dataclass(frozen=True, slots=True)
class Peer:
    """A node to replicate from."""

    fqdn: str
    added: int
    synced: int | None
    """When everything it offers was last taken."""
    error: str | None
    """Why that failed the last time."""
    node_key: PublicKey | None
    position: str | None
    """Up to where its offers were taken, in the words of the node with this key."""


def add_peer(connection: Connection, fqdn: str, now: int) -> bool:
    """Put a node on the list; whether that was news."""
    statement = insert_new(connection, peers).returning(peers.c.fqdn)
    return connection.scalar(statement, {"fqdn": fqdn, "added": now}) is not None


def remove_peer(connection: Connection, fqdn: str) -> bool:
    """Take a node off the list; whether it was on it. What came from there stays."""
    return connection.scalar(delete(peers).where(peers.c.fqdn == fqdn).returning(peers.c.fqdn)) is not None


def list_peers(connection: Connection) -> list[Peer]:
    """Every peer, by name."""
    return [
        Peer(
            row.fqdn,
            row.added,
            row.synced,
            row.error,
            PublicKey(row.node_key) if row.node_key is not None else None,
            row.position,
        )
        for row in connection.execute(select(peers).order_by(peers.c.fqdn))
    ]


def note_synced(connection: Connection, fqdn: str, node_key: PublicKey, position: str, now: int) -> None:
    """Everything was taken up to a position of the peer's."""
    values = {"synced": now, "error": None, "node_key": node_key, "position": position}
    connection.execute(update(peers).where(peers.c.fqdn == fqdn).values(values))


def note_error(connection: Connection, fqdn: str, error: str) -> None:
    """Why a peer could not be replicated from."""
    connection.execute(update(peers).where(peers.c.fqdn == fqdn).values(error=error))
