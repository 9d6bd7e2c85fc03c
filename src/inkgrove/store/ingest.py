"""Takes a batch of items into their logs: lock, decide, write, in one transaction (docs/protocol.md section 2)."""

from dataclasses import dataclass

from sqlalchemy import Connection

from inkgrove.core import Hash
from inkgrove.core.errors import InkgroveError, LogError
from inkgrove.store.decide import Status, advance, decide
from inkgrove.store.facts import lock_facts
from inkgrove.store.prepare import Batch, Prepared
from inkgrove.store.reading import next_place
from inkgrove.store.write import Writes


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one item."""

    hash: Hash | None
    """None if the bytes are no entry."""
    status: Status
    error: InkgroveError | None = None
    """Why it was refused or what it is evidence of; also set if only the payload given with it was rubbish."""


def ingest_batch(connection: Connection, batch: Batch, *, must_be_next: bool) -> dict[int, Receipt]:
    """Decide on every item and write what changes; the receipts by the number of their items."""
    receipts: dict[int, Receipt] = {}
    stale: list[Prepared] = []
    writes = Writes()
    for key, facts in lock_facts(connection, batch, must_be_next=must_be_next).items():
        for item in batch[key]:
            decision = decide(facts, item, must_be_next=must_be_next)
            writes.add(facts, item, decision)
            advance(facts, item, decision)
            if decision.is_stale:
                stale.append(item)
            else:
                receipts[item.number] = Receipt(item.signed.hash, decision.status, decision.error)
    writes.write(connection)
    for item in stale:
        receipts[item.number] = Receipt(item.signed.hash, Status.REFUSED, _why_stale(connection, item))
    return receipts


def _why_stale(connection: Connection, item: Prepared) -> InkgroveError:
    entry = item.signed.entry
    try:
        place = next_place(connection, entry.author, entry.log_id)
    except InkgroveError as error:
        return error
    return LogError(
        "log.stale",
        f"entry {entry.seq_num} does not follow the newest entry of its log, {place.seq_num - 1}",
        next=place,
    )
