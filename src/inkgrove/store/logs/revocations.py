"""How far the logs of revoked keys count (docs/protocol.md section 7).

What an identity's document says of a key is written to the key's logs as well (`revoked_after`, `pin`): so every reader
of a log's validity finds it, for entries that came before the revocation as for those that come after it.
"""

import json
from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, insert, select, update

from inkgrove.core import Hash, PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import RevokedLog
from inkgrove.store.db.connection import CompiledList, in_lists
from inkgrove.store.db.log_tables import encode_log_key, ingests, logs
from inkgrove.store.db.node_tables import identity_keys
from inkgrove.store.logs.branches import settle_branch
from inkgrove.store.logs.positions import IngestKind

Ends = dict[int, int]
"""By log id, the last sequence number that counts; no other log of the key counts."""
RevokedLogs = dict[int, RevokedLog]
"""The same with the pins."""


def set_key_ends(connection: Connection, author: PublicKey, ends: Collection[RevokedLog] | None) -> None:
    """Revoke a key, with the ends of those of its logs that still count; with None let it count again."""
    revoked = None if ends is None else json.dumps([_write_end(end) for end in ends])
    connection.execute(update(identity_keys).where(identity_keys.c.author == author).values(revoked=revoked))
    _set_logs(connection, author, None if ends is None else {end.log_id: end for end in ends})


def _write_end(end: RevokedLog) -> list[int | str]:
    return [end.log_id, end.last] if end.hash is None else [end.log_id, end.last, end.hash.hex()]


def _set_logs(connection: Connection, author: PublicKey, ends: RevokedLogs | None) -> None:
    # Not log 0: it says whose key this is.
    is_its_own = logs.c.name.between(encode_log_key(author, 1), encode_log_key(author, MAX_STORED_INTEGER))
    columns = (logs.c.id, logs.c.log_id, logs.c.height, logs.c.revoked_after, logs.c.pin)
    query = select(*columns).where(is_its_own).order_by(logs.c.name).with_for_update()
    for log, log_id, height, before, pin_before in connection.execute(query).all():
        end = None if ends is None else ends.get(log_id, RevokedLog(log_id, 0))
        last, pin = (end.last, end.hash) if end is not None else (None, None)
        if (last, pin) == (before, pin_before):
            continue
        connection.execute(update(logs).where(logs.c.id == log).values(revoked_after=last, pin=pin))
        first = min((seq_num for seq_num in (before, last) if seq_num is not None), default=0) + 1
        if last != before and first <= height:
            connection.execute(insert(ingests), {"what": IngestKind.ENDED.value, "log": log, "seq_num": first})
        settle_branch(connection, log)


def ends_of(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, RevokedLogs]:
    """Read the ends of those of these keys that are revoked."""
    return {
        PublicKey(author): _parse_revoked(revoked)
        for some in in_lists(authors)
        for author, revoked in _revoked.rows(connection, some)
    }


_revoked: Final = CompiledList(
    lambda authors: select(identity_keys.c.author, identity_keys.c.revoked).where(
        identity_keys.c.author.in_(authors), identity_keys.c.revoked.is_not(None)
    )
)


def lock_ends(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, RevokedLogs]:
    """Read the ends of revoked keys and lock all given ones, whose logs are about to begin.

    A transaction that revokes one waits until its new log can be seen.
    """
    return {
        PublicKey(author): _parse_revoked(revoked)
        for some in in_lists(sorted(authors))
        for author, revoked in _locked.rows(connection, some)
        if revoked is not None
    }


_locked: Final = CompiledList(
    lambda authors: (
        select(identity_keys.c.author, identity_keys.c.revoked)
        .where(identity_keys.c.author.in_(authors))
        .order_by(identity_keys.c.author)
        .with_for_update(read=True)
    )
)


def parse_ends(revoked: str) -> Ends:
    """Parse the ends of a key as the table has them."""
    return {log_id: end.last for log_id, end in _parse_revoked(revoked).items()}


def _parse_revoked(revoked: str) -> RevokedLogs:
    return {
        log_id: RevokedLog(log_id, last, Hash(bytes.fromhex(pin[0])) if pin else None)
        for log_id, last, *pin in json.loads(revoked)
    }
