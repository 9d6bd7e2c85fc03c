"""Who owns rows: the identities behind the keys that wrote them, with the names that this node knows."""

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import Connection, MetaData, func, select

from inkgrove.core import IdentityId, PublicKey, identity_of
from inkgrove.store import node_tables
from inkgrove.store.compiled import CompiledList
from inkgrove.store.database import in_lists

_beside = MetaData(schema="node")
_keys, _hosted, _known = (
    table.to_metadata(_beside)
    for table in (node_tables.identity_keys, node_tables.identities, node_tables.known_identities)
)


class Owner(NamedTuple):
    """An identity, and the name it has here or was found under elsewhere; None if it was never looked up."""

    id: IdentityId
    fqdn: str | None


def owners_on(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, Owner]:
    """Whose keys these are, in one query; `connection` is one of the views. An unknown key stands for itself."""
    found = {
        PublicKey(author): Owner(IdentityId(identity), fqdn)
        for some in in_lists(authors)
        for author, identity, fqdn in _owners.rows(connection, some)
    }
    return {author: found.get(author) or Owner(identity_of(author), None) for author in authors}


_owners: Final = CompiledList(
    lambda authors: (
        select(_keys.c.author, _keys.c.identity, func.coalesce(_hosted.c.fqdn, _known.c.fqdn))
        .select_from(
            _keys.outerjoin(_hosted, _hosted.c.id == _keys.c.identity).outerjoin(
                _known, _known.c.id == _keys.c.identity
            )
        )
        .where(_keys.c.author.in_(authors))
    )
)
