"""Identities that come here from another node: how far each has come (docs/protocol.md section 7.10).

There is one arrival of an identity at a time. A row stays after the identity lives here, for whoever has its token, and
is forgotten some time later.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, delete, func, insert, select, update

from inkgrove.core import IdentityId, PublicKey
from inkgrove.store.db.node_tables import moves_in

ArrivalState = Literal["asked", "fetching", "arriving", "committing", "here"]
"""Wanted; what is there is fetched; it is taken in; the document is waited for; the identity lives here."""
ArrivalWay = Literal["helped", "file", "friends"]
"""The old node helps; the person brings a file; friends are asked for what they hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArrival:
    """An identity that comes here, as it is stored."""

    identity: IdentityId
    id: str
    token: bytes
    """The hash of the token that shows how far it has come."""
    state: ArrivalState
    way: ArrivalWay
    key: PublicKey
    """The first key."""
    fqdn: str
    """The name that it takes here."""
    password: str | None
    controller: PublicKey
    """The key that this node will speak for it with."""
    sealed: bytes
    """The secret of the controller, sealed by the vault; empty once the identity lives here."""
    key_of: bytes
    """Entry 1 of log 0 of the controller."""
    request: str
    """JSON: what was asked for, by way."""
    grant_sealed: bytes | None = None
    """What the old node gave to a helped move, sealed by the vault."""
    facts: str = "{}"
    """JSON: what has been found out on the way."""
    answer: str | None = None
    """JSON: the entries that have made it live here."""
    code: str | None = None
    """Why it does not go on."""
    reason: str | None = None
    begun: int
    changed: int
    finished: int | None = None
    """When all that follows `here` was done too."""


_COLUMNS: Final = [moves_in.c[name] for name in StoredArrival.__slots__]


def _arrival(row: Any) -> StoredArrival:
    values = dict(zip(StoredArrival.__slots__, row, strict=True))
    values["identity"] = IdentityId(values["identity"])
    for name in ("key", "controller"):
        values[name] = PublicKey(values[name])
    for name in ("token", "sealed", "key_of", "grant_sealed"):
        values[name] = None if values[name] is None else bytes(values[name])
    return StoredArrival(**values)


def put_arrival(connection: Connection, arrival: StoredArrival) -> None:
    """Begin an arrival, in the place of an earlier one of the same identity."""
    connection.execute(delete(moves_in).where(moves_in.c.identity == arrival.identity))
    connection.execute(insert(moves_in), {name: getattr(arrival, name) for name in StoredArrival.__slots__})


def find_arrival(connection: Connection, identity: IdentityId) -> StoredArrival | None:
    """Find the arrival of an identity."""
    row = connection.execute(select(*_COLUMNS).where(moves_in.c.identity == identity)).first()
    return None if row is None else _arrival(row)


def find_arrival_by_id(connection: Connection, arrival_id: str, token: bytes) -> StoredArrival | None:
    """Find an arrival by its id and the hash of its token."""
    query = select(*_COLUMNS).where(moves_in.c.id == arrival_id, moves_in.c.token == token)
    row = connection.execute(query).first()
    return None if row is None else _arrival(row)


def lock_arrival(connection: Connection, identity: IdentityId) -> StoredArrival | None:
    """Find the arrival of an identity; nobody else goes on with it before the transaction ends."""
    query = select(*_COLUMNS).where(moves_in.c.identity == identity)
    row = connection.execute(query.with_for_update()).first()
    return None if row is None else _arrival(row)


def set_arrival(
    connection: Connection, arrival: StoredArrival, states: Collection[ArrivalState], now: int, **values: Any
) -> bool:
    """Set columns of an arrival if it is still the same one and in one of the states; whether it was."""
    is_it = (moves_in.c.id == arrival.id) & moves_in.c.state.in_(states)
    return connection.execute(update(moves_in).where(is_it).values({"changed": now, **values})).rowcount == 1


_IS_ASKED: Final = (moves_in.c.way == "helped") & (moves_in.c.state == "committing")
"""The old node may have ended the move and named the controller, whose secret is in the row alone."""


def remove_arrival(connection: Connection, arrival: StoredArrival) -> bool:
    """Forget an arrival that is not `here`, and cannot be by an answer of the old node; whether there was one."""
    is_it = (moves_in.c.id == arrival.id) & (moves_in.c.state != "here") & ~_IS_ASKED
    return connection.execute(delete(moves_in).where(is_it)).rowcount == 1


def list_open_arrivals(connection: Connection) -> list[StoredArrival]:
    """The arrivals for which something is left to be done, by this node or by whoever brings them, the oldest first."""
    query = select(*_COLUMNS).where(moves_in.c.finished.is_(None)).order_by(moves_in.c.begun, moves_in.c.id)
    return [_arrival(row) for row in connection.execute(query)]


def count_open_arrivals(connection: Connection, *, asked_since: int) -> int:
    """How many identities are on their way here; not those that wait for an old node since before a time."""
    is_open = (moves_in.c.state != "here") & ~(_IS_ASKED & (moves_in.c.begun < asked_since))
    return connection.scalar(select(func.count()).select_from(moves_in).where(is_open)) or 0


def forget_idle_arrivals(connection: Connection, *, before: int) -> list[IdentityId]:
    """Forget arrivals that are not `here` and with which nothing was done since a time; returns whose they were."""
    is_idle = (moves_in.c.state != "here") & ~_IS_ASKED & (moves_in.c.changed < before)
    gone = connection.execute(delete(moves_in).where(is_idle).returning(moves_in.c.identity))
    return [IdentityId(identity) for identity in gone.scalars()]


def forget_arrivals(connection: Connection, *, before: int) -> list[IdentityId]:
    """Forget arrivals with which nothing was done since a time, finished or not; returns those that never came."""
    is_over = moves_in.c.finished.is_not(None) | ((moves_in.c.state != "here") & ~_IS_ASKED)
    is_old = (moves_in.c.changed < before) & is_over
    gone = connection.execute(delete(moves_in).where(is_old).returning(moves_in.c.identity, moves_in.c.state))
    return [IdentityId(identity) for identity, state in gone if state != "here"]
