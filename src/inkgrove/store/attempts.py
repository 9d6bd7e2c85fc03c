"""How often somebody tried something within a while: sign-ins, registrations."""

from collections.abc import Sequence

from sqlalchemy import Connection, case, or_, select, update

from inkgrove.store.database import insert_new
from inkgrove.store.node_tables import attempts


def count_attempt(connection: Connection, who: Sequence[str], now: int, window: int) -> dict[str, tuple[int, int]]:
    """Count one attempt for each; the counts with this one, and when the counting of each began."""
    for name in sorted(who):  # always in one order, so that two at once do not wait for each other
        connection.execute(insert_new(connection, attempts), {"who": name, "tries": 0, "since": now})
        # A time that has not come is that of a clock that was wrong: it must not lock anybody out until then.
        is_over = or_(attempts.c.since <= now - window, attempts.c.since > now)
        values = {"tries": case((is_over, 1), else_=attempts.c.tries + 1)}
        values["since"] = case((is_over, now), else_=attempts.c.since)
        connection.execute(update(attempts).where(attempts.c.who == name).values(values))
    query = select(attempts).where(attempts.c.who.in_(who))
    return {row.who: (row.tries, row.since) for row in connection.execute(query)}


def take_back(connection: Connection, who: Sequence[str]) -> None:
    """One attempt of each was no failure."""
    for name in sorted(who):
        is_it = (attempts.c.who == name, attempts.c.tries > 0)
        connection.execute(update(attempts).where(*is_it).values(tries=attempts.c.tries - 1))


def has_attempt(connection: Connection, who: str, since: int) -> bool:
    """Whether this is on record, not from before a time."""
    query = select(attempts.c.who).where(attempts.c.who == who, attempts.c.since >= since)
    return connection.scalar(query) is not None


def note(connection: Connection, who: str, now: int) -> None:
    """Put on record, or renew."""
    connection.execute(insert_new(connection, attempts), {"who": who, "tries": 0, "since": now})
    connection.execute(update(attempts).where(attempts.c.who == who).values(since=now))
