"""The outbox: the worker that sends what is due to other nodes, each with a queue and a backoff of its own.

docs/protocol.md sections 7.6, 8 and 8.6. A dead or slow node delays nobody else. What is due is in the database;
between any two steps the process may end, and the next one goes on: the receiver recognises what it has. Besides
deliveries there are moves in relations, names of recipients that could not be found yet, and what new followers get of
what was published before. Whether a recipient may still have what is due is checked again when it is sent.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import random
from typing import Any, Final

import structlog

from inkgrove.core import Hash, IdentityId, PublicKey, decode_entry
from inkgrove.core.errors import InkgroveError, LacksCreate
from inkgrove.federation.errors import (
    BadAnswer,
    FederationError,
    IdentityRelocated,
    PeerTimeout,
    PeerUnreachable,
    QuotaUsedUp,
)
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.documents import MOVED_STATUS, take_moved
from inkgrove.federation.peers.limits import RequestSlots, run_rounds
from inkgrove.federation.peers.signed_requests import make_signed_request
from inkgrove.federation.peers.transport import PeerResponse, Transport
from inkgrove.federation.sharing.key_proofs import pack_key_proofs
from inkgrove.federation.sharing.recipients import find_leaving, read_leaving
from inkgrove.federation.sharing.relations import is_final_refusal, send_waiting_moves
from inkgrove.messages import (
    DELIVERY_FORMAT,
    DELIVERY_MEDIA_TYPE,
    MAX_PARCELS,
    MAX_PROOFS,
    Delivery,
    Parcel,
    cbor,
    encode_delivery,
)
from inkgrove.node.errors import NotAddressed
from inkgrove.node.publishing import (
    HeldInstance,
    find_erased_instance,
    find_held_instance,
    is_due_to,
    may_receive,
    pack_next_parcel,
    send_pending,
)
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    OF_ERASED,
    Backlog,
    DeliveryStatus,
    DueDelivery,
    QueueBackoff,
    RemoteIdentity,
    clear_backoff,
    end_pending,
    first_backlog,
    forget_old_backoffs,
    forget_old_moves,
    forget_progress,
    forget_strangers,
    give_up_deliveries,
    is_closing,
    keep_moved,
    list_due_deliveries,
    list_due_moves,
    list_move_recipients,
    list_relocations,
    newest_for_followers,
    put_backoff,
    queue_deliveries,
    read_backoffs,
    record_delivery,
    retry_refused,
    take_backlog,
    waiting_names,
    waiting_recipients,
)
from inkgrove.store.node import find_identity, hold_departures, is_follower, lives_here

# One request and its answer

_MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OutgoingDelivery:
    """A delivery to a node, in one request."""

    sender: str
    """The FQDN of the identity that sends."""
    deliveries: Sequence[DueDelivery]
    body: bytes
    last_seqs: Mapping[int, int]
    """The sequence number of the newest message that the request holds for each due delivery, by its number."""


def prepare_delivery(node: Node, recipients: Sequence[IdentityId]) -> OutgoingDelivery | None:
    """Make the next delivery to a node; None if nothing is due, without a body if nothing that is due may be sent."""
    return node.database.write(lambda connection: _compose(connection, node, recipients))


def _compose(connection: Connection, node: Node, recipients: Sequence[IdentityId]) -> OutgoingDelivery | None:
    deliveries = list_due_deliveries(connection, recipients)
    if not deliveries:
        return None
    now = node.clock()
    sender = find_identity(connection, deliveries[0].via)
    instances = {
        instance: find_held_instance(connection, instance) or find_erased_instance(connection, instance)
        for instance in {due.instance for due in deliveries}
    }
    groups: dict[tuple[Hash, int, bool], list[DueDelivery]] = defaultdict(list)
    for due in deliveries:
        held = instances[due.instance]
        if held is None or sender is None:
            record_delivery(connection, due, "given-up", code="federation.nothing-held", now=now)
        elif not sender.lives_here:  # this node cannot prove any more that it serves them
            record_delivery(connection, due, "given-up", code="identity.lives-elsewhere", now=now)
        elif held.is_deleted and due.delivered < held.last_seq:
            # Everybody who may have it gets the delete, and nobody anything else any more.
            groups[due.instance, 0, True].append(due)
        elif held.is_expired(now) and not due.delivered:
            record_delivery(connection, due, "refused", code="federation.expired", now=now)
        elif is_due_to(connection, held, due.via, due.recipient):
            groups[due.instance, due.delivered, False].append(due)
        else:
            record_delivery(connection, due, "refused", code=NotAddressed.code, now=now)
    parcels: list[Parcel] = []
    sent: list[DueDelivery] = []
    last_seqs: dict[int, int] = {}
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
        last_seqs |= {due.queue_position: last for due in members}
        size += weight
    if not parcels:
        return OutgoingDelivery("", deliveries, b"", {})
    assert sender is not None
    # Who closes their account has given the password: nobody has to wait for a grace.
    delivery = Delivery(
        sender.id,
        parcels,
        erases=is_closing(connection, sender.id),
        proofs=pack_key_proofs(connection, _keys_that_end(parcels, instances))[:MAX_PROOFS],
    )
    return OutgoingDelivery(sender.fqdn, sent, encode_delivery(delivery), last_seqs)


def _keys_that_end(
    parcels: Sequence[Parcel], instances: Mapping[Hash, HeldInstance | None]
) -> Iterator[tuple[PublicKey, PublicKey]]:
    """The author of each instance that a parcel ends by another key, and that key."""
    for parcel in parcels:
        held, author = instances[parcel.instance], decode_entry(parcel.entries[0][0]).author
        if held is not None and author != held.author:
            yield held.author, author


def read_receipts(answer: PeerResponse) -> dict[tuple[Hash, IdentityId], dict[str, Any]]:
    """Return the receipts of an answer by instance and recipient; raises `BadAnswer`, with `retry_after` if given."""
    if answer.status != 200:
        text = f"the node answered with status {answer.status}"
        raise BadAnswer(text, status=answer.status, retry_after=answer.retry_after, **read_leaving(answer))
    try:
        value: Any = cbor.decode(answer.body)
        assert value["form"] == DELIVERY_FORMAT
        found = {
            (item["instance"], item["recipient"]): item
            for item in value["receipts"]
            if item["fate"] in ("accepted", "held", "refused")
        }
        # Of a number, bytes() would make as many bytes.
        assert all(type(part) is bytes for key in found for part in key)
        return {(Hash(instance), IdentityId(recipient)): item for (instance, recipient), item in found.items()}
    except (InkgroveError, AssertionError, KeyError, TypeError, ValueError) as err:
        raise BadAnswer("the node's receipts cannot be read") from err


# Recipients whose names were not found yet

UNANSWERED: Final = (PeerUnreachable, PeerTimeout, BadAnswer, QuotaUsedUp)
"""Errors that prove nothing about a name: its node does not answer, or something before it answers in its place."""


def make_queue_name(name: str) -> str:
    """The name of the queue for a recipient that was not found yet."""
    return f"name {name}"


def send_to_found(node: Node, name: str, known: RemoteIdentity) -> None:
    """Send what waits for a name that was found."""

    def work(connection: Connection) -> bool:
        clear_backoff(connection, make_queue_name(name))
        return send_pending(connection, node, name, known.id)

    while node.database.write(work):
        pass


def refuse_name(node: Node, name: str, error: FederationError) -> None:
    """End what waits for a name whose host says that nobody is there, or proves another identity."""

    def work(connection: Connection) -> None:
        clear_backoff(connection, make_queue_name(name))
        end_pending(connection, name, "refused", error.code, node.clock())

    node.database.write(work)


# What new followers get of what was published before

_BACKLOG_FACTOR: Final = 5
"""How many instances are looked at for each one that may be sent, at most."""


def queue_backlogs(node: Node) -> None:
    """Queue the newest instances for followers whose nodes know that they were accepted, each in one transaction."""
    while (backlog := node.database.read(first_backlog)) is not None:
        node.database.write(lambda connection: _queue_one(connection, node, backlog))


def _queue_one(connection: Connection, node: Node, backlog: Backlog) -> None:
    followee, follower = backlog
    hold_departures(connection)
    if not take_backlog(connection, backlog) or not lives_here(connection, followee):
        return
    # A follower who lives here sees all of it already.
    if not is_follower(connection, follower, followee) or lives_here(connection, follower):
        return
    now, most = node.clock(), node.settings.new_follower_posts
    retry_refused(connection, followee, follower, "federation.not-following", now)
    found: list[HeldInstance] = []
    for instance in islice(newest_for_followers(connection, followee, _BACKLOG_FACTOR * most), _BACKLOG_FACTOR * most):
        if len(found) >= most:
            break
        held = find_held_instance(connection, instance)
        if held is None or held.is_deleted or held.is_expired(now):
            continue
        if may_receive(held.access, follower, was_sent=False, is_follower=True):
            found.append(held)
    for held in reversed(found):  # the oldest goes first
        queue_deliveries(connection, held.instance, followee, [follower], wanted=held.last_seq, now=now)


# The worker

DELIVERIES_PATH: Final = "/federation/deliveries"
_SECOND: Final = 1_000_000
_FIRST_WAIT: Final = 2.0
_LONGEST_WAIT: Final = 3600.0
_PAUSE_AFTER_ROUND: Final = 0.05
"""Seconds: a node that publishes all the time does not look for deliveries after each publication."""
_SUSPECT_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 30
"""How long a queue rests after something went wrong here."""
_TIDY_SECONDS: Final = 3600
_NAMES_AT_ONCE: Final = 64
"""How many names that were not found yet are looked up in one round."""
_FORGET_SECONDS: Final = 86_400
"""How long backoffs and strangers that are not needed any more are remembered."""
_FOR_GOOD: Final = (400, 413, 415, 422)
"""Answers that trying again does not change."""

log = structlog.get_logger("inkgrove.outbox")


class Outbox:
    """The worker: `run` goes on until it is cancelled, `step` does one round. Belongs to one event loop."""

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
        self._slots = RequestSlots(transport)
        self._discovery = discovery
        self._random = random
        self._run_blocking = run_blocking
        self._busy: set[str] = set()
        self._paused: dict[str, int] = {}
        """Queues that failed because of this node, each with when it goes on."""
        self._located: dict[IdentityId, RemoteIdentity] = {}
        self._suspects: set[IdentityId] = set()
        """Recipients whose node did not answer as it should: they may have moved."""
        self._begun_again: set[int] = set()
        """The numbers of deliveries that were sent from the beginning because the recipient lacked that."""
        self._wake = asyncio.Event()
        self._next_tidying = 0

    def wake(self) -> None:
        """Look for work now: something was queued."""
        self._wake.set()

    def locate_again(self, recipient: IdentityId) -> None:
        """Find out anew where a recipient is, and look for work: they have moved."""
        self._located.pop(recipient, None)
        self.wake()

    async def run(self, idle_seconds: float = 1.0) -> None:
        """Deliver whatever is due until the task is cancelled."""
        await run_rounds(self._find_work, self._wake, idle_seconds, _log_error, _PAUSE_AFTER_ROUND)

    async def step(self) -> None:
        """Find every recipient and serve every queue that is due, one after the other."""
        for _ in range(2):  # first where they are, then what is due to them
            for work in await self._find_work():
                await work

    async def _find_work(self) -> list[Coroutine[Any, Any, None]]:
        """Find what is due and not under way: recipients to be located, nodes to be served, tidying."""
        waiting, stopped, backlog, names, moved = await self._run_blocking(
            lambda: self.node.database.read(
                lambda c: (_waiting(c), read_backoffs(c), first_backlog(c), waiting_names(c), self._find_moved(c))
            )
        )
        for identity in moved:
            self._located.pop(identity, None)
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

    def _find_moved(self, connection: Connection) -> set[IdentityId]:
        """Recipients who are not any more where they were located: any process may have heard of that."""
        located = {item.identity: self._located.get(item.identity) for item in list_relocations(connection)}
        return keep_moved(connection, [(known.id, known.node_key) for known in located.values() if known is not None])

    async def _queue_backlogs(self) -> None:
        """Queue for new followers what was published before."""
        with self._pausing("backlogs"):
            await self._run_blocking(lambda: queue_backlogs(self.node))
        self.wake()

    async def _tidy(self) -> None:
        """Forget old backoffs and strangers."""
        before = self.node.clock() - _FORGET_SECONDS * _SECOND

        def work(connection: Connection) -> None:
            forget_old_backoffs(connection, before)
            forget_strangers(connection, before)

        await self._run_blocking(lambda: self.node.database.write(work))

    async def _find_name(self, name: str, before: QueueBackoff | None) -> None:
        """Find the identity of a name, and queue what waits for it."""
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
        """Find the node of a recipient, in a queue of its own: one that takes long delays nobody else."""
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
        with self._pausing(target):
            # Moves first: they can decide whether the rest is accepted.
            goes_on = await self._send_moves(target, recipients)
            while goes_on:
                # Who has moved meanwhile, or is about to, is not served here any more.
                recipients = [known for known in recipients if self._located.get(known.id) is known]
                ids = [known.id for known in recipients]
                if not ids:
                    return
                # A slot for each request, before it is made: deliveries are large.
                async with self._slots.acquire(target) as transport:
                    delivery = await self._run_blocking(lambda: prepare_delivery(self.node, ids))  # noqa: B023
                    if delivery is None:
                        return
                    goes_on = not delivery.body or await self._send(transport, target, recipients, delivery)

    @contextmanager
    def _pausing(self, target: str) -> Iterator[None]:
        """Free a queue afterwards, and pause it if this node failed rather than the other one."""
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

    async def _send_moves(self, target: str, recipients: Sequence[RemoteIdentity]) -> bool:
        """Send the moves in relations that are due to identities of a node; returns whether the node answers."""
        ids = [known.id for known in recipients]
        waiting = await self._run_blocking(lambda: self.node.database.read(lambda c: list_due_moves(c, ids)))
        for known in recipients:
            due = [move for move in waiting if move.other == known.id]
            for me in dict.fromkeys(move.me for move in due):
                try:
                    async with self._slots.acquire(target) as transport:
                        await send_waiting_moves(self.node, transport, me, known, run_blocking=self._run_blocking)
                except IdentityRelocated:
                    self._forget_moved([known.id])
                    break
                except FederationError as error:
                    if leaving := find_leaving(error, [known]):
                        await self._rest(leaving, error)
                        break
                    if not is_final_refusal(error):
                        await self._note_failure(target, recipients, error)
                        return False
                    log.info("a move was not taken", to=known.fqdn, code=error.code, reason=error.message)
            if due:
                await self._run_blocking(lambda: self.node.database.write(lambda c: clear_backoff(c, target)))
        return True

    async def _rest(self, leaving: Collection[IdentityId], error: FederationError) -> None:
        """Let what is due to recipients wait who are about to leave their node; the others are served."""
        for recipient in leaving:
            self._located.pop(recipient, None)
            await self._fail(f"identity {recipient.hex()}", [recipient], error, None)

    def _forget_moved(self, moved: Collection[IdentityId]) -> None:
        """Send nothing more to where identities were located; they are looked up where their documents lead."""
        for identity in moved:
            self._located.pop(identity, None)

    async def _note_failure(self, target: str, recipients: Sequence[RemoteIdentity], error: FederationError) -> None:
        """Note that a node did not answer as it should: its recipients are located again, its queue waits."""
        for known in recipients:
            self._located.pop(known.id, None)
            self._suspects.add(known.id)
        stopped = await self._run_blocking(lambda: self.node.database.read(read_backoffs))
        await self._fail(target, [known.id for known in recipients], error, stopped.get(target))

    async def _send(
        self, transport: Transport, target: str, recipients: Sequence[RemoteIdentity], delivery: OutgoingDelivery
    ) -> bool:
        try:
            request = await self._run_blocking(
                lambda: make_signed_request(
                    self.node,
                    recipients[0],
                    "POST",
                    DELIVERIES_PATH,
                    sender=delivery.sender,
                    body=delivery.body,
                    content_type=DELIVERY_MEDIA_TYPE,
                )
            )
            # Before it is sent: whoever may have something of ours is asked for it, should this database be lost.
            await self._run_blocking(lambda: self.node.receivers.add(recipients[0].fqdn))
            answer = await transport.send(request)
            if answer.status in _FOR_GOOD:
                await self._run_blocking(lambda: self._refuse(target, delivery, f"http.{answer.status}"))
                return True
            if answer.status == MOVED_STATUS:
                relocated = await self._run_blocking(lambda: take_moved(self.node, answer, recipients))
                self._forget_moved(relocated.identities)
                return True  # with those who have not
            receipts = read_receipts(answer)
        except FederationError as error:
            asked = [known for known in recipients if self._located.get(known.id) is known]
            if leaving := find_leaving(error, asked):  # each at most once, whatever the node answers
                await self._rest(leaving, error)
                return True  # with those who are not
            await self._note_failure(target, recipients, error)
            return False
        found_at = [(known.id, known.node_key) for known in recipients]
        self._forget_moved(await self._run_blocking(lambda: self._apply_receipts(target, delivery, receipts, found_at)))
        return True

    # Results

    def _apply_receipts(
        self,
        target: str,
        delivery: OutgoingDelivery,
        receipts: Mapping[tuple[Hash, IdentityId], dict[str, Any]],
        found_at: Collection[tuple[IdentityId, PublicKey]],
    ) -> set[IdentityId]:
        """Record the receipts, except for recipients who have moved meanwhile, which it returns."""
        now = self.node.clock()

        def work(connection: Connection) -> set[IdentityId]:
            clear_backoff(connection, target)
            # Of who was found on another node meanwhile, the old one's receipt says nothing.
            moved = keep_moved(connection, found_at)
            for due in delivery.deliveries:
                if due.recipient in moved:
                    continue
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
                    if state == "delivered" and delivery.last_seqs[due.queue_position] < due.wanted:
                        state = "waiting"  # for the next part
                    else:
                        self._begun_again.discard(due.queue_position)
                    code = OF_ERASED if receipt.get("erased") is True else None
                    last_seq = delivery.last_seqs[due.queue_position]
                    record_delivery(connection, due, state, delivered=last_seq, code=code, now=now)
            return moved

        return self.node.database.write(work)

    def _refuse(self, target: str, delivery: OutgoingDelivery, code: str) -> None:
        """Record that the node will never accept a delivery, so that it does not block the next one."""
        now = self.node.clock()

        def work(connection: Connection) -> None:
            clear_backoff(connection, target)
            for due in delivery.deliveries:
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
        # The exponent is bounded: 2.0 ** 1024 is no float any more.
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 20)) * (0.5 + self._random())
        if isinstance(asked, int | float):
            wait = max(wait, float(asked))
        backoff = QueueBackoff(failures, now + int(wait * _SECOND), since, f"{error.code}: {error.message}"[:500])

        def work(connection: Connection) -> None:
            put_backoff(connection, target, backoff)
            # By the age of the delivery: one of yesterday to a node that has been away for a year waits as long as any.
            limit = now - self.node.settings.give_up_seconds * _SECOND
            give_up_deliveries(connection, recipients, limit, error.code, now)
            if name is not None:
                end_pending(connection, name, "given-up", error.code, now, queued_before=limit)
            forget_old_moves(connection, recipients, limit)

        await self._run_blocking(lambda: self.node.database.write(work))


def _log_error(error: InkgroveError) -> None:
    log.warning("deliveries could not be looked up", code=error.code, reason=error.message)


def _waiting(connection: Connection) -> list[IdentityId]:
    return sorted({*waiting_recipients(connection), *list_move_recipients(connection)})
