"""Identities that leave for another node with the help of this one (docs/protocol.md section 7.10).

A row is there while an identity is `leaving`, and stays once it has `moved`. Every transaction that writes for an
identity, or lets it have something, asks for that row.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from inkgrove.core import IdentityId, PublicKey
from inkgrove.store.db.connection import Compiled, CompiledList, in_lists, lock_name
from inkgrove.store.db.node_tables import moves_out

DepartureState = Literal["leaving", "moved"]
"""The new node fetches and has not taken over yet; it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeparture:
    """An identity that leaves for another node, or did."""

    identity: IdentityId
    state: DepartureState
    grant: bytes
    """The hash of the grant, which the new node shows."""
    fqdn: str
    """The name that it has on the new node."""
    endpoint: str
    """Where it is reached there."""
    node_key: PublicKey
    """What the new node signs its requests with."""
    file: str
    """The id of the export that goes there."""
    since: int
    """When it began to leave."""
    controller: PublicKey | None = None
    """Once it has moved: the key that speaks for it there."""
    answer: bytes | None = None
    """What the new node was told then."""


_COLUMNS: Final = [moves_out.c[name] for name in StoredDeparture.__slots__]


def _departure(row: Any) -> StoredDeparture:
    values = dict(zip(StoredDeparture.__slots__, row, strict=True))
    values["identity"] = IdentityId(values["identity"])
    for name in ("node_key", "controller"):
        values[name] = None if values[name] is None else PublicKey(values[name])
    for name in ("grant", "answer"):
        values[name] = None if values[name] is None else bytes(values[name])
    return StoredDeparture(**values)


def put_departure(connection: Connection, departure: StoredDeparture) -> None:
    """Let an identity leave; an earlier move of it, after which it came back, is forgotten."""
    remove_departure(connection, departure.identity)
    connection.execute(insert(moves_out), {name: getattr(departure, name) for name in StoredDeparture.__slots__})


def find_departure(connection: Connection, identity: IdentityId) -> StoredDeparture | None:
    """Find whether and where an identity leaves, or left."""
    row = _of_identity.first(connection, identity=identity)
    return None if row is None else _departure(row)


_of_identity: Final = Compiled(lambda _: select(*_COLUMNS).where(moves_out.c.identity == bindparam("identity")))


def is_moved(connection: Connection, identity: IdentityId) -> bool:
    """Whether an identity has moved to another node with the help of this one, and not come back."""
    departure = find_departure(connection, identity)
    return departure is not None and departure.state == "moved"


def find_departure_by_grant(connection: Connection, grant: bytes) -> StoredDeparture | None:
    """Find a departure by the hash of its grant."""
    row = connection.execute(select(*_COLUMNS).where(moves_out.c.grant == grant)).first()
    return None if row is None else _departure(row)


def lock_departure(connection: Connection, identity: IdentityId) -> StoredDeparture | None:
    """Find the departure of an identity; nobody else changes it before the transaction ends."""
    query = select(*_COLUMNS).where(moves_out.c.identity == identity).with_for_update()
    row = connection.execute(query).first()
    return None if row is None else _departure(row)


def note_moved(connection: Connection, identity: IdentityId, controller: PublicKey, answer: bytes) -> None:
    """Record that an identity has moved, with what the new node is told."""
    values = {"state": "moved", "controller": controller, "answer": answer}
    connection.execute(update(moves_out).where(moves_out.c.identity == identity).values(values))


def remove_departure(connection: Connection, identity: IdentityId) -> None:
    """Let an identity stay, or forget that it was away."""
    connection.execute(delete(moves_out).where(moves_out.c.identity == identity))


def list_overdue_departures(connection: Connection, since: int, now: int) -> list[IdentityId]:
    """List who began to leave before a time and is still here; also at a time that has not come."""
    is_overdue = or_(moves_out.c.since <= since, moves_out.c.since > now)
    query = select(moves_out.c.identity).where(moves_out.c.state == "leaving", is_overdue)
    return [IdentityId(identity) for identity in connection.scalars(query)]


def hold_departures(connection: Connection) -> None:
    """Let nobody begin to leave before this transaction, which gives somebody something, has ended."""
    lock_name(connection, _DEPARTURES, shared=True)


def lock_departures(connection: Connection) -> None:
    """Wait for all transactions that give somebody something; those that begin later see what this one has done."""
    lock_name(connection, _DEPARTURES)


_DEPARTURES: Final = b"departures"
LEAVING: Final = select(moves_out.c.identity).where(moves_out.c.state == "leaving")
"""The ids of those who are about to leave for another node."""


def leaving_among(connection: Connection, ids: Collection[IdentityId]) -> set[IdentityId]:
    """Those of the identities that are about to leave for another node."""
    return {IdentityId(found) for some in in_lists(ids) for (found,) in _leaving.rows(connection, some)}


_leaving: Final = CompiledList(lambda ids: LEAVING.where(moves_out.c.identity.in_(ids)))
