"""Takes in what other nodes offer: batch by batch, verified, in the order in which it came.

docs/protocol.md section 8. Fetching, verifying and writing go on at the same time. Everything that was written counts:
whoever is interrupted asks for what is lacking then.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.calls import signed_call
from inkgrove.federation.discovery import RunBlocking, in_thread
from inkgrove.federation.errors import BadAnswer, NoSender
from inkgrove.federation.fetch import Transport
from inkgrove.federation.offering import ENTRIES_PATH, HEIGHTS_PATH
from inkgrove.messages.replication import (
    MAX_LOGS,
    MAX_RANGES,
    MEDIA_TYPE,
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    Want,
    decode_entries,
    decode_heights,
    encode_ask_heights,
    encode_wants,
)
from inkgrove.node.errors import KeyRevoked
from inkgrove.node.identity_log import IDENTITY_LOG, check_author, follow_identity_log
from inkgrove.node.node import Node
from inkgrove.store.decide import Status
from inkgrove.store.identities import list_identities
from inkgrove.store.ingest import Receipt, ingest_batch
from inkgrove.store.offers import count_places, lacking_ranges
from inkgrove.store.peers import KnownIdentity
from inkgrove.store.prepare import Batch, LogKey, Prepared, by_log, prepare

_VERIFIERS: Final = 2
"""How many batches are verified at the same time: libsodium lets other threads run meanwhile."""
_AHEAD: Final = 3
"""How many batches are fetched before they can be written: what is held in memory is bounded."""
_RANGES_OF_LOG: Final = 1_000

_Read = TypeVar("_Read")


@dataclass(slots=True)
class Taken:
    """What became of the entries that a node sent."""

    received: int = 0
    stored: int = 0
    """Entries that are new here, or have their payloads now."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those that do not hold, by code."""


class Source:
    """Another node, asked in the name of an identity of ours."""

    def __init__(
        self, node: Node, transport: Transport, known: KnownIdentity, *, run_blocking: RunBlocking = in_thread
    ) -> None:
        self._node = node
        self._transport = transport
        self.known = known
        self._run_blocking = run_blocking

    async def heights(self, question: AskHeights) -> Heights:
        """A page of the logs that have news."""
        return _read(decode_heights, await self._ask(HEIGHTS_PATH, encode_ask_heights(question)))

    async def entries(self, wants: Sequence[Want]) -> Entries:
        """As much of what is wanted as fits into an answer."""
        body = await self._ask(ENTRIES_PATH, encode_wants(wants))
        return _read(decode_entries, body)

    async def _ask(self, path: str, body: bytes) -> bytes:
        sender = await self._run_blocking(lambda: sender_of(self._node))
        request = await self._run_blocking(
            lambda: signed_call(self._node, self.known, "POST", path, sender=sender, body=body, content_type=MEDIA_TYPE)
        )
        answer = await self._transport.send(request)
        if answer.status != 200:
            raise BadAnswer(
                f"the node of {self.known.fqdn} answers with status {answer.status}",
                status=answer.status,
                retry_after=answer.retry_after,
            )
        return answer.body


def _read(decode: Callable[[bytes], _Read], body: bytes) -> _Read:
    try:
        return decode(body)
    except InkgroveError as err:
        raise BadAnswer(f"the node's answer cannot be read: {err.message}", reason=err.code) from err


def sender_of(node: Node) -> str:
    """The identity in whose name this node asks for what is public: an administrator, else whoever comes first."""
    names = [hosted.fqdn for hosted in node.database.read(list_identities)]
    if not names:
        raise NoSender("this node hosts no identity, in whose name it could ask others")
    return next((name for name in node.settings.administrators if name in names), names[0])


# What is lacking


def find_lacking(node: Node, logs: Collection[LogHeight]) -> list[Want]:
    """What this node lacks of the logs that another one lists."""

    def work(connection: Connection) -> list[Want]:
        wants = []
        for log in logs:
            ranges = lacking_ranges(connection, log.author, log.log_id, log.height, most=_RANGES_OF_LOG)
            if ranges:
                wants.append(Want(log.author, log.log_id, ranges))
        return wants

    return node.database.read(work)


def count_lacking(logs: Collection[LogHeight], wants: Collection[Want]) -> int:
    """How many entries will come, about."""
    offered = {(log.author, log.log_id): log.offered for log in logs}
    return sum(min(count_places(want.ranges), offered[want.author, want.log_id]) for want in wants)


def in_questions(wants: Sequence[Want]) -> list[list[Want]]:
    """The wants in groups that fit into a question."""
    questions: list[list[Want]] = []
    ranges = MAX_RANGES + 1
    for want in wants:
        if ranges + len(want.ranges) > MAX_RANGES or len(questions[-1]) >= MAX_LOGS:
            questions.append([])
            ranges = 0
        questions[-1].append(want)
        ranges += len(want.ranges)
    return questions


# Taking in


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch whose entries are signed, each on its own."""

    batch: Batch
    count: int
    refused: Counter[str]


def check(answer: Entries, asked: Collection[LogKey]) -> Checked:
    """The first half, all computing: bytes, signatures, payloads."""
    prepared, rejected = prepare(answer.entries)
    refused = Counter(item.error.code for item in rejected)
    batch = by_log(prepared)
    if not batch.keys() <= set(asked):
        raise BadAnswer("the node sends entries of logs that it was not asked for")
    return Checked(batch, len(answer.entries), refused)


def take_in(node: Node, checked: Checked, taken: Taken) -> None:
    """The second half, one transaction: forks, links and what is held already."""
    receipts, revoked = node.database.write(lambda connection: _ingest(connection, checked.batch))
    taken.received += checked.count
    taken.refused.update(checked.refused)
    if revoked:
        taken.refused[KeyRevoked.code] += revoked
    for receipt in receipts:
        if receipt.status in (Status.STORED, Status.COMPLETED, Status.EVIDENCE):
            taken.stored += 1
        elif receipt.status is Status.REFUSED and receipt.error is not None:
            taken.refused[receipt.error.code] += 1


def _ingest(connection: Connection, batch: Batch) -> tuple[list[Receipt], int]:
    counted = {key: _keep_counted(connection, key, items) for key, items in batch.items()}
    some = {key: items for key, items in counted.items() if items}
    receipts = ingest_batch(connection, some, must_be_next=False) if some else {}
    for author, log_id in some:
        if log_id == IDENTITY_LOG:
            follow_identity_log(connection, author)
    return list(receipts.values()), sum(map(len, batch.values())) - sum(map(len, some.values()))


def _keep_counted(connection: Connection, key: LogKey, items: list[Prepared]) -> list[Prepared]:
    """Without those behind the end of a key that was revoked."""
    try:
        check_author(connection, *key, items[-1].signed.entry.seq_num)
    except KeyRevoked as err:
        last = err.data["last"]
        assert isinstance(last, int)
        return [item for item in items if item.signed.entry.seq_num <= last]
    return items


async def fetch(source: Source, wants: Sequence[Want], use: Callable[[Entries, set[LogKey]], Awaitable[None]]) -> None:
    """Ask for everything that is wanted, answer by answer."""
    for question in in_questions(wants):
        asked = {(want.author, want.log_id) for want in question}
        rest = question
        while rest:
            answer = await source.entries(rest)
            rest = _rest(rest, answer)
            if rest and not answer.entries:
                raise BadAnswer("the node says that there is more, and sends nothing")
            await use(answer, asked)


def _rest(wants: Sequence[Want], answer: Entries) -> list[Want]:
    if answer.next is None:
        return []
    number, after = answer.next
    if number >= len(wants) or (number == 0 and after <= wants[0].after):
        raise BadAnswer("the node goes on where it was before, or behind what it was asked for")
    return [replace(wants[number], after=after), *wants[number + 1 :]]


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
        checking = self._verifiers.submit(check, answer, asked)
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
