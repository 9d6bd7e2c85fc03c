"""The proof of an instance, as far as its entries are held (docs/protocol.md sections 2, 6 and 8)."""

from typing import Final

from sqlalchemy import Connection, select

from inkgrove.core.hashing import Hash
from inkgrove.core.links import union_of_pools
from inkgrove.messages.proof import Proof
from inkgrove.node.caller import Caller
from inkgrove.node.history import check_past
from inkgrove.node.node import Node
from inkgrove.node.query import show_instance
from inkgrove.store.db import entries, in_lists
from inkgrove.store.logs import InstanceKey, estimate_history_bytes, find_log
from inkgrove.store.views import ViewRow

_ENTRY_BYTES: Final = 350
"""About what an entry has."""


def prove_instance(node: Node, caller: Caller, instance: Hash) -> Proof:
    """The entries of an instance with payloads, and without payloads those that lead from them to entry 1.

    Raises `PastTooLong` if they are too many.
    """
    _, row, _ = show_instance(node, caller, instance)
    return node.database.read(lambda connection: _prove(node, connection, row))


def _prove(node: Node, connection: Connection, row: ViewRow) -> Proof:
    log = find_log(connection, row.author, row.log_id)
    assert log is not None, "a row has a log"
    check_past(node, estimate_history_bytes(connection, InstanceKey(log.id, row.seq_num)))
    valid = [entries.c.log == log.id]
    if log.invalid_from is not None:
        valid.append(entries.c.seq_num < log.invalid_from)
    own = select(entries.c.seq_num, entries.c.payload).where(
        *valid, entries.c.create_seq == row.seq_num, entries.c.payload.is_not(None), entries.c.code.is_(None)
    )
    if (last := log.standing.last_counted) is not None:  # entries behind it prove links, but are no messages
        own = own.where(entries.c.seq_num <= last)
    payloads: dict[int, bytes] = {found.seq_num: found.payload for found in connection.execute(own)}
    pool = union_of_pools(payloads, log.height)
    check_past(node, sum(map(len, payloads.values())) + _ENTRY_BYTES * len(pool))
    encoded: dict[int, bytes] = {}
    for some in in_lists(pool):
        query = select(entries.c.seq_num, entries.c.encoded).where(*valid, entries.c.seq_num.in_(some))
        encoded.update((found.seq_num, found.encoded) for found in connection.execute(query))
    return Proof(row.instance, [(encoded[n], payloads.get(n)) for n in pool if n in encoded])
