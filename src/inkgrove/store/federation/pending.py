"""Recipients that wait: names that could not be found yet, and new followers who get what was published before.

docs/protocol.md sections 7.6 and 8.6.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from inkgrove.core import Hash, IdentityId
from inkgrove.store.db.connection import Compiled, in_lists, insert_new
from inkgrove.store.db.log_tables import FOR_FOLLOWERS, entries, logs
from inkgrove.store.db.node_tables import backlogs, identity_keys, pending_recipients
from inkgrove.store.node.departures import LEAVING

PendingState = Literal["waiting", "refused", "given-up"]


@dataclass(frozen=True, slots=True)
class PendingRecipient:
    """A name that an instance was sent to and that was not found, with the state of that."""

    id: int
    name: str
    instance: Hash
    via: IdentityId
    state: PendingState
    code: str | None
    changed: int


_IS_WAITING: Final = pending_recipients.c.state == "waiting"
_COLUMNS: Final = tuple(pending_recipients.c[name] for name in PendingRecipient.__slots__)


def _pending(row: Sequence[Any]) -> PendingRecipient:
    number, name, instance, via, *rest = row
    return PendingRecipient(number, name, Hash(instance), IdentityId(via), *rest)


def add_pending(
    connection: Connection,
    instance: Hash,
    via: IdentityId,
    names: Collection[str],
    state: PendingState,
    code: str,
    now: int,
) -> None:
    """Queue an instance for names that were not found; what is known of an earlier try is forgotten."""
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


# The outbox asks for this in every round, and most of the time there is none.
_names: Final = Compiled(
    lambda _: select(pending_recipients.c.name).where(_IS_WAITING).distinct().order_by(pending_recipients.c.name)
)


def take_pending(connection: Connection, name: str, limit: int = 500) -> list[PendingRecipient]:
    """Remove what waits for a name and return it, oldest first: the caller queues it in the same transaction."""
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


def pending_of(connection: Connection, instance: Hash, via: IdentityId) -> list[PendingRecipient]:
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


def newest_pending(connection: Connection, via: IdentityId, limit: int) -> list[PendingRecipient]:
    """What an identity sent to names that were not found, what changed last first."""
    query = select(*_COLUMNS).where(pending_recipients.c.via == via).order_by(pending_recipients.c.changed.desc())
    return [_pending(row) for row in connection.execute(query.limit(limit))]


# New followers

_MOST_LOGS: Final = 1_000
"""So many logs of an identity are searched, the newest first."""


class Backlog(NamedTuple):
    """A follower who is to get what somebody published before."""

    followee: IdentityId
    follower: IdentityId


def add_backlog(connection: Connection, backlog: Backlog, now: int) -> None:
    """Queue what was published before for a follower; twice is once while it waits."""
    connection.execute(insert_new(connection, backlogs), {**backlog._asdict(), "queued": now})


def first_backlog(connection: Connection) -> Backlog | None:
    """The follower who has waited longest, of somebody who is not about to leave for another node."""
    row = _first.first(connection)
    return Backlog(IdentityId(row[0]), IdentityId(row[1])) if row is not None else None


# The outbox asks for this in every round, and most of the time there is none.
_first: Final = Compiled(
    lambda _: (
        select(backlogs.c.followee, backlogs.c.follower)
        .where(backlogs.c.followee.not_in(LEAVING))
        .order_by(backlogs.c.queued)
        .limit(1)
    )
)


def take_backlog(connection: Connection, backlog: Backlog) -> bool:
    """Remove a follower in the transaction that queues everything; returns whether they still waited."""
    is_it = and_(backlogs.c.followee == backlog.followee, backlogs.c.follower == backlog.follower)
    return connection.execute(delete(backlogs).where(is_it)).rowcount > 0


def newest_for_followers(connection: Connection, identity: IdentityId, most: int) -> Iterator[Hash]:
    """Instances of an identity of which a message says that they are for followers, the newest such message first.

    At most so many of each log; a later message may have said otherwise.
    """
    keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    own = select(logs.c.id).where(logs.c.author.in_(keys), logs.c.log_id > 0).order_by(logs.c.id.desc())
    found: list[tuple[int, int, int]] = []
    for log in connection.scalars(own.limit(_MOST_LOGS)).all():
        query = select(entries.c.id, entries.c.log, entries.c.create_seq).where(entries.c.log == log, FOR_FOLLOWERS)
        found += (tuple(row) for row in connection.execute(query.order_by(entries.c.seq_num.desc()).limit(most)))
    seen: set[tuple[int, int]] = set()
    for _, log, create_seq in sorted(found, reverse=True):
        if (log, create_seq) not in seen:
            seen.add((log, create_seq))
            is_create = and_(entries.c.log == log, entries.c.seq_num == create_seq, entries.c.kind == "create")
            for create in connection.scalars(select(entries.c.hash).where(is_create)).all():
                yield Hash(create)
