"""Forgets what has run out: sign-ins, codes, tokens, counted attempts, old accesses, clients that nobody ever used."""

from typing import Final

from sqlalchemy import Connection, delete, exists, select

from inkgrove.store.database import in_lists
from inkgrove.store.node_tables import accesses, attempts, clients, codes, grants, sessions, tokens

_DAY: Final = 86_400 * 1_000_000
KNOWN_ADDRESS: Final = 90 * _DAY
"""How long an address counts as one from which an identity signs in."""
UNUSED_CLIENT: Final = 30 * _DAY


def forget_expired(connection: Connection, now: int, *, accesses_since: int) -> None:
    """Remove what no look-up would find any more; a used refresh token stays until it would have expired.

    Of the record of accesses what is older than `accesses_since` goes.
    """
    connection.execute(delete(accesses).where(accesses.c.at < accesses_since))
    connection.execute(delete(sessions).where(sessions.c.expires <= now))
    connection.execute(delete(codes).where(codes.c.expires <= now - _DAY))  # a replay is noticed for a day
    connection.execute(delete(tokens).where(tokens.c.expires <= now))
    connection.execute(delete(attempts).where(attempts.c.since <= now - KNOWN_ADDRESS))
    unused = ~exists().where(grants.c.client == clients.c.id)
    old = select(clients.c.id).where(clients.c.created <= now - UNUSED_CLIENT, unused)
    # Those that somebody is granting something to are passed over; to the others nobody can before they are gone.
    names = connection.scalars(old.with_for_update(skip_locked=True)).all()
    for some in in_lists(names):
        connection.execute(delete(clients).where(clients.c.id.in_(some), unused))
