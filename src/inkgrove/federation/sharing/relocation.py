"""The worker that follows identities which move between nodes, and tells others of new documents.

docs/protocol.md section 7.10.3. Everything to be done is in the database, so that a process that ends in between goes
on later. An identity elsewhere whose newest document leads to another place is looked up there, both ways; then what
its old node took is offered to the new one, which recognises what it has. And when an identity of this node has a new
document (`tell_of_new_document`), every node that has to do with it is sent the entries that prove it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from itertools import islice
from random import random
from typing import Any, Final

import structlog

from inkgrove.core import IdentityId, PublicKey
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import BadAnswer, FederationError, NoIdentityThere
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.documents import DOCUMENT_MEDIA_TYPE, DOCUMENTS_PATH, encode_document
from inkgrove.federation.peers.limits import RequestSlots, run_rounds
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import Transport
from inkgrove.federation.peers.well_known import read_document_proof
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.publishing import find_held_instance
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    DocumentNotice,
    OfferedAgain,
    QueueBackoff,
    Relocation,
    RemoteIdentity,
    clear_backoff,
    find_relocation,
    finish_relocation,
    forget_old_notices,
    list_notice_targets,
    list_notices_to,
    list_relocations,
    offer_again,
    put_backoff,
    queue_deliveries,
    queue_document_notices,
    read_backoffs,
    remove_notice,
)
from inkgrove.store.node import add_shares, find_identity, lives_here

OFFERED_AGAIN_SECONDS: Final = 30 * 86_400
"""What the old node of somebody who moved took in this time is offered to the new one."""
_SECOND: Final = 1_000_000
_FIRST_WAIT: Final = 2.0
_LONGEST_WAIT: Final = 3600.0
_PAUSE_SECONDS: Final = 3600
"""How long nothing is offered to an identity again after that was done: its host could ask for all of it forever."""
_REST_SECONDS: Final = 30
"""How long a queue rests after something went wrong here."""
_AT_ONCE: Final = 16
"""How many identities are looked up, and how many nodes are told, at the same time."""
_FOR_GOOD: Final = (400, 404, 405, 413, 415, 422)
"""Answers to a notice that trying again does not change."""
_MOST_TOLD: Final = 10_000

log = structlog.get_logger("inkgrove.relocation")


def tell_of_new_document(node: Node, identity: IdentityId) -> int:
    """Queue notices of the newest document of an identity that lives here; returns to how many they go.

    To everybody elsewhere who follows it, is followed by it, has something of it or is accepted as a sender, and to all
    peers. Asked again, it begins anew. Raises `UnknownIdentity`.
    """

    def work(connection: Connection) -> int:
        if not lives_here(connection, identity):
            raise UnknownIdentity(f"{identity} does not live here: the node where it lives tells others")
        return queue_document_notices(connection, identity, node.clock())

    return node.database.write(work)


class Relocator:
    """The worker that looks up who has moved and tells others of new documents; belongs to one event loop.

    `run` goes on until it is cancelled, `step` does one round.
    """

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        on_moved: Callable[[IdentityId], None] = lambda _identity: None,
        random: Callable[[], float] = random,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        """`on_moved` is called with each identity that was found at another place than before."""
        self._node = node
        self._slots = RequestSlots(transport)
        self._discovery = discovery
        self._on_moved = on_moved
        self._random = random
        self._run_blocking = run_blocking
        self._busy: set[str] = set()
        self._resting: dict[str, int] = {}
        """Queues that failed because of this node, each with when it goes on."""
        self._told: dict[tuple[IdentityId, PublicKey], bytes] = {}
        """Digests of the documents that nodes were told of: one notice is enough for all who live there."""
        self._has_more = False
        """Whether the last round left something for the next one."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for work now: a document came in, or others are to be told of one."""
        self._wake.set()

    async def run(self, idle_seconds: float = 2.0) -> None:
        """Look up and tell until the task is cancelled."""
        await run_rounds(self._find_work, self._wake, idle_seconds, _log_error)

    async def step(self) -> None:
        """Do everything that can be done now, one after the other."""
        for work in await self._find_work():
            await work

    async def _find_work(self) -> list[Coroutine[Any, Any, None]]:
        moved, targets, stopped = await self._run_blocking(
            lambda: self._node.database.read(lambda c: (list_relocations(c), list_notice_targets(c), read_backoffs(c)))
        )
        now = self._node.clock()
        self._resting = {queue: until for queue, until in self._resting.items() if until > now}

        def is_free(queue: str) -> bool:
            # What is further away was noted with a wrong clock.
            is_stopped = queue in stopped and 0 < stopped[queue].next_try - now <= 2 * _LONGEST_WAIT * _SECOND
            return not (is_stopped or queue in self._busy or queue in self._resting)

        work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        for item in moved:
            queue = _queue_of(item.identity)
            is_paused = item.is_new_node and not is_free(_pause_of(item.identity))
            if not is_paused and is_free(queue):
                work[queue] = partial(self._follow, item.identity, stopped.get(queue))
        due = list(islice(work, _AT_ONCE - sum(queue.startswith(_MOVED) for queue in self._busy)))
        notices = {queue: target for target in targets if is_free(queue := _notices_to(target))}
        due += islice(notices, _AT_ONCE - sum(queue.startswith(_NOTICES) for queue in self._busy))
        work |= {queue: partial(self._tell, target, stopped.get(queue)) for queue, target in notices.items()}
        self._has_more = len(due) < len(work)
        self._busy |= set(due)
        return [self._do(queue, work[queue]) for queue in due]

    async def _do(self, queue: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except InkgroveError as error:  # of this node: the store is away, or the disk is full
            log.warning("a move was not followed", at=queue, code=error.code, reason=error.message)
            self._resting[queue] = self._node.clock() + _REST_SECONDS * _SECOND
        except Exception:
            log.exception("a move was not followed", at=queue)
            self._resting[queue] = self._node.clock() + _REST_SECONDS * _SECOND
        finally:
            self._busy.discard(queue)
            if self._has_more:
                self.wake()

    # Those who have moved

    async def _follow(self, identity: IdentityId, before: QueueBackoff | None) -> None:
        """Look an identity up where its newest document leads; then offer again what its old node took."""
        queue = _queue_of(identity)
        try:
            known = await self._discovery.find_by_id(identity)
        except FederationError as error:
            log.info("a moved identity was not found", identity=str(identity), code=error.code, reason=error.message)
            await self._fail(queue, error, before, identity=identity)
            return
        # Read now: the look-up itself may have found them on a new node.
        item = await self._run_blocking(lambda: self._node.database.read(lambda c: find_relocation(c, identity)))
        if item is None:
            return
        if item.is_new_node and not await self._is_here(known):
            if await self._is_paused(identity):
                return  # it stays, until the pause is over
            await self._run_blocking(lambda: self._offer_again(identity))
        self._on_moved(identity)
        await self._run_blocking(lambda: self._node.database.write(lambda c: self._finish(c, item)))
        self._on_moved(identity)

    async def _is_here(self, known: RemoteIdentity) -> bool:
        return known.node_key == await self._run_blocking(lambda: load_node_key(self._node).public)

    async def _is_paused(self, identity: IdentityId) -> bool:
        stopped = await self._run_blocking(lambda: self._node.database.read(read_backoffs))
        pause = stopped.get(_pause_of(identity))
        return pause is not None and 0 < pause.next_try - self._node.clock() <= _PAUSE_SECONDS * _SECOND

    def _offer_again(self, identity: IdentityId) -> None:
        """Queue what the old node took, page by page; a process that ends in between begins again."""
        now = self._node.clock()
        since, after = now - OFFERED_AGAIN_SECONDS * _SECOND, 0

        def work(connection: Connection) -> OfferedAgain | None:
            page = offer_again(connection, identity, changed_since=since, after=after, now=now)
            for item in () if page is None else page.local:
                held = find_held_instance(connection, item.instance)
                if held is not None:
                    if not held.is_deleted:  # what waited in their box here was not shown to them yet
                        add_shares(connection, [(item.instance, identity)], now)
                    queue_deliveries(connection, item.instance, item.via, [identity], wanted=held.last_seq, now=now)
            return page

        while (page := self._node.database.write(work)) is not None:
            after = page.last_position

    def _finish(self, connection: Connection, item: Relocation) -> None:
        finish_relocation(connection, item)
        clear_backoff(connection, _queue_of(item.identity))
        clear_backoff(connection, f"identity {item.identity.hex()}")  # the outbox looks for them at once
        if item.is_new_node:
            now = self._node.clock()
            until = now + _PAUSE_SECONDS * _SECOND
            put_backoff(connection, _pause_of(item.identity), QueueBackoff(0, until, now, "offered again"))

    # Those who are told

    async def _tell(self, target: str, before: QueueBackoff | None) -> None:
        """Send the notices for one identity elsewhere, or for one peer."""
        queue = _notices_to(target)
        waiting = await self._run_blocking(lambda: self._node.database.read(lambda c: list_notices_to(c, target)))
        try:
            known = await self._locate(target)
            for notice in waiting:
                await self._send(notice, known, queue)
        except FederationError as error:
            await self._fail(queue, error, before, target=target)
            return
        await self._run_blocking(lambda: self._node.database.write(lambda c: clear_backoff(c, queue)))

    async def _locate(self, target: str) -> RemoteIdentity:
        if "." in target:
            return await self._discovery.find(target)
        return await self._discovery.find_by_id(IdentityId(bytes.fromhex(target)))

    async def _send(self, notice: DocumentNotice, known: RemoteIdentity, queue: str) -> None:
        """Send one notice, unless its node has had it; raises a `FederationError`."""
        made = await self._run_blocking(lambda: self._node.database.read(lambda c: _make_notice(c, notice.identity)))
        if made is not None and not await self._is_here(known):
            sender, body = made
            digest, told = sha256(body).digest(), (notice.identity, known.node_key)
            if self._told.get(told) != digest:
                async with self._slots.acquire(queue) as transport:
                    request = await self._run_blocking(
                        lambda: make_signed_request(
                            self._node,
                            known,
                            "POST",
                            DOCUMENTS_PATH,
                            sender=sender,
                            body=body,
                            content_type=DOCUMENT_MEDIA_TYPE,
                        )
                    )
                    answer = await transport.send(request)
                if answer.status != 204 and answer.status not in _FOR_GOOD:
                    text = f"the node of {known.fqdn} answers with status {answer.status}"
                    raise BadAnswer(text, status=answer.status, retry_after=answer.retry_after)
                if len(self._told) >= _MOST_TOLD:
                    self._told.clear()
                self._told[told] = digest
        await self._run_blocking(lambda: self._node.database.write(lambda c: remove_notice(c, notice)))

    # Failures

    async def _fail(
        self,
        queue: str,
        error: InkgroveError,
        before: QueueBackoff | None,
        *,
        identity: IdentityId | None = None,
        target: str | None = None,
    ) -> None:
        """Try again later, twice as long each time, and give up after a while (`node.give_up_seconds`)."""
        now = self._node.clock()
        failures = (before.failures if before is not None else 0) + 1
        since = before.failing_since if before is not None else now
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 20)) * (0.5 + self._random())
        asked = error.data.get("retry_after")
        if isinstance(asked, int | float):
            wait = max(wait, float(asked))
        backoff = QueueBackoff(failures, now + int(wait * _SECOND), since, f"{error.code}: {error.message}"[:500])
        limit = now - self._node.settings.give_up_seconds * _SECOND
        is_over = since < limit or (isinstance(error, NoIdentityThere) and not error.data.get("fqdn"))

        def work(connection: Connection) -> None:
            put_backoff(connection, queue, backoff)
            if target is not None:
                forget_old_notices(connection, target, limit)
            if identity is not None and is_over and (item := find_relocation(connection, identity)) is not None:
                finish_relocation(connection, item)  # whoever asks for them looks them up again

        await self._run_blocking(lambda: self._node.database.write(work))


_MOVED: Final = "moved"
_NOTICES: Final = "notices"


def _queue_of(identity: IdentityId) -> str:
    return f"{_MOVED} {identity.hex()}"


def _pause_of(identity: IdentityId) -> str:
    return f"offered {identity.hex()}"


def _notices_to(target: str) -> str:
    return f"{_NOTICES} {target}"


def _make_notice(connection: Connection, identity: IdentityId) -> tuple[str, bytes] | None:
    """The name of an identity and the notice of its newest document; None if it does not live here any more."""
    hosted = find_identity(connection, identity)
    if hosted is None or not hosted.lives_here:
        return None
    return hosted.fqdn, encode_document(read_document_proof(connection, hosted.key))


def _log_error(error: InkgroveError) -> None:
    log.warning("moved identities could not be looked up", code=error.code, reason=error.message)
