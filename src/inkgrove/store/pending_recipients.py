"""Names that instances were sent to and that could not be found yet (docs/protocol.md section 8.6)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from inkgrove.core import Hash, IdentityId
from inkgrove.store.compiled import Compiled
from inkgrove.store.database import in_lists
from inkgrove.store.federation_tables import pending_recipients

PendingState = Literal["waiting", "refused", "given-up"]


@dataclass(frozen=True, slots=True)
class Pending:
    """A name that an instance was sent to, and how it stands with it."""

    id: int
    name: str
    instance: Hash
    via: IdentityId
    state: PendingState
    code: str | None
    changed: int


_IS_WAITING: Final = pending_recipients.c.state == "waiting"
_COLUMNS: Final = tuple(pending_recipients.c[name] for name in Pending.__slots__)


def _pending(row: Sequence[Any]) -> Pending:
    number, name, instance, via, *rest = row
    return Pending(number, name, Hash(instance), IdentityId(via), *rest)


def add_pending(
    connection: Connection,
    instance: Hash,
    via: IdentityId,
    names: Collection[str],
    state: PendingState,
    code: str,
    now: int,
) -> None:
    """Note that an instance is to go to names that were not found; what is known of an earlier try is forgotten."""
    is_it = and_(pending_recipients.c.instance == instance, pending_recipients.c.via == via)
    for some in in_lists(sorted(names)):
        connection.execute(delete(pending_recipients).where(is_it, pending_recipients.c.name.in_(some)))
        rows = [
            {
                "name": name,
                "instance": instance,
                "via": via,
                "state": state,
                "code": code,
                "queued": now,
                "changed": now,
            }
            for name in some
        ]
        connection.execute(insert(pending_recipients), rows)


def count_pending(connection: Connection, via: IdentityId) -> int:
    """How many names an identity waits for."""
    query = select(func.count()).select_from(pending_recipients)
    return connection.scalar(query.where(pending_recipients.c.via == via, _IS_WAITING)) or 0


def waiting_names(connection: Connection) -> list[str]:
    """Every name that something waits for."""
    return [name for (name,) in _names.rows(connection)]


# The outbox asks for this at every turn, and most of the time there is none.
_names: Final = Compiled(
    lambda _: select(pending_recipients.c.name).where(_IS_WAITING).distinct().order_by(pending_recipients.c.name)
)


def take_pending(connection: Connection, name: str, limit: int = 500) -> list[Pending]:
    """What waits for a name, oldest first, taken off the list: the caller queues it in the same transaction."""
    query = select(*_COLUMNS).where(_IS_WAITING, pending_recipients.c.name == name).order_by(pending_recipients.c.id)
    found = [_pending(row) for row in connection.execute(query.limit(limit).with_for_update())]
    for some in in_lists([item.id for item in found]):
        connection.execute(delete(pending_recipients).where(pending_recipients.c.id.in_(some)))
    return found


def end_pending(
    connection: Connection, name: str, state: PendingState, code: str, now: int, queued_before: int | None = None
) -> None:
    """Stop looking for a name, for all that waits for it or what has waited since before a time."""
    is_it = and_(_IS_WAITING, pending_recipients.c.name == name)
    if queued_before is not None:
        is_it = and_(is_it, pending_recipients.c.queued < queued_before)
    values = {"state": state, "code": code, "changed": now}
    connection.execute(update(pending_recipients).where(is_it).values(values))


def pending_of(connection: Connection, instance: Hash, via: IdentityId) -> list[Pending]:
    """The names that an identity sent an instance to and that were not found."""
    rows = _of_instance.rows(connection, of_instance=instance, of_via=via)
    return [_pending(row) for row in rows]


_of_instance: Final = Compiled(
    lambda _: (
        select(*_COLUMNS)
        .where(
            pending_recipients.c.instance == bindparam("of_instance"), pending_recipients.c.via == bindparam("of_via")
        )
        .order_by(pending_recipients.c.id)
    )
)


def newest_pending(connection: Connection, via: IdentityId, limit: int) -> list[Pending]:
    """What an identity sent to names that were not found, what changed last first."""
    query = select(*_COLUMNS).where(pending_recipients.c.via == via).order_by(pending_recipients.c.changed.desc())
    return [_pending(row) for row in connection.execute(query.limit(limit))]
