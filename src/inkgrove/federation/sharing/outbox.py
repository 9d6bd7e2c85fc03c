"""The outbox: brings what is due to other nodes, each in a queue and with a patience of its own.

docs/protocol.md section 8. A dead or slow node delays nobody else. What is due is in the database; between any two
steps the process may end, and the next one goes on: the receiver recognises what it has.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import random
from typing import Any, Final

import structlog

from inkgrove.core.errors import InkgroveError, LacksCreate
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.errors import BadAnswer, FederationError, PeerTimeout, PeerUnreachable, QuotaUsedUp
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.limits import RequestSlots, run_rounds
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import PeerResponse, Transport
from inkgrove.federation.sharing.relations import is_final_refusal, send_waiting_moves
from inkgrove.messages import cbor
from inkgrove.messages.delivery import (
    DELIVERY_FORMAT,
    DELIVERY_MEDIA_TYPE,
    MAX_PARCELS,
    Delivery,
    Parcel,
    encode_delivery,
)
from inkgrove.node.errors import NotAddressed
from inkgrove.node.publishing.delivery_queue import is_due_to, is_follower, may_receive
from inkgrove.node.publishing.held_instance import HeldInstance, find_held_instance, pack_next_parcel
from inkgrove.node.publishing.local_delivery import send_pending
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation.outbox import (
    DeliveryStatus,
    DueDelivery,
    QueueBackoff,
    clear_backoff,
    forget_old_backoffs,
    forget_old_moves,
    forget_progress,
    give_up_deliveries,
    list_due_deliveries,
    list_due_moves,
    list_move_recipients,
    put_backoff,
    queue_deliveries,
    read_backoffs,
    record_delivery,
    retry_refused,
    waiting_recipients,
)
from inkgrove.store.federation.peers import RemoteIdentity, forget_strangers
from inkgrove.store.federation.pending import (
    Backlog,
    end_pending,
    first_backlog,
    newest_for_followers,
    take_backlog,
    waiting_names,
)
from inkgrove.store.node.identities import find_identity, lives_here

# What goes to another node in one request, and what its answer says (docs/protocol.md section 8).
#
# Whether a recipient may still have what is due to them is asked again here, when it is sent.


_MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OutgoingDelivery:
    """What goes to a node in one request."""

    sender: str
    """The FQDN of the identity that sends."""
    dues: Sequence[DueDelivery]
    body: bytes
    reached: Mapping[int, int]
    """By place: the newest message that the request holds for that due."""


def prepare_delivery(node: Node, recipients: Sequence[IdentityId]) -> OutgoingDelivery | None:
    """The next request to a node; None if nothing is due, without a body if nothing of what is due may be sent."""
    return node.database.write(lambda connection: _compose(connection, node, recipients))


def _compose(connection: Connection, node: Node, recipients: Sequence[IdentityId]) -> OutgoingDelivery | None:
    dues = list_due_deliveries(connection, recipients)
    if not dues:
        return None
    now = node.clock()
    sender = find_identity(connection, dues[0].via)
    instances = {instance: find_held_instance(connection, instance) for instance in {due.instance for due in dues}}
    groups: dict[tuple[Hash, int, bool], list[DueDelivery]] = defaultdict(list)
    for due in dues:
        held = instances[due.instance]
        if held is None or sender is None:
            record_delivery(connection, due, "given-up", code="federation.nothing-held", now=now)
        elif not sender.lives_here:  # nobody would believe this node any more that it speaks for them
            record_delivery(connection, due, "given-up", code="identity.lives-elsewhere", now=now)
        elif held.is_deleted and due.delivered < held.last_seq:
            # The end is told to whoever may have it, and nobody gets anything else any more.
            groups[due.instance, 0, True].append(due)
        elif held.is_expired(now) and not due.delivered:
            record_delivery(connection, due, "refused", code="federation.expired", now=now)
        elif is_due_to(connection, held, due.via, due.recipient):
            groups[due.instance, due.delivered, False].append(due)
        else:
            record_delivery(connection, due, "refused", code=NotAddressed.code, now=now)
    parcels: list[Parcel] = []
    sent: list[DueDelivery] = []
    reached: dict[int, int] = {}
    size = 0
    for (instance, delivered, deletions_only), members in groups.items():
        held = instances[instance]
        assert held is not None
        to = [due.recipient for due in members]
        packed = pack_next_parcel(connection, held, to, after=delivered, deletions_only=deletions_only)
        if packed is None:
            for due in members:
                record_delivery(connection, due, "delivered", delivered=held.last_seq, now=now)
            continue
        parcel, last = packed
        weight = sum(len(entry) + len(payload or b"") for entry, payload in parcel.entries)
        if parcels and (size + weight > _MAX_BYTES or len(parcels) >= MAX_PARCELS):
            break
        parcels.append(parcel)
        sent += members
        reached |= {due.queue_position: last for due in members}
        size += weight
    if not parcels:
        return OutgoingDelivery("", dues, b"", {})
    assert sender is not None
    return OutgoingDelivery(sender.fqdn, sent, encode_delivery(Delivery(sender.id, parcels)), reached)


def read_receipts(answer: PeerResponse) -> dict[tuple[Hash, IdentityId], dict[str, Any]]:
    """The receipts of an answer; anything else is a failure, which says when to try again if the answer does."""
    if answer.status != 200:
        text = f"the node answered with status {answer.status}"
        raise BadAnswer(text, status=answer.status, retry_after=answer.retry_after)
    try:
        value: Any = cbor.decode(answer.body)
        assert value["form"] == DELIVERY_FORMAT
        found = {
            (item["instance"], item["recipient"]): item
            for item in value["receipts"]
            if item["fate"] in ("accepted", "held", "refused")
        }
        # Of a number, bytes() would make as many bytes.
        assert all(type(part) is bytes for place in found for part in place)
        return {(Hash(instance), IdentityId(recipient)): item for (instance, recipient), item in found.items()}
    except (InkgroveError, AssertionError, KeyError, TypeError, ValueError) as err:
        raise BadAnswer("the node's receipts cannot be read") from err


# Looks for the names of recipients that could not be found when something was sent to them.
#
# docs/protocol.md section 8.6. A name is tried again with the patience of any queue. Once it is found, what waits for
# it
# is sent; if its host says that nobody is there, or after `give_up_seconds`, the author sees why it is not.


UNANSWERED: Final = (PeerUnreachable, PeerTimeout, BadAnswer, QuotaUsedUp)
"""What says nothing about a name: its node does not answer, or something before it answers in its place."""


def make_queue_name(name: str) -> str:
    """What the queue of a name is called."""
    return f"name {name}"


def send_to_found(node: Node, name: str, known: RemoteIdentity) -> None:
    """A name was found: send what waits for it."""

    def work(connection: Connection) -> bool:
        clear_backoff(connection, make_queue_name(name))
        return send_pending(connection, node, name, known.id)

    while node.database.write(work):
        pass


def refuse_name(node: Node, name: str, error: FederationError) -> None:
    """The host of a name says that nobody is there, or proves another one: nothing of what waits will be sent."""

    def work(connection: Connection) -> None:
        clear_backoff(connection, make_queue_name(name))
        end_pending(connection, name, "refused", error.code, node.clock())

    node.database.write(work)


# Sends new followers what was published before they followed (docs/protocol.md section 7.6).
#
# A follower is noted once their node has heard that they were accepted; the outbox then queues the newest instances
# for
# them like any others. Doing it twice queues nothing twice.


_PATIENCE: Final = 5
"""How many instances are looked at for each one that may be sent, at most."""


def queue_backlogs(node: Node) -> None:
    """Queue what followers lack who are noted, one after the other, each in a transaction of its own."""
    while (backlog := node.database.read(first_backlog)) is not None:
        node.database.write(lambda connection: _queue_one(connection, node, backlog))


def _queue_one(connection: Connection, node: Node, backlog: Backlog) -> None:
    followee, follower = backlog
    if not take_backlog(connection, backlog) or not lives_here(connection, followee):
        return
    # Whoever lives here sees what is for followers as soon as they are one.
    if not is_follower(connection, follower, followee) or lives_here(connection, follower):
        return
    now, most = node.clock(), node.settings.new_follower_posts
    retry_refused(connection, followee, follower, "federation.not-following", now)
    found: list[HeldInstance] = []
    for instance in islice(newest_for_followers(connection, followee, _PATIENCE * most), _PATIENCE * most):
        if len(found) >= most:
            break
        held = find_held_instance(connection, instance)
        if held is None or held.is_deleted or held.is_expired(now):
            continue
        if may_receive(held.access, follower, was_sent=False, is_follower=True):
            found.append(held)
    for held in reversed(found):  # the oldest goes first
        queue_deliveries(connection, held.instance, followee, [follower], wanted=held.last_seq, now=now)


DELIVERIES_PATH: Final = "/federation/deliveries"
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
        self._lanes = RequestSlots(transport)
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
        free = [name for name in names if is_free(make_queue_name(name))][:_NAMES_AT_ONCE]
        self._busy |= {make_queue_name(name) for name in free}
        work += [self._find_name(name, stopped.get(make_queue_name(name))) for name in free]
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
        with self._pausing(make_queue_name(name)):
            try:
                known = await self._discovery.find(name)
                await self._run_blocking(lambda: send_to_found(self.node, name, known))
            except UNANSWERED as error:
                await self._fail(make_queue_name(name), [], error, before, name=name)
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
                    letter = await self._run_blocking(lambda: prepare_delivery(self.node, ids))
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
                        await send_waiting_moves(self.node, transport, me, known, run_blocking=self._run_blocking)
                except FederationError as error:
                    if not is_final_refusal(error):
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
        self, transport: Transport, target: str, recipients: Sequence[RemoteIdentity], letter: OutgoingDelivery
    ) -> bool:
        try:
            request = await self._run_blocking(
                lambda: make_signed_request(
                    self.node,
                    recipients[0],
                    "POST",
                    DELIVERIES_PATH,
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

    def _settle(
        self, target: str, letter: OutgoingDelivery, receipts: Mapping[tuple[Hash, IdentityId], dict[str, Any]]
    ) -> None:
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
                    and due.queue_position not in self._begun_again
                ):
                    # Once: a node that takes the first part and not the next would never end.
                    self._begun_again.add(due.queue_position)
                    forget_progress(connection, due)
                elif receipt["fate"] == "refused":
                    record_delivery(connection, due, "refused", code=str(receipt.get("code"))[:64], now=now)
                else:
                    state: DeliveryStatus = "delivered" if receipt["fate"] == "accepted" else "held"
                    if state == "delivered" and letter.reached[due.queue_position] < due.wanted:
                        state = "waiting"  # for the next part
                    else:
                        self._begun_again.discard(due.queue_position)
                    record_delivery(connection, due, state, delivered=letter.reached[due.queue_position], now=now)

        self.node.database.write(work)

    def _refuse(self, target: str, letter: OutgoingDelivery, code: str) -> None:
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
