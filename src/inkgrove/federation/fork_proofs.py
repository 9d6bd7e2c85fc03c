"""Fork proofs that anybody may bring, unsigned: two entries that contradict each other prove it by themselves.

docs/protocol.md section 8. Only logs that are held here are of interest: else strangers could fill the store.
"""

from typing import Final

from inkgrove.core.entry import check_storable, decode_entry
from inkgrove.core.log import verify_fork_proof
from inkgrove.core.verify import verify_signed
from inkgrove.node.errors import ViewError
from inkgrove.node.runtime import Node
from inkgrove.store.logs.entries import LogState

PATH: Final = "/federation/forks"


def take_fork_proof(node: Node, first: bytes, second: bytes) -> LogState:
    """Keep a proof as evidence against its log; how the log stands now. Raises unless both entries are verified."""
    entries = decode_entry(first), decode_entry(second)
    for entry in entries:
        check_storable(entry)
    signed = verify_signed(entries[0]), verify_signed(entries[1])
    proof = verify_fork_proof(*signed)
    place = proof.author, proof.log_id
    if node.store.log_state(*place) is None:
        raise ViewError("view.unknown-log", f"nothing of log {proof.log_id} of {proof.author} is held here")
    receipts = node.store.ingest([(item, None) for item in signed])
    log = node.store.log_state(*place)
    assert log is not None
    if log.standing.forked_at is None:
        # Both lie behind what is held of the log, and link to nothing of it.
        raise next(receipt.error for receipt in receipts if receipt.error is not None)
    return log
