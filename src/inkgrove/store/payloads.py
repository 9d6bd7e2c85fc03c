"""Drops payloads and keeps their entries (docs/protocol.md section 9: the rot takes payloads, never proofs)."""

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, func, insert, select, update

from inkgrove.core import Hash, decode_entry
from inkgrove.store.database import in_lists
from inkgrove.store.ingests import What
from inkgrove.store.tables import entries, ingests

_DROP = update(entries).where(entries.c.id == bindparam("of_id")).values(payload=None)


def drop_payloads(connection: Connection, hashes: Collection[Hash]) -> int:
    """Forget the payloads of these entries, all but those that prove a lie about their size; how many went."""
    dropped = 0
    columns = (entries.c.id, entries.c.log, entries.c.seq_num, entries.c.encoded)
    for some in in_lists(hashes):
        query = (
            select(*columns, func.length(entries.c.payload).label("size"))
            .where(entries.c.hash.in_(some), entries.c.payload.is_not(None))
            .order_by(entries.c.id)
            .with_for_update()
        )
        rows = [row for row in connection.execute(query) if decode_entry(row.encoded).payload_size == row.size]
        if rows:
            connection.execute(_DROP, [{"of_id": row.id} for row in rows])
            happened = [{"what": What.PAYLOAD_DROPPED.value, "log": row.log, "seq_num": row.seq_num} for row in rows]
            connection.execute(insert(ingests), happened)
        dropped += len(rows)
    return dropped
