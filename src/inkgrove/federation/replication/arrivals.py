"""The worker that goes on with identities that come here from elsewhere (docs/protocol.md section 7.10).

Each arrival is resumed from its row, whatever process began it: a file that has come is taken in; friends are asked for
log 0, for relations and for what they hold of the identity's logs; and after `settle` what waited is put in, others are
looked up, and those concerned are told. What fails is tried again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final

import structlog

from inkgrove.core import IdentityId, PublicKey, SecretKey
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import FederationError, PeerTimeout, WrongName
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.senders import MANDATE_HEADER
from inkgrove.federation.peers.signed_requests import sign_request
from inkgrove.federation.peers.transport import PeerRequest, Transport
from inkgrove.federation.replication.client import PeerSource, fetch_entries, list_news, read_answer
from inkgrove.federation.replication.helped import HelpedArrivals
from inkgrove.federation.replication.intake import IntakeCounts, check_response, find_missing, ingest_checked
from inkgrove.federation.replication.server import (
    OWN_ENTRIES_PATH,
    OWN_HEIGHTS_PATH,
    OWN_RELATIONS_PATH,
    OWN_SHARES_PATH,
)
from inkgrove.messages import (
    REPLICATION_MEDIA_TYPE,
    AskHeights,
    Entries,
    LogHeight,
    ToldRelation,
    ToldShare,
    decode_told_relations,
    decode_told_shares,
    encode_ask_heights,
)
from inkgrove.node.errors import QuotaError
from inkgrove.node.identity import IDENTITY_LOG, find_control, show_quota
from inkgrove.node.moving import (
    MOST_TOLD,
    finish_arrival,
    finish_rows,
    note_lost_words,
    put_told_shares,
    render_told,
    set_state,
    take_in_file,
    tidy_arrivals,
)
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.logs import LogKey
from inkgrove.store.node import StoredAmounts, StoredArrival, add_usage, list_open_arrivals, lives_here

_IDLE_SECONDS: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_TIDY_MICROSECONDS: Final = 3600 * 1_000_000
_AT_ONCE: Final = 4
_FRIENDS_AT_ONCE: Final = 8
_FRIEND_SECONDS: Final = 300.0
"""How long a friend's node is asked in one round."""
_LOOK_UP_SECONDS: Final = 60.0
_MOST_ROUNDS: Final = 10
"""How often friends are asked again because further keys have come to light."""
_MOST_PAGES: Final = 10_000
"""How many pages of relations or shares one friend may tell."""
_TRIES: Final = 3
"""How often friends who do not answer are asked before the rest is enough."""
_RETRY_MICROSECONDS: Final = 2_000_000
"""How long after a round friends who have not answered are asked again, at first."""

Tell = Callable[[IdentityId], Awaitable[None]]
log = structlog.get_logger("inkgrove.arrivals")


async def tell_nobody(_identity: IdentityId) -> None:
    """Tell nobody: whoever hears from the identity looks it up."""


class FriendSource(PeerSource):
    """The node of a friend, asked for the logs of an identity that comes here, with the mandate of its first key."""

    heights_path = OWN_HEIGHTS_PATH
    entries_path = OWN_ENTRIES_PATH

    def __init__(
        self,
        node: Node,
        transport: Transport,
        known: RemoteIdentity,
        controller: SecretKey,
        mandate: str,
        *,
        run_blocking: RunBlocking,
    ) -> None:
        super().__init__(node, transport, known, seconds=_FRIEND_SECONDS, run_blocking=run_blocking)
        self._controller, self._mandate = controller, mandate

    async def relations(self) -> AsyncIterator[Sequence[ToldRelation]]:
        """Yield pages of the identity's relations with people of this node; raises a `FederationError`."""
        since: str | None = None
        for _ in range(_MOST_PAGES):
            body = await self._ask(OWN_RELATIONS_PATH, encode_ask_heights(AskHeights(since)))
            page = read_answer(decode_told_relations, body)
            yield page.relations
            if (since := page.next) is None:
                return

    async def shares(self) -> AsyncIterator[Sequence[ToldShare]]:
        """Yield pages of what people of this node were sent by the identity; raises a `FederationError`."""
        since: str | None = None
        for _ in range(_MOST_PAGES):
            body = await self._ask(OWN_SHARES_PATH, encode_ask_heights(AskHeights(since)))
            page = read_answer(decode_told_shares, body)
            yield page.shares
            if (since := page.next) is None:
                return

    def _signed(self, path: str, body: bytes) -> PeerRequest:
        url = self.remote.endpoint.rstrip("/") + path
        headers = (("Content-Type", REPLICATION_MEDIA_TYPE), (MANDATE_HEADER, self._mandate))
        nonce, key = self._node.random_bytes(16).hex(), self._controller
        request = PeerRequest("POST", url, headers, body)
        return sign_request(request, key, sender=key.public.hex(), now=self._node.clock(), nonce=nonce)


class ArrivalWorker:
    """The worker: `run` goes on until it is cancelled, `step` does what can be done now. Belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        tell: Tell = tell_nobody,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        """`tell` is called once an identity lives here and its rows are in: it tells relations, holders and peers.

        It may be called again for the same identity after an interruption.
        """
        self._node, self._transport, self._discovery = node, transport, discovery
        self._tell, self._run_blocking = tell, run_blocking
        self._helped = HelpedArrivals(node, transport, discovery, run_blocking=run_blocking)
        self._wake = asyncio.Event()
        self._next_tidying = 0
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._running: set[str] = set()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    async def run(self) -> None:
        """Go on with all arrivals until the task is cancelled; one that takes long keeps no other waiting."""
        async with asyncio.TaskGroup() as group:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_IDLE_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    for arrival in await self._list_open():
                        if arrival.id not in self._running:
                            self._running.add(arrival.id)
                            group.create_task(self._try(arrival))
                except InkgroveError as error:
                    log.warning("arrivals wait", code=error.code, reason=error.message)

    async def step(self) -> None:
        """Do what can be done now for every identity that is on its way here."""
        await asyncio.gather(*map(self._try, await self._list_open()))

    async def _list_open(self) -> list[StoredArrival]:
        now = self._node.clock()
        if now >= self._next_tidying:
            self._next_tidying = now + _TIDY_MICROSECONDS
            await self._run_blocking(lambda: tidy_arrivals(self._node))
        return await self._run_blocking(lambda: self._node.database.read(list_open_arrivals))

    async def _try(self, arrival: StoredArrival) -> None:
        """Go on with an arrival; what fails is tried again."""
        # What waits for other nodes waits beside the rest: a few that never answer would hold up everybody.
        is_local = arrival.state in ("arriving", "here")
        try:
            async with self._slots if is_local else nullcontext():
                await self._advance(arrival)
        except InkgroveError as error:  # the store is away, or the disk full
            log.warning("an arrival waits", identity=arrival.identity.hex(), code=error.code, reason=error.message)
        except Exception:
            log.exception("an arrival does not go on", identity=arrival.identity.hex())
        finally:
            self._running.discard(arrival.id)

    async def _advance(self, arrival: StoredArrival) -> None:
        match arrival.way, arrival.state:
            case "file", "arriving":
                await self._run_blocking(lambda: take_in_file(self._node, arrival))
            case "friends", "asked" | "fetching":
                await self._ask_friends(arrival)
            case _, "here":
                await self._finish(arrival)
            case "helped", _:
                await self._helped.advance(arrival)

    async def _finish(self, arrival: StoredArrival) -> None:
        """Do what follows `settle`: put in what waited, look others up, then tell the relations."""
        await self._run_blocking(lambda: note_lost_words(self._node, arrival))
        people = await self._run_blocking(lambda: finish_rows(self._node, arrival))
        await self._look_up(people)
        if await self._run_blocking(lambda: self._node.database.read(lambda c: lives_here(c, arrival.identity))):
            await self._tell(arrival.identity)  # else the words have taken it elsewhere meanwhile
        await self._run_blocking(lambda: finish_arrival(self._node, arrival))

    async def _look_up(self, people: Sequence[tuple[IdentityId, str]]) -> None:
        """Look others up under names that were told, so that they can be written to; who is not there is passed over.

        What is found is kept only with its proof, and only the id that it has counts.
        """
        slots = asyncio.Semaphore(_FRIENDS_AT_ONCE)

        async def find(fqdn: str) -> None:
            async with slots:
                with suppress(InkgroveError):
                    await self._discovery.find(fqdn)

        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                await asyncio.gather(*(find(fqdn) for _, fqdn in people))

    # Friends

    async def _ask_friends(self, arrival: StoredArrival) -> None:
        """Ask those who have not answered; once all have, or were asked often enough, the document is waited for."""
        facts: dict[str, Any] = json.loads(arrival.facts)
        if self._node.clock() < facts.get("next_try", 0):
            return
        if arrival.state == "asked":
            begun = await self._run_blocking(lambda: set_state(self._node, arrival, "fetching"))
            if begun is None:
                return
            arrival = begun
        asking = _Asking(self._node, self._transport, self._discovery, arrival, facts, self._run_blocking)
        failure = await asking.run()
        state, code, reason = await self._run_blocking(lambda: asking.conclude(failure))
        await self._run_blocking(
            lambda: set_state(self._node, arrival, state, facts=facts, code=code, reason=reason)  # type: ignore[arg-type]
        )


class _Asking:
    """One round of questions to all friends of an arrival who have not answered yet."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        arrival: StoredArrival,
        facts: dict[str, Any],
        run_blocking: RunBlocking,
    ) -> None:
        self._node, self._transport, self._discovery, self._arrival = node, transport, discovery, arrival
        self._facts, self._run_blocking = facts, run_blocking
        request = json.loads(arrival.request)
        self._mandate: str = request["mandate"]
        self.names: list[str] = request["friends"]
        self.friends: dict[str, dict[str, Any]] = facts.setdefault("friends", {})
        self._told: dict[tuple[str, str], list[Any]] = {
            (item[0], item[2]): item for item in facts.setdefault("relations", [])
        }

    async def run(self) -> InkgroveError | None:
        """Ask everybody, again as long as further keys come to light; an error of this node, if that stopped it."""
        controller = self._node.vault.open(self._arrival.sealed)
        slots = asyncio.Semaphore(_FRIENDS_AT_ONCE)
        last: tuple[frozenset[PublicKey], frozenset[PublicKey]] | None = None
        for _ in range(_MOST_ROUNDS):
            keys = wanted, belonging = await self._run_blocking(self._wanted_keys)
            known = len(wanted) + len(belonging)
            waiting = [name for name in self.names if not self._is_answered(name) or self._asked_for(name) < known]
            if not waiting or (keys == last and all(map(self._was_tried, waiting))):
                break
            last = keys

            async def ask(name: str) -> InkgroveError | None:
                async with slots:
                    return await self._ask(name, controller, wanted, belonging)  # noqa: B023

            for failure in await asyncio.gather(*map(ask, waiting)):
                if failure is not None:
                    return failure
        self._facts["relations"] = list(self._told.values())[:MOST_TOLD]
        return None

    def _is_answered(self, name: str) -> bool:
        return self.friends.get(name, {}).get("state") == "answered"

    def _was_tried(self, name: str) -> bool:
        return bool(self.friends.get(name, {}).get("tries"))

    def _asked_for(self, name: str) -> int:
        """For how many keys a friend was asked, those that belong to the identity counted twice."""
        count: int = self.friends.get(name, {}).get("keys", 0)
        return count

    def _wanted_keys(self) -> tuple[frozenset[PublicKey], frozenset[PublicKey]]:
        """The first key with all that the document lists, and those of them that belong to the identity."""
        first = self._arrival.key

        def work(connection: Connection) -> tuple[frozenset[PublicKey], frozenset[PublicKey]]:
            control = find_control(connection, first)
            if control is None:
                return frozenset({first}), frozenset({first})
            listed = {item.key for step in control.path for item in step.document.keys}
            belonging = {key for key, state in control.keys.items() if state.belongs}
            return frozenset({first, *listed}), frozenset({first, *belonging})

        return self._node.database.read(work)

    async def _ask(
        self, name: str, controller: SecretKey, wanted: frozenset[PublicKey], belonging: frozenset[PublicKey]
    ) -> InkgroveError | None:
        """Ask one friend for relations and for what it holds of some keys; an error of this node, if there is one."""
        friend = self.friends.setdefault(name, {})
        friend["tries"] = friend.get("tries", 0) + 1
        try:
            known = await self._find(name)
            own_key = await self._run_blocking(lambda: load_node_key(self._node).public)
            if known.node_key != own_key:  # what people of this very node know is here
                source = FriendSource(
                    self._node, self._transport, known, controller, self._mandate, run_blocking=self._run_blocking
                )
                async for told in source.relations():
                    self._note_relations(told, known.id)
                await self._fetch(source, friend, wanted, belonging)
                async for shares in source.shares():
                    await self._run_blocking(partial(put_told_shares, self._node, self._arrival, shares))
            friend.update(state="answered", keys=len(wanted) + len(belonging), reason=None)
        except (FederationError, TimeoutError) as error:
            code = error.code if isinstance(error, FederationError) else PeerTimeout.code
            friend.update(state="failed", reason=f"{code}: {error}"[:300])
        except InkgroveError as error:
            return error
        return None

    def _note_relations(self, told: Sequence[ToldRelation], friend: IdentityId) -> None:
        for item in told:
            if len(self._told) < MOST_TOLD:
                self._told[item.identity.hex(), item.side] = render_told(item, is_friend=item.identity == friend)

    async def _find(self, name: str) -> RemoteIdentity:
        try:
            return await self._discovery.find(name)
        except WrongName as error:
            return await self._discovery.find(str(error.data["named"]))

    async def _fetch(
        self,
        source: FriendSource,
        friend: dict[str, Any],
        wanted: frozenset[PublicKey],
        belonging: frozenset[PublicKey],
    ) -> None:
        """Fetch log 0 of all wanted keys, and all logs of those that belong to the identity."""

        async def use(answer: Entries, asked: set[LogKey]) -> None:
            taken = await self._run_blocking(lambda: self._ingest(answer, asked))
            friend["entries"] = friend.get("entries", 0) + taken

        async for page in list_news(source, None):
            logs = [
                item
                for item in page.logs
                if item.author in belonging or (item.author in wanted and item.log_id == IDENTITY_LOG)
            ]
            for is_identity in (True, False):  # which keys count follows from log 0
                some = [item for item in logs if (item.log_id == IDENTITY_LOG) is is_identity]
                await self._fetch_some(source, some, use)

    async def _fetch_some(
        self, source: FriendSource, logs: list[LogHeight], use: Callable[[Entries, set[LogKey]], Awaitable[None]]
    ) -> None:
        if logs:
            wants = await self._run_blocking(lambda: find_missing(self._node, logs))
            await fetch_entries(source, wants, use)

    def _ingest(self, answer: Entries, asked: set[LogKey]) -> int:
        """Take in what a friend has sent, within the quota of the identity; how many entries were new."""
        identity, node = self._arrival.identity, self._node
        checked = check_response(answer, asked)
        payload_bytes = sum(len(payload or b"") for _, payload in answer.entries)
        show_quota(node, identity).require(StoredAmounts(len(answer.entries), payload_bytes))
        taken = IntakeCounts()
        ingest_checked(node, checked, taken)
        if taken.stored:
            share = payload_bytes * taken.stored // max(1, taken.received)
            node.database.write(lambda c: add_usage(c, identity, StoredAmounts(taken.stored, share)))
        return taken.stored

    def conclude(self, failure: InkgroveError | None) -> tuple[str, str | None, str | None]:
        """Return the state that the arrival has now, and what keeps it from going on."""
        now = self._node.clock()
        tries = min((self.friends.get(name, {}).get("tries", 0) for name in self.names), default=_TRIES)
        wait = min(_RETRY_MICROSECONDS << min(tries, 10), int(_LONGEST_WAIT * 1_000_000))
        self._facts["next_try"] = now + wait
        if failure is not None:
            is_full = isinstance(failure, QuotaError)
            advice = ": ask the operator for more, then it goes on" if is_full else ""
            return "fetching", failure.code, failure.message + advice
        answered = [name for name in self.names if self._is_answered(name)]
        is_known = self._node.database.read(lambda c: find_control(c, self._arrival.key)) is not None
        if is_known and (len(answered) == len(self.names) or tries >= _TRIES):
            return "committing", None, None
        if not answered and self.names:
            return "fetching", "arrival.nobody-answered", "no friend has answered yet: check their names"
        if not is_known and len(answered) == len(self.names):
            text = f"nobody who was asked holds anything of {self._arrival.identity}: are these the right words?"
            return "fetching", "arrival.nobody-knows", text
        return "fetching", None, None
