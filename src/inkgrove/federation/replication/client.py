"""The asking side of replication: what another node offers, page by page (docs/protocol.md section 8).

The other node is not trusted to come to an end. It is asked for a bounded time; an answer that says that there is more
must bring what was asked for up to there; and only a bounded number of answers may hold little, since an honest node
fills them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from inkgrove.core import Entry, decode_entry, verify_signed
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import BadAnswer, EndlessAnswer, PeerTimeout
from inkgrove.federation.peers.discovery import RunBlocking, in_thread
from inkgrove.federation.peers.senders import choose_sender_name
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import PeerRequest, Transport
from inkgrove.federation.replication.server import ENTRIES_PATH, HEIGHTS_PATH
from inkgrove.messages import (
    MAX_LOGS,
    MAX_RANGES,
    REPLICATION_MEDIA_TYPE,
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
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.logs import LogKey

MOST_THIN: Final = 100
"""How many answers of one node may say that there is more although they hold little."""
_FULL_ENTRIES: Final = 500
_FULL_BYTES: Final = 1024 * 1024
_FULL_PAGE: Final = 500
_MOST_BEHIND: Final = 20_000
"""How many entries of pools can follow the one where an answer was cut."""
_LOGS_AT_ONCE: Final = 110_000
_PROOFS_AT_ONCE: Final = 10_000
"""How many logs and proofs are held in memory before they are dealt with."""

_Read = TypeVar("_Read")


class PeerSource:
    """Another node, asked in the name of an identity of ours until its time is up; belongs to one event loop."""

    heights_path = HEIGHTS_PATH
    entries_path = ENTRIES_PATH

    def __init__(
        self,
        node: Node,
        transport: Transport,
        remote: RemoteIdentity,
        *,
        seconds: float,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        self._node = node
        self._transport = transport
        self.remote = remote
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._run_blocking = run_blocking

    async def heights(self, question: AskHeights) -> Heights:
        """Ask for a page of the logs that have changed; raises a `FederationError`."""
        return read_answer(decode_heights, await self._ask(self.heights_path, encode_ask_heights(question)))

    async def entries(self, wants: Sequence[Want]) -> Entries:
        """Ask for as much of what is wanted as fits into an answer; raises a `FederationError`."""
        return read_answer(decode_entries, await self._ask(self.entries_path, encode_wants(wants)))

    def _signed(self, path: str, body: bytes) -> PeerRequest:
        sender = choose_sender_name(self._node)
        return make_signed_request(
            self._node, self.remote, "POST", path, sender=sender, body=body, content_type=REPLICATION_MEDIA_TYPE
        )

    async def _ask(self, path: str, body: bytes) -> bytes:
        request = await self._run_blocking(lambda: self._signed(path, body))
        try:
            # Around the request alone: what has come is written in any case.
            async with asyncio.timeout_at(self._deadline):
                answer = await self._transport.send(request)
        except TimeoutError as err:
            raise PeerTimeout(f"the node of {self.remote.fqdn} was not done in time; the rest is for later") from err
        if answer.status != 200:
            raise BadAnswer(
                f"the node of {self.remote.fqdn} answers with status {answer.status}",
                status=answer.status,
                retry_after=answer.retry_after,
            )
        return answer.body


def read_answer(decode: Callable[[bytes], _Read], body: bytes) -> _Read:
    """Decode the answer of another node; raises `BadAnswer`."""
    try:
        return decode(body)
    except InkgroveError as err:
        raise BadAnswer(f"the node's answer cannot be read: {err.message}", reason=err.code) from err


class _ThinAnswers:
    """Counts the answers of a node that say that there is more and hold little."""

    def __init__(self) -> None:
        self._left = MOST_THIN

    def count(self, *, is_full: bool) -> None:
        """Count an answer; raises `EndlessAnswer` if too many were not full."""
        if not is_full:
            self._left -= 1
        if self._left < 0:
            raise EndlessAnswer(f"the node says for the {MOST_THIN + 1}st time that there is more, and sends little")


# Heights


async def list_news(source: PeerSource, since: str | None) -> AsyncIterator[Heights]:
    """Yield every log that has changed since a position, in lists of bounded length; raises a `FederationError`.

    All lists have the position of the first page: what changes meanwhile is for the next time.
    """
    thin = _ThinAnswers()
    position: str | None = None
    logs: dict[LogKey, LogHeight] = {}
    proofs = after = 0
    while True:
        page = await source.heights(AskHeights(since, after))
        position = position if position is not None else page.position
        logs |= {(item.author, item.log_id): item for item in page.logs}
        proofs += sum(item.proof is not None for item in page.logs)
        if page.next is None:
            break
        if page.next <= after:
            raise BadAnswer("the node goes on where it was before")
        thin.count(is_full=len(page.logs) >= _FULL_PAGE)
        after = page.next
        if len(logs) >= _LOGS_AT_ONCE or proofs >= _PROOFS_AT_ONCE:
            yield Heights(list(logs.values()), position, after)
            logs, proofs = {}, 0
    yield Heights(list(logs.values()), position, None)


# Entries


def in_questions(wants: Sequence[Want]) -> list[list[Want]]:
    """Split wants into groups, each of which fits into a question."""
    questions: list[list[Want]] = []
    ranges = MAX_RANGES + 1
    for want in wants:
        if ranges + len(want.ranges) > MAX_RANGES or len(questions[-1]) >= MAX_LOGS:
            questions.append([])
            ranges = 0
        questions[-1].append(want)
        ranges += len(want.ranges)
    return questions


async def fetch_entries(
    source: PeerSource, wants: Sequence[Want], use: Callable[[Entries, set[LogKey]], Awaitable[None]]
) -> None:
    """Ask for everything that is wanted; `use` gets each answer with the logs that were asked for.

    Raises a `FederationError`; answers that came before were used.
    """
    thin = _ThinAnswers()
    for question in in_questions(wants):
        asked = {(want.author, want.log_id) for want in question}
        rest = question
        while rest:
            answer = await source.entries(rest)
            rest = _rest(rest, answer)
            if rest:
                thin.count(is_full=_is_full(answer))
            await use(answer, asked)


def _rest(wants: Sequence[Want], answer: Entries) -> list[Want]:
    """What is still to be asked for after an answer; raises if it does not bring what it says to have brought."""
    if answer.next is None:
        return []
    number, after = answer.next
    if number >= len(wants):
        raise BadAnswer("the node goes on behind what it was asked for")
    want = wants[number]
    if number and after == want.after:
        done = {(item.author, item.log_id) for item in wants[:number]}
        has_brought = _brings(answer, lambda entry: (entry.author, entry.log_id) in done)
    elif want.after < after < want.ranges[-1][1]:
        last = want.author, want.log_id, after
        has_brought = _brings(answer, lambda entry: (entry.author, entry.log_id, entry.seq_num) == last)
    else:
        raise BadAnswer("the node goes on where it was before, or behind what it was asked for")
    if not has_brought:
        raise BadAnswer("the node says that there is more, and sends nothing of what came before")
    return [replace(want, after=after), *wants[number + 1 :]]


def _brings(answer: Entries, is_asked: Callable[[Entry], bool]) -> bool:
    """Whether the last entry that was asked for is there and signed; entries that prove it can follow it."""
    for encoded, _ in islice(reversed(answer.entries), _MOST_BEHIND):
        try:
            if is_asked(entry := decode_entry(encoded)):
                verify_signed(entry)
                return True
        except InkgroveError:
            return False  # an honest node does not send what it has not verified
    return False


def _is_full(answer: Entries) -> bool:
    if len(answer.entries) >= _FULL_ENTRIES:
        return True
    return sum(len(entry) + len(payload or b"") for entry, payload in answer.entries) >= _FULL_BYTES
