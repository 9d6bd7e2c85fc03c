"""New followers elsewhere who are to get what was published before they followed (docs/protocol.md section 7.6)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, delete, select

from inkgrove.core import Hash, IdentityId
from inkgrove.store.compiled import Compiled
from inkgrove.store.database import insert_new
from inkgrove.store.federation_tables import backlogs
from inkgrove.store.node_tables import identity_keys
from inkgrove.store.tables import FOR_FOLLOWERS, entries, logs

_MOST_LOGS: Final = 1_000
"""In how many logs of an identity is looked, the newest first."""


class Backlog(NamedTuple):
    """A follower who is to get what somebody published before."""

    followee: IdentityId
    follower: IdentityId


def add_backlog(connection: Connection, backlog: Backlog, now: int) -> None:
    """Let a follower get what was published before; twice is once while it waits."""
    connection.execute(insert_new(connection, backlogs), {**backlog._asdict(), "queued": now})


def first_backlog(connection: Connection) -> Backlog | None:
    """The follower who has waited longest."""
    row = _first.first(connection)
    return Backlog(IdentityId(row[0]), IdentityId(row[1])) if row is not None else None


# The outbox asks for this at every turn, and most of the time there is none.
_first: Final = Compiled(
    lambda _: select(backlogs.c.followee, backlogs.c.follower).order_by(backlogs.c.queued).limit(1)
)


def take_backlog(connection: Connection, backlog: Backlog) -> bool:
    """Take a follower off the list in the transaction that queues everything; whether they were still on it."""
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
        said = select(entries.c.id, entries.c.log, entries.c.create_seq).where(entries.c.log == log, FOR_FOLLOWERS)
        found += (tuple(row) for row in connection.execute(said.order_by(entries.c.seq_num.desc()).limit(most)))
    seen: set[tuple[int, int]] = set()
    for _, log, create_seq in sorted(found, reverse=True):
        if (log, create_seq) not in seen:
            seen.add((log, create_seq))
            is_create = and_(entries.c.log == log, entries.c.seq_num == create_seq, entries.c.kind == "create")
            for create in connection.scalars(select(entries.c.hash).where(is_create)).all():
                yield Hash(create)
