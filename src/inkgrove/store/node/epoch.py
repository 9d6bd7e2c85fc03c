"""Whether the database may be older than it was, in the database itself (docs/protocol.md section 7.4).

One row has the name of the mark that lies beside the database (`node/runtime/signing_guard.py`). While `behind_since`
is set, nothing is signed: entries that were signed before may be with others, and to sign their sequence numbers again
would fork the logs.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, and_, func, select, text, update

from inkgrove.core import Hash, PublicKey
from inkgrove.store.db.connection import Compiled, insert_new, put_row
from inkgrove.store.db.log_tables import TransactionId, entries, ingests, logs
from inkgrove.store.db.node_tables import epoch, identities
from inkgrove.store.logs.entries import keep_held_hashes

_ONLY: Final = 1
POSITIONS_LEFT_OUT: Final = 2**32
"""Positions that were handed out after the copy was made are never handed out again: readers who remember one of them
would pass over what comes."""


class Epoch(NamedTuple):
    """The row of the table `epoch`."""

    name: str
    """Of the mark beside it."""
    behind_since: int | None
    """Since when it is known that the database may be older than it was; None while it is not."""
    reason: str | None
    waits_for: Mapping[str, str]
    """The nodes that are still to be asked, by name, each with why it has not answered."""
    resumed: int
    """How often signing went on after the database was behind. A home that has not heard of the last time may still ask
    for entries that were given up then."""


def read_epoch(connection: Connection) -> Epoch | None:
    """Read the epoch of the database; None if no node has opened it yet."""
    row = _read.first(connection)
    return Epoch(row[0], row[1], row[2], json.loads(row[3] or "{}"), row[4]) if row is not None else None


_read: Final = Compiled(
    lambda _: select(epoch.c.name, epoch.c.behind_since, epoch.c.reason, epoch.c.waits_for, epoch.c.resumed)
)


def begin_epoch(connection: Connection, name: str) -> bool:
    """Give the database the name of its mark; False if it has one."""
    row = {"id": _ONLY, "name": name}
    return connection.execute(insert_new(connection, epoch).returning(epoch.c.id), row).first() is not None


def rename_epoch(connection: Connection, name: str) -> None:
    """Let marks from before count no more."""
    put_row(connection, epoch, {"id": _ONLY, "name": name, "behind_since": None, "reason": None, "waits_for": None})


def note_behind(connection: Connection, reason: str, now: int) -> bool:
    """Stop signing until all nodes were asked; False if it was stopped before, and its reason stays."""
    values = {"behind_since": now, "reason": reason, "waits_for": None}
    noted = connection.execute(update(epoch).where(epoch.c.behind_since.is_(None)).values(values))
    if noted.rowcount:
        leave_positions_out(connection)
    return bool(noted.rowcount)


def note_waiting(connection: Connection, waits_for: Mapping[str, str]) -> None:
    """Record which nodes are still to be asked, each with why it has not answered."""
    connection.execute(update(epoch).values(waits_for=json.dumps(dict(waits_for))))


def note_current(connection: Connection) -> None:
    """Let entries be signed again, with what the database holds now."""
    values = {"behind_since": None, "reason": None, "waits_for": None, "resumed": epoch.c.resumed + 1}
    connection.execute(update(epoch).values(values))


def hosts_anybody(connection: Connection) -> bool:
    """Whether there is an identity in whose name something can be signed."""
    return connection.scalar(select(identities.c.id).limit(1)) is not None


def has_logs_of(connection: Connection, author: PublicKey) -> bool:
    """Whether a log of an author is held."""
    return connection.scalar(select(logs.c.id).where(logs.c.author == author).limit(1)) is not None


def lacks_any(connection: Connection, hashes: Collection[Hash]) -> bool:
    """Whether one of these entries is not held."""
    return len(keep_held_hashes(connection, hashes)) < len(set(hashes))


def newest_entry(connection: Connection) -> Hash | None:
    """The entry that this transaction has appended last; on SQLite, if it has appended none, the newest of all."""
    row = _newest.first(connection)
    return Hash(row[0]) if row is not None else None


def newest_of_all(connection: Connection) -> Hash | None:
    """The entry with the newest position, whoever appended it; None if there is none."""
    query = _hashes_by_ingest().order_by(ingests.c.position.desc()).limit(1)
    row = connection.execute(query).first()
    return Hash(row[0]) if row is not None else None


def _hashes_by_ingest() -> Select[Any]:
    is_there = and_(entries.c.log == ingests.c.log, entries.c.seq_num == ingests.c.seq_num)
    return select(entries.c.hash).join_from(ingests, entries, is_there)


def _select_newest(connection: Connection) -> object:
    query = _hashes_by_ingest()
    if connection.dialect.name == "postgresql":
        return query.where(ingests.c.xid == TransactionId()).order_by(ingests.c.position.desc()).limit(1)
    newest = select(func.max(ingests.c.position)).scalar_subquery()
    return query.where(ingests.c.position == newest).limit(1)


_newest: Final = Compiled(_select_newest)  # type: ignore[arg-type]


def leave_positions_out(connection: Connection) -> None:
    """Let the next position be above all that may have been handed out after the copy was made."""
    newest = connection.scalar(select(func.max(ingests.c.position))) or 0
    if connection.dialect.name == "postgresql":
        name = func.pg_get_serial_sequence(ingests.name, "position")
        connection.execute(select(func.setval(name, newest + POSITIONS_LEFT_OUT)))
    else:
        values = {"name": ingests.name, "last": newest + POSITIONS_LEFT_OUT}
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": ingests.name})
        connection.execute(text("INSERT INTO sqlite_sequence VALUES (:name, :last)"), values)
