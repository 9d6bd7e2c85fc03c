"""The outbox: brings what is due to other nodes, each in a queue and with a patience of its own.

docs/protocol.md section 8. A dead or slow node delays nobody else. What is due is in the database; between any two
steps the process may end, and the next one goes on: the receiver recognises what it has.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import random
from typing import Any, Final

import structlog
from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError, LacksCreate
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.backlogs import queue_backlogs
from inkgrove.federation.calls import signed_call
from inkgrove.federation.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.errors import FederationError
from inkgrove.federation.fetch import Transport
from inkgrove.federation.lanes import Lanes
from inkgrove.federation.letters import Letter, read_receipts, write_letter
from inkgrove.federation.names_found import NO_WORD, refuse_name, take_found, target_of
from inkgrove.federation.relations import is_final, tell_waiting
from inkgrove.federation.rounds import run_rounds
from inkgrove.messages.delivery import DELIVERY_MEDIA_TYPE
from inkgrove.node.runtime import Node
from inkgrove.store.federation.outbox import (
    DeliveryStatus,
    QueueBackoff,
    clear_backoff,
    forget_old_backoffs,
    forget_old_moves,
    forget_progress,
    give_up_deliveries,
    list_due_moves,
    list_move_recipients,
    put_backoff,
    read_backoffs,
    record_delivery,
    waiting_recipients,
)
from inkgrove.store.federation.peers import RemoteIdentity, forget_strangers
from inkgrove.store.federation.pending import end_pending, first_backlog, waiting_names

PATH: Final = "/federation/deliveries"
_SECOND: Final = 1_000_000
_FIRST_WAIT: Final = 2.0
_LONGEST_WAIT: Final = 3600.0
_BREATH_SECONDS: Final = 0.05
"""A node that publishes without a pause does not look for deliveries after each."""
_SUSPECT_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 30
"""How long a queue rests after something went wrong here."""
_TIDY_SECONDS: Final = 3600
_NAMES_AT_ONCE: Final = 64
"""How many names that were not found yet are looked up in one round."""
_FORGET_SECONDS: Final = 86_400
"""How long something that nobody needs is remembered of others."""
_FOR_GOOD: Final = (400, 413, 415, 422)
"""Answers that trying again does not change."""

log = structlog.get_logger("inkgrove.outbox")


class Outbox:
    """Delivers until it is stopped; `step` does one round, for simulations. Belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        random: Callable[[], float] = random,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        self.node = node
        self._lanes = Lanes(transport)
        self._discovery = discovery
        self._random = random
        self._run_blocking = run_blocking
        self._busy: set[str] = set()
        self._paused: dict[str, int] = {}
        """Queues in which something went wrong here, each with when it goes on."""
        self._located: dict[IdentityId, RemoteIdentity] = {}
        self._suspects: set[IdentityId] = set()
        """Those whose node did not answer as it should: it may be elsewhere by now."""
        self._begun_again: set[int] = set()
        """The places of deliveries that were sent from the beginning because the recipient lacked that."""
        self._wake = asyncio.Event()
        self._next_tidying = 0

    def wake(self) -> None:
        """Something was queued: look now."""
        self._wake.set()

    async def run(self, idle_seconds: float = 1.0) -> None:
        """Deliver whatever is due until the task is cancelled."""
        await run_rounds(self._find_work, self._wake, idle_seconds, _tell_trouble, _BREATH_SECONDS)

    async def step(self) -> None:
        """Find every recipient and serve every queue that is due, one after the other."""
        for _ in range(2):  # first where they are, then what is due to them
            for work in await self._find_work():
                await work

    async def _find_work(self) -> list[Coroutine[Any, Any, None]]:
        """What is to be done now and not under way: recipients to be located, nodes to be served, tidying."""
        waiting, stopped, backlog, names = await self._run_blocking(
            lambda: self.node.database.read(
                lambda c: (_waiting(c), read_backoffs(c), first_backlog(c), waiting_names(c))
            )
        )
        now = self.node.clock()
        self._paused = {target: until for target, until in self._paused.items() if until > now}

        def is_free(target: str) -> bool:
            # What is further away was noted with a wrong clock.
            is_stopped = target in stopped and 0 < stopped[target].next_try - now <= 2 * _LONGEST_WAIT * _SECOND
            return not (is_stopped or target in self._busy or target in self._paused)

        work: list[Coroutine[Any, Any, None]] = []
        if now >= self._next_tidying:
            self._next_tidying = now + _TIDY_SECONDS * _SECOND
            work.append(self._tidy())
        if backlog is not None and is_free("backlogs"):
            self._busy.add("backlogs")
            work.append(self._queue_backlogs())
        free = [name for name in names if is_free(target_of(name))][:_NAMES_AT_ONCE]
        self._busy |= {target_of(name) for name in free}
        work += [self._find_name(name, stopped.get(target_of(name))) for name in free]
        nodes: dict[str, list[RemoteIdentity]] = defaultdict(list)
        for recipient in waiting:
            known = self._located.get(recipient)
            if known is None or known.expires <= now:
                if is_free(alone := f"identity {recipient.hex()}"):
                    self._busy.add(alone)
                    work.append(self._locate(alone, recipient, stopped.get(alone)))
            elif is_free(target := f"node {known.node_key.hex()}"):
                nodes[target].append(known)
        self._busy |= nodes.keys()
        return work + [self._serve(target, known) for target, known in nodes.items()]

    async def _queue_backlogs(self) -> None:
        """Queue for new followers what was published before."""
        with self._pausing("backlogs"):
            await self._run_blocking(lambda: queue_backlogs(self.node))
        self.wake()

    async def _tidy(self) -> None:
        """Forget what is remembered of others and nobody needs."""
        before = self.node.clock() - _FORGET_SECONDS * _SECOND

        def work(connection: Connection) -> None:
            forget_old_backoffs(connection, before)
            forget_strangers(connection, before)

        await self._run_blocking(lambda: self.node.database.write(work))

    async def _find_name(self, name: str, before: QueueBackoff | None) -> None:
        """Find out who has a name, and queue what waits for it."""
        with self._pausing(target_of(name)):
            try:
                known = await self._discovery.find(name)
                await self._run_blocking(lambda: take_found(self.node, name, known))
            except NO_WORD as error:
                await self._fail(target_of(name), [], error, before, name=name)
            except FederationError as refusal:
                error_of_host = refusal
                await self._run_blocking(lambda: refuse_name(self.node, name, error_of_host))
        self.wake()

    async def _locate(self, alone: str, recipient: IdentityId, before: QueueBackoff | None) -> None:
        """Find the node of a recipient: whoever takes long to be found delays nobody else."""
        with self._pausing(alone):
            try:
                known = await self._discovery.find_by_id(recipient)
                if recipient in self._suspects:
                    since = self.node.clock() - _SUSPECT_SECONDS * _SECOND
                    known = await self._discovery.find(known.fqdn, fetched_since=since)
                    self._suspects.discard(recipient)
                self._located[recipient] = known
                if before is not None:
                    await self._run_blocking(lambda: self.node.database.write(lambda c: clear_backoff(c, alone)))
            except FederationError as error:
                await self._fail(alone, [recipient], error, before)
        self.wake()

    async def _serve(self, target: str, recipients: Sequence[RemoteIdentity]) -> None:
        """Send one node what is due, request after request, until nothing is or one fails."""
        ids = [known.id for known in recipients]
        with self._pausing(target):
            # First what they hear of relations: it can decide what becomes of the rest.
            goes_on = await self._tell(target, recipients)
            while goes_on:
                # A place for each request, and nothing is written before there is one: letters are large.
                async with self._lanes.enter(target) as transport:
                    letter = await self._run_blocking(lambda: write_letter(self.node, ids))
                    if letter is None:
                        return
                    goes_on = not letter.body or await self._send(transport, target, recipients, letter)

    @contextmanager
    def _pausing(self, target: str) -> Iterator[None]:
        """Let a queue be free again afterwards, and rest if something went wrong that is no word of its node."""
        try:
            yield
        except InkgroveError as error:
            log.warning("a delivery was interrupted", target=target, code=error.code, reason=error.message)
            self._paused[target] = self.node.clock() + _PAUSE_SECONDS * _SECOND
        except Exception:
            log.exception("a delivery failed", target=target)
            self._paused[target] = self.node.clock() + _PAUSE_SECONDS * _SECOND
        finally:
            self._busy.discard(target)

    async def _tell(self, target: str, recipients: Sequence[RemoteIdentity]) -> bool:
        """Tell identities of a node of moves in relations; whether the node answers."""
        ids = [known.id for known in recipients]
        waiting = await self._run_blocking(lambda: self.node.database.read(lambda c: list_due_moves(c, ids)))
        for known in recipients:
            due = [notice for notice in waiting if notice.other == known.id]
            for me in dict.fromkeys(notice.me for notice in due):
                try:
                    async with self._lanes.enter(target) as transport:
                        await tell_waiting(self.node, transport, me, known, run_blocking=self._run_blocking)
                except FederationError as error:
                    if not is_final(error):
                        await self._lose(target, recipients, error)
                        return False
                    log.info("a move was not taken", to=known.fqdn, code=error.code, reason=error.message)
            if due:
                await self._run_blocking(lambda: self.node.database.write(lambda c: clear_backoff(c, target)))
        return True

    async def _lose(self, target: str, recipients: Sequence[RemoteIdentity], error: FederationError) -> None:
        """A node did not answer as it should."""
        for known in recipients:
            self._located.pop(known.id, None)
            self._suspects.add(known.id)
        stopped = await self._run_blocking(lambda: self.node.database.read(read_backoffs))
        await self._fail(target, [known.id for known in recipients], error, stopped.get(target))

    async def _send(
        self, transport: Transport, target: str, recipients: Sequence[RemoteIdentity], letter: Letter
    ) -> bool:
        try:
            request = await self._run_blocking(
                lambda: signed_call(
                    self.node,
                    recipients[0],
                    "POST",
                    PATH,
                    sender=letter.sender,
                    body=letter.body,
                    content_type=DELIVERY_MEDIA_TYPE,
                )
            )
            # Before it is sent: whoever may have something of ours is asked for it, should this database be lost.
            await self._run_blocking(lambda: self.node.receivers.note(recipients[0].fqdn))
            answer = await transport.send(request)
            if answer.status in _FOR_GOOD:
                await self._run_blocking(lambda: self._refuse(target, letter, f"http.{answer.status}"))
                return True
            receipts = read_receipts(answer)
        except FederationError as error:
            await self._lose(target, recipients, error)
            return False
        await self._run_blocking(lambda: self._settle(target, letter, receipts))
        return True

    # What came of it

    def _settle(self, target: str, letter: Letter, receipts: Mapping[tuple[Hash, IdentityId], dict[str, Any]]) -> None:
        now = self.node.clock()

        def work(connection: Connection) -> None:
            clear_backoff(connection, target)
            for due in letter.dues:
                receipt = receipts.get((due.instance, due.recipient))
                if receipt is None:
                    record_delivery(connection, due, "refused", code="federation.no-receipt", now=now)
                elif (
                    receipt["fate"] == "refused"
                    and receipt.get("code") == LacksCreate.code
                    and due.delivered
                    and due.place not in self._begun_again
                ):
                    self._begun_again.add(due.place)  # once: who takes the first part and not the next has no end
                    forget_progress(connection, due)
                elif receipt["fate"] == "refused":
                    record_delivery(connection, due, "refused", code=str(receipt.get("code"))[:64], now=now)
                else:
                    state: DeliveryStatus = "delivered" if receipt["fate"] == "accepted" else "held"
                    if state == "delivered" and letter.reached[due.place] < due.wanted:
                        state = "waiting"  # for the next part
                    else:
                        self._begun_again.discard(due.place)
                    record_delivery(connection, due, state, delivered=letter.reached[due.place], now=now)

        self.node.database.write(work)

    def _refuse(self, target: str, letter: Letter, code: str) -> None:
        """The node understood the request and will never take it: it must not stand in the way of the next one."""
        now = self.node.clock()

        def work(connection: Connection) -> None:
            clear_backoff(connection, target)
            for due in letter.dues:
                record_delivery(connection, due, "refused", code=code, now=now)

        self.node.database.write(work)

    async def _fail(
        self,
        target: str,
        recipients: Sequence[IdentityId],
        error: FederationError,
        before: QueueBackoff | None,
        *,
        name: str | None = None,
    ) -> None:
        now = self.node.clock()
        failures = (before.failures if before is not None else 0) + 1
        since = before.failing_since if before is not None else now
        asked = error.data.get("retry_after")
        # However often it failed: a power of a thousand is no float any more.
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 20)) * (0.5 + self._random())
        if isinstance(asked, int | float):
            wait = max(wait, float(asked))
        trouble = QueueBackoff(failures, now + int(wait * _SECOND), since, f"{error.code}: {error.message}"[:500])

        def work(connection: Connection) -> None:
            put_backoff(connection, target, trouble)
            # By its own age: what was written yesterday to a node that has been away for a year waits as long as any.
            limit = now - self.node.settings.give_up_seconds * _SECOND
            give_up_deliveries(connection, recipients, limit, error.code, now)
            if name is not None:
                end_pending(connection, name, "given-up", error.code, now, queued_before=limit)
            forget_old_moves(connection, recipients, limit)

        await self._run_blocking(lambda: self.node.database.write(work))


def _tell_trouble(error: InkgroveError) -> None:
    log.warning("deliveries could not be looked up", code=error.code, reason=error.message)


def _waiting(connection: Connection) -> list[IdentityId]:
    return sorted({*waiting_recipients(connection), *list_move_recipients(connection)})
