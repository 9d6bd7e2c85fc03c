"""Takes in what other nodes offer: batch by batch, verified, in the order in which it came.

docs/protocol.md section 8. Fetching, verifying and writing go on at the same time. Everything that was written counts:
whoever is interrupted asks for what is lacking then.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.errors import KeyRevoked
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.core.verify import AreSigned
from inkgrove.federation.errors import BadAnswer
from inkgrove.messages.replication import Entries, LogHeight, Want
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log, check_author
from inkgrove.node.runtime import Node
from inkgrove.signature_process import are_signed
from inkgrove.store.federation.public_index import count_seq_nums, find_missing_ranges
from inkgrove.store.logs.decision import IngestStatus
from inkgrove.store.logs.ingestion import IngestReceipt, ingest_batch
from inkgrove.store.logs.preparation import Batch, LogKey, by_log, prepare_items

_VERIFIERS: Final = 2
"""How many batches are checked at the same time: one is read while the signatures of another are with their process."""
_AHEAD: Final = 3
"""How many batches are fetched before they can be written: what is held in memory is bounded."""
_RANGES_OF_LOG: Final = 1_000


@dataclass(slots=True)
class Taken:
    """What became of the entries that a node sent."""

    received: int = 0
    stored: int = 0
    """Entries that are new here, or have their payloads now."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those that do not hold, by code."""


# What is lacking


def find_lacking(node: Node, logs: Collection[LogHeight]) -> list[Want]:
    """What this node lacks of the logs that another one lists.

    Identities come first: they say which keys count, and up to where.
    """

    def work(connection: Connection) -> list[Want]:
        wants = []
        for log in sorted(logs, key=lambda log: log.log_id != IDENTITY_LOG):
            ranges = find_missing_ranges(connection, log.author, log.log_id, log.height, most=_RANGES_OF_LOG)
            if ranges:
                wants.append(Want(log.author, log.log_id, ranges))
        return wants

    return node.database.read(work)


def count_lacking(logs: Collection[LogHeight], wants: Collection[Want]) -> int:
    """How many entries will come, about."""
    offered = {(log.author, log.log_id): log.offered for log in logs}
    return sum(min(count_seq_nums(want.ranges), offered[want.author, want.log_id]) for want in wants)


# Taking in


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch whose entries are signed, each on its own."""

    batch: Batch
    count: int
    refused: Counter[str]


def check(answer: Entries, asked: Collection[LogKey], are_signed: AreSigned = are_signed) -> Checked:
    """The first half, all computing: bytes, signatures, payloads."""
    prepared, rejected = prepare_items(answer.entries, are_signed)
    refused = Counter(item.error.code for item in rejected)
    batch = by_log(prepared)
    if not batch.keys() <= set(asked):
        raise BadAnswer("the node sends entries of logs that it was not asked for")
    return Checked(batch, len(answer.entries), refused)


def take_in(node: Node, checked: Checked, taken: Taken) -> None:
    """The second half, one transaction: forks, links and what is held already."""
    node.disk.require()
    receipts, revoked = node.database.write(lambda connection: _ingest(connection, checked.batch))
    taken.received += checked.count
    taken.refused.update(checked.refused)
    if revoked:
        taken.refused[KeyRevoked.code] += revoked
    for receipt in receipts:
        if receipt.status in (IngestStatus.STORED, IngestStatus.COMPLETED, IngestStatus.EVIDENCE):
            taken.stored += 1
        elif receipt.status is IngestStatus.REFUSED and receipt.error is not None:
            taken.refused[receipt.error.code] += 1


def _ingest(connection: Connection, batch: Batch) -> tuple[list[IngestReceipt], int]:
    """Identities first: a batch can hold a revocation together with what that refuses."""
    receipts: list[IngestReceipt] = []
    revoked = 0
    for is_identity in (True, False):
        some: Batch = {}
        for key, items in batch.items():
            if (key[1] == IDENTITY_LOG) is is_identity:
                last = last_counted(connection, key)
                counted = [item for item in items if item.signed.entry.seq_num <= last]
                revoked += len(items) - len(counted)
                if counted:
                    some[key] = counted
        if some:
            receipts += ingest_batch(connection, some, must_be_next=False).values()
        if is_identity:
            for author, _ in some:
                apply_identity_log(connection, author)
    return receipts, revoked


def last_counted(connection: Connection, key: LogKey) -> int:
    """The last place of a log that counts: behind it is what a revoked key has signed."""
    try:
        check_author(connection, *key, MAX_STORED_INTEGER)
    except KeyRevoked as err:
        last = err.data["last"]
        assert isinstance(last, int)
        return last
    return MAX_STORED_INTEGER


class Intake:
    """Verifies and writes what is fetched, in order, while more is fetched."""

    def __init__(
        self, node: Node, taken: Taken, on_progress: Callable[[int], None] = lambda _: None, *, in_place: bool = False
    ) -> None:
        """`in_place`: without threads, for simulations."""
        self._node = node
        self._taken = taken
        self._on_progress = on_progress
        self._in_place = in_place
        self._verifiers = ThreadPoolExecutor(_VERIFIERS, thread_name_prefix="verify")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="replicate")
        self._under_way: deque[asyncio.Future[None]] = deque()

    async def use(self, answer: Entries, asked: set[LogKey]) -> None:
        """Take a batch; returns as soon as another one can be fetched."""
        if self._in_place:
            take_in(self._node, check(answer, asked), self._taken)
            return
        checking = self._verifiers.submit(check, answer, asked, self._node.signatures.are_signed)
        loop = asyncio.get_running_loop()
        # One thread writes, so batches are written in the order in which they came.
        self._under_way.append(loop.run_in_executor(self._writer, self._write, checking))
        while len(self._under_way) > _AHEAD:
            await self._under_way.popleft()

    def _write(self, checking: "Future[Checked]") -> None:
        take_in(self._node, checking.result(), self._taken)
        self._on_progress(self._taken.received)

    async def finish(self) -> None:
        """Wait until everything has been written."""
        while self._under_way:
            await self._under_way.popleft()

    async def close(self) -> None:
        """Let the threads go; what has begun is finished."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._verifiers.shutdown()
        self._writer.shutdown()
