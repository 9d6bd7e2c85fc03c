"""Fetches from others what this node has signed and does not hold any more, and lets it sign again.

docs/protocol.md section 8.12. While the database is behind (`node/runtime/signing_guard.py`), every node that may
hold logs of our
people is asked how far they go, and for what is lacking here. Nodes to which something was sent (*receivers*) must
answer, and all that they told of must be held here then. Those that only know of us (*others*) are asked beside them,
for a minute in all: strangers could otherwise keep this node from signing. Then entries are signed again, above all
that anybody has seen. If somebody cannot be asked, the operator decides (`inkgrove resume`).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import structlog

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey, SecretKey, identity_of, parse_secret_key
from inkgrove.federation.errors import NoIdentityThere, PeerTimeout, WrongIdentity, WrongName
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.limits import domain_of
from inkgrove.federation.peers.signed_requests import make_signed_request, sign_request
from inkgrove.federation.peers.transport import PeerRequest, Transport
from inkgrove.federation.replication.client import PeerSource, fetch_entries, list_news
from inkgrove.federation.replication.intake import (
    IntakeCounts,
    check_response,
    find_missing,
    ingest_checked,
    last_counted,
)
from inkgrove.federation.replication.server import OWN_ENTRIES_PATH, OWN_HEIGHTS_PATH
from inkgrove.messages.instance import Create, Update
from inkgrove.messages.replication import REPLICATION_MEDIA_TYPE, Entries, LogHeight
from inkgrove.node.identity.names import bind_administrators
from inkgrove.node.publishing.delivery_queue import queue_own
from inkgrove.node.runtime.node import Node
from inkgrove.node.runtime.signing_guard import AUTHOR_KEY
from inkgrove.store.db import Connection
from inkgrove.store.federation.own_logs import find_receivers, kept_keys, names_of_others
from inkgrove.store.federation.peers import RemoteIdentity
from inkgrove.store.logs.decision import VALID_LOG
from inkgrove.store.logs.entries import find_log
from inkgrove.store.logs.preparation import Batch, LogKey
from inkgrove.store.node.identities import list_identities
from inkgrove.store.node.relations import add_shares

_PATIENCE_ROUNDS: Final = 3
"""How often a node that only knows of us is tried."""
_TELL_SECONDS: Final = 1.0
"""How often it is noted who is still waited for."""
NO_NAME: Final = "no name is known for this id"
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_MOST_TOLD: Final = 200

log = structlog.get_logger("inkgrove.recovery")


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """How long nodes are asked, and how many of them."""

    receivers_at_once: int = 8
    receiver_seconds: float = 600.0
    """For a node that must answer, in one round; the next round asks for what is lacking then."""
    others_at_once: int = 16
    other_seconds: float = 10.0
    """For a node that only knows of us; it is not asked again when they are over."""
    others_seconds: float = 60.0
    """For all of those together, in all rounds."""
    most_others: int = 1_000


@dataclass(frozen=True, slots=True)
class _Names:
    """Whom to ask."""

    must: set[str]
    """Names at nodes that must answer."""
    may: set[str]
    """Names at nodes that only know of us."""
    nameless: set[IdentityId]
    """Receivers whose nodes must answer too, and whose names nobody knows."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """How the nodes of one kind are asked in one round: so many at once, each for so long, and none after `until`."""

    slots: asyncio.Semaphore
    seconds: float
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class _Asker:
    """An identity of this node, and a key whose logs are asked for; without its secret, in the name of the identity."""

    identity: IdentityId
    fqdn: str
    author: PublicKey
    secret: SecretKey | None


class _OwnSource(PeerSource):
    """Another node, asked for the logs of one author of ours."""

    heights_path = OWN_HEIGHTS_PATH
    entries_path = OWN_ENTRIES_PATH

    def __init__(
        self,
        node: Node,
        transport: Transport,
        known: RemoteIdentity,
        asker: _Asker,
        *,
        seconds: float,
        run_blocking: RunBlocking,
    ) -> None:
        super().__init__(node, transport, known, seconds=seconds, run_blocking=run_blocking)
        self._asker = asker

    def _signed(self, path: str, body: bytes) -> PeerRequest:
        asker, node = self._asker, self._node
        if asker.secret is None:
            return make_signed_request(
                node, self.known, "POST", path, sender=asker.fqdn, body=body, content_type=REPLICATION_MEDIA_TYPE
            )
        # By the key itself: the identity may have had another name since, under which nobody finds it here.
        url = self.known.endpoint.rstrip("/") + path
        request = PeerRequest("POST", url, (("Content-Type", REPLICATION_MEDIA_TYPE),), body)
        nonce = node.random_bytes(16).hex()
        return sign_request(request, asker.secret, sender=asker.author.hex(), now=node.clock(), nonce=nonce)


@dataclass(slots=True)
class _Progress:
    """What has come of the questions so far."""

    done: set[tuple[PublicKey, PublicKey]] = field(default_factory=set)
    """Nodes and authors, by their keys: what the node holds of the author is held here."""
    answered: set[PublicKey] = field(default_factory=set)
    """Nodes, by their keys, with which this is so for every author."""
    settled: set[str] = field(default_factory=set)
    """Names whose nodes have answered, or where nobody is served any more."""
    left: set[str] = field(default_factory=set)
    """Names whose nodes were not done in their time; others are not asked again then."""
    troubles: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    stored: int = 0
    others_until: float | None = None
    """When the time for others is over, on the clock of the event loop; None before they were asked."""
    told: dict[str, str] | None = None
    """What was last noted of who is waited for."""

    def begin_again(self) -> None:
        """Ask everybody anew, for the authors that they have not been asked for."""
        self.answered.clear()
        self.settled.clear()
        self.left.clear()
        self.rounds, self.others_until = 0, None


class Recovery:
    """Runs until the database is not behind; belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        run_blocking: RunBlocking = in_thread,
        patience: RecoveryLimits = RecoveryLimits(),  # noqa: B008  (frozen)
    ) -> None:
        self._node = node
        self._transport = transport
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._patience = patience

    async def run(self, look_again_seconds: float = 5.0) -> None:
        """Look again and again whether the database is behind, and do what is to be done about it."""
        while True:
            try:
                await self._run_blocking(self._node.signing.mark_newest)
                await self.catch_up()
            except InkgroveError as error:
                log.warning("what is lacking could not be asked for", code=error.code, reason=error.message)
            await asyncio.sleep(look_again_seconds)

    async def catch_up(self) -> None:
        """Ask everybody until all have answered who must; returns at once if the database is not behind."""
        behind = await self._run_blocking(self._node.signing.read_behind_state)
        if behind is None:
            return
        log.warning("nothing is signed: others are asked for what this node lacks", reason=behind.reason)
        progress = _Progress()
        while await self._run_blocking(self._node.signing.read_behind_state) is not None:
            if await self.step(progress):
                return
            await asyncio.sleep(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(progress.rounds - 1, 10)))

    async def step(self, progress: _Progress | None = None) -> bool:
        """Ask everybody who has not answered, once; whether this node signs again.

        It does when all receivers have answered, also those that came to light by what was fetched, and when others
        have been asked as far as their time goes, or if the operator has decided meanwhile. Whom it waits for is noted
        before anybody is asked, and while they are.
        """
        progress = progress or _Progress()
        names = await self._run_blocking(self._names)
        askers = await self._run_blocking(self._askers)
        await self._note_waiting(names, progress)
        await self._ask_all(names, askers, progress)
        progress.rounds += 1
        if await self._run_blocking(self._node.signing.read_behind_state) is None:
            return True
        names = await self._run_blocking(self._names)
        if await self._run_blocking(self._askers) != askers:
            progress.begin_again()  # a key that came to light: everybody is asked for its logs too
            return False
        is_heard = names.must and progress.answered and not _waits_for(names, progress)
        if is_heard and not self._others_to_ask(names, progress):
            await self._run_blocking(self._node.signing.resume)
            await self._run_blocking(lambda: bind_administrators(self._node))
            log.warning("entries are signed again", nodes=len(progress.answered), fetched=progress.stored)
            return True
        await self._note_waiting(names, progress)
        if progress.rounds == 1:
            is_any = names.must or names.nameless
            advice = "inkgrove resume says whom it waits for" if is_any else "nobody can be asked: see inkgrove resume"
            log.warning("nothing is signed yet", waits_for=len(_waits_for(names, progress)), advice=advice)
        return False

    async def _note_waiting(self, names: _Names, progress: _Progress) -> None:
        """Note for the operator whose answers are lacking, if that is not noted yet."""
        waits_for = dict(list(_waits_for(names, progress).items())[:_MOST_TOLD])
        if waits_for != progress.told:
            await self._run_blocking(lambda: self._node.signing.set_waiting_for(waits_for))
            progress.told = waits_for

    def _names(self) -> _Names:
        """Everybody who is to be asked, as far as is known now."""
        receivers, may, own = self._node.database.read(
            lambda c: (find_receivers(c), names_of_others(c), {item.fqdn for item in list_identities(c)})
        )
        must = (receivers.names | self._node.receivers.names()) - own
        return _Names(must, (may | self._node.readers.names()) - must - own, receivers.nameless)

    def _askers(self) -> list[_Asker]:
        keys, names = self._node.database.read(
            lambda c: (kept_keys(c), {item.id: item.fqdn for item in list_identities(c)})
        )
        found = [
            _Asker(identity, names[identity], author, self._node.vault.open(sealed) if sealed is not None else None)
            for identity, some in keys.items()
            for author, sealed in some
        ]
        file = self._node.home / AUTHOR_KEY  # signs schemas of this home, and is no identity's
        if file.exists():
            secret = parse_secret_key(file.read_text().strip())
            found.append(_Asker(identity_of(secret.public), "", secret.public, secret))
        return found

    # Asking

    async def _ask_all(self, names: _Names, askers: list[_Asker], progress: _Progress) -> None:
        """Ask receivers and others at the same time; neither wait for a slot of the other."""
        turn = _Turn(asyncio.Semaphore(self._patience.receivers_at_once), self._patience.receiver_seconds)
        async with asyncio.TaskGroup() as group:
            asked = {group.create_task(self._ask_others(names, askers, progress))}
            for name in sorted(names.must - progress.settled):
                asked.add(group.create_task(self._ask(name, askers, progress, turn)))
            while asked:
                _, asked = await asyncio.wait(asked, timeout=_TELL_SECONDS)
                await self._note_waiting(names, progress)

    async def _ask_others(self, names: _Names, askers: list[_Asker], progress: _Progress) -> None:
        """Ask those who only know of us, until their time is over.

        What has begun to be written then is still written: nobody is interrupted but while waiting for an answer.
        """
        if progress.others_until is None:
            progress.others_until = asyncio.get_running_loop().time() + self._patience.others_seconds
        slots = asyncio.Semaphore(self._patience.others_at_once)
        turn = _Turn(slots, self._patience.other_seconds, progress.others_until)
        async with asyncio.TaskGroup() as group:
            for name in self._others_to_ask(names, progress):
                group.create_task(self._ask(name, askers, progress, turn))

    def _others_to_ask(self, names: _Names, progress: _Progress) -> list[str]:
        """The others who are still to be asked: none when they were asked three times, or when their time is over."""
        until = progress.others_until
        is_over = until is not None and asyncio.get_running_loop().time() >= until
        if is_over or progress.rounds >= _PATIENCE_ROUNDS:
            return []
        return _mix(names.may - progress.settled - progress.left)[: self._patience.most_others]

    async def _ask(self, name: str, askers: list[_Asker], progress: _Progress, turn: _Turn) -> None:
        """Ask the node at a name for everything of every author; what comes of it is noted in `progress`."""
        async with turn.slots:
            begun = asyncio.get_running_loop().time()
            if begun >= turn.until:
                return
            until = min(begun + turn.seconds, turn.until)
            try:
                known = await self._find(name, until)
                trouble = await self._take_all_back(known, askers, progress, until)
                if trouble is None:
                    progress.settled.add(name)
                else:
                    progress.troubles[name] = trouble[:300]
            except (NoIdentityThere, WrongIdentity):
                progress.settled.add(name)  # its host says that nobody of this name is there
            except InkgroveError as error:
                progress.troubles[name] = f"{error.code}: {error.message}"[:300]
            if asyncio.get_running_loop().time() >= until:
                progress.left.add(name)

    async def _find(self, name: str, until: float) -> RemoteIdentity:
        try:
            async with asyncio.timeout_at(until):
                try:
                    return await self._discovery.find(name)
                except WrongName as error:
                    return await self._discovery.find(str(error.data["named"]))
        except TimeoutError as err:
            raise PeerTimeout(f"the node of {name} was not found in time") from err

    async def _take_all_back(
        self, known: RemoteIdentity, askers: list[_Asker], progress: _Progress, until: float
    ) -> str | None:
        """Take everything of ours that a node holds and this one lacks; why something could not be taken, or None."""
        if known.node_key in progress.answered:
            return None
        trouble = None
        for asker in askers:
            if (known.node_key, asker.author) not in progress.done:
                found = await self._take_back(known, asker, progress, until)
                if found is None:
                    progress.done.add((known.node_key, asker.author))
                trouble = trouble or found
        if trouble is None:
            progress.answered.add(known.node_key)
        return trouble

    async def _take_back(self, known: RemoteIdentity, asker: _Asker, progress: _Progress, until: float) -> str | None:
        """Take what a node holds of an author of ours and this one lacks; why some of it could not be taken, or None.

        Raises a `FederationError` if the node does not answer all that it is asked, also if it is not done in time.
        """
        seconds = until - asyncio.get_running_loop().time()
        source = _OwnSource(self._node, self._transport, known, asker, seconds=seconds, run_blocking=self._run_blocking)
        taken = IntakeCounts()
        trouble = None

        async def use(answer: Entries, asked: set[LogKey]) -> None:
            await self._run_blocking(lambda: self._take_in(answer, asked, asker.identity, taken))

        try:
            async for page in list_news(source, None):
                own = [item for item in page.logs if item.author == asker.author]
                wants = await self._run_blocking(lambda: find_missing(self._node, own))  # noqa: B023
                await fetch_entries(source, wants, use)
                lacking = await self._run_blocking(lambda: self._find_untaken(own))  # noqa: B023
                if lacking is not None:
                    codes = f" ({', '.join(sorted(taken.refused))})" if taken.refused else ""
                    place = f"entry {lacking.height} of log {lacking.log_id} of {lacking.author.hex()}"
                    trouble = trouble or f"holds {place}, which could not be taken{codes}"
        finally:
            progress.stored += taken.stored
        return trouble

    def _find_untaken(self, told: Collection[LogHeight]) -> LogHeight | None:
        """One of the logs that are longer elsewhere than here, if there is one that can still be signed here.

        A log that is forked, ended or of a revoked key takes no more entries: nothing can be signed twice.
        """

        def work(connection: Connection) -> LogHeight | None:
            for item in told:
                held = find_log(connection, item.author, item.log_id)
                height, standing = (held.height, held.standing) if held is not None else (0, VALID_LOG)
                if height >= item.height or standing.refusal(item.height) is not None:
                    continue
                if item.height <= last_counted(connection, (item.author, item.log_id)):
                    return item
            return None

        return self._node.database.read(work)

    def _take_in(self, answer: Entries, asked: set[LogKey], identity: IdentityId, taken: IntakeCounts) -> None:
        checked = check_response(answer, asked)
        ingest_checked(self._node, checked, taken)
        told = _addressed(checked.batch)
        now = self._node.clock()

        def work(connection: Connection) -> None:
            add_shares(connection, [(instance, to) for instance, some in told.items() for to in sorted(some)], now)
            queue_own(connection, told, {identity}, now)

        if told:
            self._node.database.write(work)


def _waits_for(names: _Names, progress: _Progress) -> dict[str, str]:
    """Those who must answer and have not, by name or by id, each with why; without a reason if nobody knows yet."""
    waits_for = {identity.hex(): NO_NAME for identity in sorted(names.nameless)}
    return waits_for | {name: progress.troubles.get(name, "") for name in sorted(names.must - progress.settled)}


def _mix(names: Collection[str]) -> list[str]:
    """Names in an order that nobody can choose: one of each domain before a second of any."""
    mixed = random.sample(sorted(names), len(names))
    seen: Counter[str] = Counter()
    ranks = {}
    for name in mixed:
        ranks[name] = seen[domain_of(name)]
        seen[domain_of(name)] += 1
    return sorted(mixed, key=ranks.__getitem__)


def _addressed(batch: Batch) -> dict[Hash, set[IdentityId]]:
    """The instances that came back, each with whom its messages are addressed to."""
    told: dict[Hash, set[IdentityId]] = {}
    for items in batch.values():
        for item in items:
            message = item.content.message if item.content is not None else None
            if isinstance(message, Create):
                instance: object = item.signed.hash
            elif isinstance(message, Update):
                instance = message.instance
            else:
                continue
            if isinstance(instance, Hash):
                told.setdefault(instance, set()).update(message.access.to if message.access is not None else ())
    return told
