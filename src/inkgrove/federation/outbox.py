"""The outbox: brings what is due to other nodes, each in a queue and with a patience of its own.

docs/protocol.md section 8. A dead or slow node delays nobody else. What is due is in the database; between any two
steps the process may end, and the next one goes on: the receiver recognises what it has.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.federation.discovery import Discovery
from inkgrove.federation.errors import BadAnswer, FederationError, LacksCreate
from inkgrove.federation.fetch import Answer, Request, Transport
from inkgrove.federation.held import find_held, owner_of, pack
from inkgrove.federation.rules import may_pass_on, may_receive
from inkgrove.messages import cbor
from inkgrove.messages.delivery import FORM, MAX_PARCELS, MEDIA_TYPE, Delivery, Parcel, encode_delivery
from inkgrove.node.node import Node
from inkgrove.store.deliveries import (
    Due,
    Trouble,
    clear_trouble,
    due_to,
    forget_progress,
    give_up,
    note_failure,
    settle,
    troubles,
    waiting_recipients,
)
from inkgrove.store.peers import KnownIdentity

PATH: Final = "/federation/deliveries"
_SECOND: Final = 1_000_000
_FIRST_WAIT: Final = 2.0
_LONGEST_WAIT: Final = 3600.0
_MAX_BYTES: Final = 4 * 1024 * 1024
_AT_ONCE: Final = 32
"""How many nodes are served at the same time."""

Sign = Callable[[Request, IdentityId], Request]
RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Letter:
    """What goes to a node in one request."""

    dues: Sequence[Due]
    body: bytes
    reached: Mapping[int, int]
    """By place: the newest message that the request holds for that due."""


class Outbox:
    """Delivers until it is stopped; `step` does one round, for simulations."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        sign: Sign,
        *,
        random: Callable[[], float],
        run_blocking: RunBlocking = asyncio.to_thread,
    ) -> None:
        self.node = node
        self._transport = transport
        self._discovery = discovery
        self._sign = sign
        self._random = random
        self._run_blocking = run_blocking
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._busy: set[str] = set()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something was queued: look now."""
        self._wake.set()

    async def run(self, idle_seconds: float = 1.0) -> None:
        """Deliver whatever is due until the task is cancelled."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._wake.clear()
                for target, recipients in (await self.due_targets()).items():
                    task = asyncio.create_task(self.serve(target, recipients))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                try:
                    await asyncio.wait_for(self._wake.wait(), idle_seconds)
                except TimeoutError:
                    continue
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> None:
        """Serve every queue that is due, one after the other."""
        for target, recipients in (await self.due_targets()).items():
            await self.serve(target, recipients)

    async def due_targets(self) -> dict[str, list[KnownIdentity]]:
        """The queues that are due and not under way: a node by its key, with the recipients there."""
        waiting, stopped = await self._run_blocking(
            lambda: self.node.database.read(lambda c: (waiting_recipients(c), troubles(c)))
        )
        now = self.node.clock()
        found: dict[str, list[KnownIdentity]] = defaultdict(list)
        for recipient in waiting:
            alone = f"identity {recipient.hex()}"
            if alone in stopped and stopped[alone].next_try > now:
                continue
            try:
                known = await self._discovery.find_by_id(recipient)
            except FederationError as error:
                await self._fail(alone, [recipient], error, stopped.get(alone))
                continue
            target = f"node {known.node_key.hex()}"
            if target in self._busy or (target in stopped and stopped[target].next_try > now):
                continue
            found[target].append(known)
        return dict(found)

    async def serve(self, target: str, recipients: Sequence[KnownIdentity]) -> None:
        """Send one node what is due, request after request, until nothing is or one fails."""
        if target in self._busy:
            return
        self._busy.add(target)
        ids = [known.id for known in recipients]
        try:
            async with self._slots:
                while (letter := await self._run_blocking(lambda: self._write_letter(ids))) is not None:
                    if letter.body and not await self._send(target, recipients[0].endpoint, letter):
                        return
        finally:
            self._busy.discard(target)

    async def _send(self, target: str, endpoint: str, letter: Letter) -> bool:
        request = Request("POST", endpoint.rstrip("/") + PATH, (("content-type", MEDIA_TYPE),), letter.body)
        via = letter.dues[0].via
        recipients = sorted({due.recipient for due in letter.dues})
        try:
            answer = await self._transport.send(await self._run_blocking(lambda: self._sign(request, via)))
            receipts = read_receipts(answer)
        except FederationError as error:
            stopped = await self._run_blocking(lambda: self.node.database.read(troubles))
            await self._fail(target, recipients, error, stopped.get(target))
            return False
        await self._run_blocking(lambda: self._settle(target, letter, receipts))
        return True

    # What is sent

    def _write_letter(self, recipients: Sequence[IdentityId]) -> Letter | None:
        """The next request to a node; without a body if nothing of what is due may be sent."""
        return self.node.database.write(lambda connection: self._compose(connection, recipients))

    def _compose(self, connection: Connection, recipients: Sequence[IdentityId]) -> Letter | None:
        dues = due_to(connection, recipients)
        if not dues:
            return None
        now = self.node.clock()
        groups: dict[tuple[Hash, int, bool], list[Due]] = defaultdict(list)
        for due in dues:
            held = find_held(connection, due.instance)
            if held is None:
                settle(connection, due, "given-up", code="federation.nothing-held", now=now)
                continue
            is_owner = owner_of(connection, held.author) == due.via
            is_allowed = (
                may_receive(held.access, due.recipient, is_deletion=False) if is_owner else may_pass_on(held.access)
            )
            if not is_allowed and (not held.is_deleted or due.delivered == 0):
                settle(connection, due, "refused", code="federation.not-addressed", now=now)
                continue
            groups[due.instance, due.delivered, not is_allowed].append(due)
        parcels: list[Parcel] = []
        sent: list[Due] = []
        reached: dict[int, int] = {}
        size = 0
        for (instance, delivered, deletions_only), members in groups.items():
            held = find_held(connection, instance)
            assert held is not None
            to = [due.recipient for due in members]
            parcel = pack(connection, held, to, after=delivered, deletions_only=deletions_only)
            if parcel is None:
                for due in members:
                    settle(connection, due, "delivered", delivered=held.last_seq, now=now)
                continue
            weight = sum(len(entry) + len(payload or b"") for entry, payload in parcel.entries)
            if parcels and (size + weight > _MAX_BYTES or len(parcels) >= MAX_PARCELS):
                break
            parcels.append(parcel)
            sent += members
            reached |= {due.place: held.last_seq for due in members}
            size += weight
        body = encode_delivery(Delivery(dues[0].via, parcels)) if parcels else b""
        return Letter(sent or dues, body, reached)

    # What came of it

    def _settle(self, target: str, letter: Letter, receipts: Mapping[tuple[Hash, IdentityId], dict[str, Any]]) -> None:
        now = self.node.clock()

        def work(connection: Connection) -> None:
            clear_trouble(connection, target)
            for due in letter.dues:
                receipt = receipts.get((due.instance, due.recipient))
                if receipt is None:
                    settle(connection, due, "refused", code="federation.no-receipt", now=now)
                elif receipt["fate"] == "refused" and receipt.get("code") == LacksCreate.code and due.delivered:
                    forget_progress(connection, due)
                elif receipt["fate"] == "refused":
                    settle(connection, due, "refused", code=str(receipt.get("code"))[:64], now=now)
                else:
                    state = "delivered" if receipt["fate"] == "accepted" else "held"
                    settle(connection, due, state, delivered=letter.reached[due.place], now=now)  # type: ignore[arg-type]

        self.node.database.write(work)

    async def _fail(
        self, target: str, recipients: Sequence[IdentityId], error: FederationError, before: Trouble | None
    ) -> None:
        now = self.node.clock()
        failures = (before.failures if before is not None else 0) + 1
        since = before.failing_since if before is not None else now
        asked = error.data.get("retry_after")
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (failures - 1)) * (0.5 + self._random())
        if isinstance(asked, int | float):
            wait = max(wait, float(asked))
        trouble = Trouble(failures, now + int(wait * _SECOND), since, f"{error.code}: {error.message}"[:500])

        def work(connection: Connection) -> None:
            note_failure(connection, target, trouble)
            if now - since > self.node.settings.give_up_seconds * _SECOND:
                give_up(connection, due_to(connection, recipients), error.code, now)

        await self._run_blocking(lambda: self.node.database.write(work))


def read_receipts(answer: Answer) -> dict[tuple[Hash, IdentityId], dict[str, Any]]:
    """The receipts of an answer; anything else is a failure, which says when to try again if the answer does."""
    if answer.status != 200:
        retry = answer.header("retry-after")
        wait = int(retry) if retry is not None and retry.isascii() and retry.isdigit() else None
        raise BadAnswer(f"the node answered with status {answer.status}", status=answer.status, retry_after=wait)
    try:
        value: Any = cbor.decode(answer.body)
        assert value["form"] == FORM
        return {
            (Hash(item["instance"]), IdentityId(item["recipient"])): item
            for item in value["receipts"]
            if item["fate"] in ("accepted", "held", "refused")
        }
    except (InkgroveError, AssertionError, KeyError, TypeError, ValueError) as err:
        raise BadAnswer("the node's receipts cannot be read") from err
