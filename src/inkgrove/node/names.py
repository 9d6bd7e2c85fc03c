"""The names of identities and of whoever a key belongs to, as far as this node knows them."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.node.node import Node
from inkgrove.store.federation import find_remote_identity
from inkgrove.store.node import find_identity, identities_of


def name_on(connection: Connection, identity: IdentityId) -> str | None:
    """The name of an identity that lives here or was found elsewhere; of one that moved away, where it was found."""
    hosted = find_identity(connection, identity)
    if hosted is not None and hosted.lives_here:
        return hosted.fqdn
    known = find_remote_identity(connection, identity) or hosted
    return None if known is None else known.fqdn


def names_on(connection: Connection, authors: Collection[PublicKey]) -> Mapping[PublicKey, str]:
    """The names of those whose keys these are."""
    owners = {key: name_on(connection, identity) for key, identity in identities_of(connection, authors).items()}
    return {key: name for key, name in owners.items() if name is not None}


def name_of_identity(node: Node, identity: IdentityId) -> str | None:
    """The name of an identity."""
    return node.database.read(lambda connection: name_on(connection, identity))


def name_of_author(node: Node, author: PublicKey) -> str | None:
    """The name of whoever a key belongs to."""
    return names_of_authors(node, [author]).get(author)


def names_of_authors(node: Node, authors: Collection[PublicKey]) -> Mapping[PublicKey, str]:
    """The names of those whose keys these are."""
    return node.database.read(lambda connection: names_on(connection, authors))
