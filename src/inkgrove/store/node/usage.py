"""How much hosted identities have stored here, and what each may (docs/security.md, quotas).

The counts are kept in the transactions that store something; nothing is counted again when somebody asks.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, case, select, update
from sqlalchemy.dialects import postgresql, sqlite

from inkgrove.core import Hash, IdentityId
from inkgrove.store.db.connection import Compiled, CompiledList, in_lists
from inkgrove.store.db.node_tables import blob_rights, identity_usage


class StoredAmounts(NamedTuple):
    """Entries, bytes of their payloads, and bytes of uploaded blobs."""

    entries: int = 0
    payload_bytes: int = 0
    blob_bytes: int = 0


NO_AMOUNTS: Final = StoredAmounts()


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """What an identity has stored, and the limits that the administrator gave to it alone."""

    used: StoredAmounts = NO_AMOUNTS
    entries: int | None = None
    """None: as the settings say."""
    payload_bytes: int | None = None
    blob_bytes: int | None = None


_USED: Final = ("entries", "payload_bytes", "blob_bytes")
_LIMITS: Final = ("max_entries", "max_payload_bytes", "max_blob_bytes")
_columns: Final = [identity_usage.c[name] for name in ("identity", *_USED, *_LIMITS)]
_read: Final = CompiledList(lambda wanted: select(*_columns).where(identity_usage.c.identity.in_(wanted)))


def usage_of(connection: Connection, identities: Collection[IdentityId]) -> dict[IdentityId, StorageUsage]:
    """Read what each of these identities has stored."""
    found = {
        IdentityId(row[0]): StorageUsage(StoredAmounts(*row[1:4]), *row[4:])
        for some in in_lists(sorted(identities))
        for row in _read.rows(connection, some)
    }
    return {identity: found.get(identity) or StorageUsage() for identity in identities}


def add_usage(connection: Connection, identity: IdentityId, more: StoredAmounts) -> None:
    """Add what this transaction stores for an identity."""
    _add.run(connection, identity=identity, **more._asdict())


def _build_add(connection: Connection) -> postgresql.Insert | sqlite.Insert:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(identity_usage).values({name: bindparam(name) for name in ("identity", *_USED)})
    sums = {name: identity_usage.c[name] + statement.excluded[name] for name in _USED}
    return statement.on_conflict_do_update(index_elements=["identity"], set_=sums)


_add: Final = Compiled(_build_add)


def lock_usage(connection: Connection, identity: IdentityId) -> StorageUsage:
    """Read what an identity has stored; until the transaction ends, nobody else adds to it."""
    add_usage(connection, identity, NO_AMOUNTS)
    return usage_of(connection, [identity])[identity]


def forget_blob_usage(connection: Connection, content: Hash, size: int) -> None:
    """Give a blob that is being removed back to all who uploaded it."""
    holders = connection.scalars(select(blob_rights.c.identity).where(blob_rights.c.hash == content)).all()
    left = identity_usage.c.blob_bytes - size
    values = {"blob_bytes": case((left > 0, left), else_=0)}
    for identity in sorted(holders):  # in the order in which all lock them
        connection.execute(update(identity_usage).where(identity_usage.c.identity == identity).values(values))


def set_limits(connection: Connection, identity: IdentityId, limits: dict[str, int | None]) -> None:
    """Give an identity limits of its own, by `entries`, `payload_bytes` or `blob_bytes`; None: as the settings say."""
    if not limits:
        return
    add_usage(connection, identity, NO_AMOUNTS)
    values = {f"max_{name}": limit for name, limit in limits.items()}
    connection.execute(update(identity_usage).where(identity_usage.c.identity == identity).values(values))
