"""Fetches back from other nodes what this node has signed and does not hold any more, and lets it sign again.

docs/protocol.md section 8.12. While the database is behind (`node/runtime/signing_guard.py`), every node that may hold
logs of our people is asked how far they go, and for what is lacking here. Nodes to which something was sent
(*receivers*) must answer, and everything that they hold must be held here then. Those that only know of us (*others*)
are asked beside them, for a minute in all: strangers could otherwise keep this node from signing. Then entries are
signed again, after all that anybody has seen. If a receiver cannot be asked, the operator decides (`inkgrove resume`).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import structlog

from inkgrove.core import Hash, IdentityId, PublicKey, SecretKey, identity_of, parse_secret_key
from inkgrove.core.errors import InkgroveError
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
from inkgrove.messages import REPLICATION_MEDIA_TYPE, Create, Entries, LogHeight, Update
from inkgrove.node.identity import bind_administrators
from inkgrove.node.publishing import queue_own
from inkgrove.node.runtime import AUTHOR_KEY, Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity, find_receivers, kept_keys, names_of_others
from inkgrove.store.logs import VALID_LOG, Batch, LogKey, find_log
from inkgrove.store.node import add_shares, list_identities
from inkgrove.store.person import keep_own_instances

_OPTIONAL_ROUNDS: Final = 3
"""In how many rounds a node that only knows of us is asked."""
_NOTE_SECONDS: Final = 1.0
"""How often it is noted whose answers are lacking."""
NO_NAME: Final = "no name is known for this id"
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_MOST_NOTED: Final = 200

log = structlog.get_logger("inkgrove.recovery")


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """How long nodes are asked, and how many of them."""

    receivers_at_once: int = 8
    receiver_seconds: float = 600.0
    """For a receiver, in one round; the next round asks for what is lacking then."""
    others_at_once: int = 16
    other_seconds: float = 10.0
    """For one of the others; it is not asked again when they are over."""
    others_seconds: float = 60.0
    """For all others together, in all rounds."""
    most_others: int = 1_000


@dataclass(frozen=True, slots=True)
class _Names:
    """The names whose nodes are asked."""

    required: set[str]
    """Receivers: they must answer."""
    optional: set[str]
    """Others."""
    unnamed_ids: set[IdentityId]
    """Receivers that must answer too, and whose names are not known."""


@dataclass(frozen=True, slots=True)
class _AskLimits:
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
                node, self.remote, "POST", path, sender=asker.fqdn, body=body, content_type=REPLICATION_MEDIA_TYPE
            )
        # By the key itself: the identity may have had another name since, under which nobody finds it here.
        url = self.remote.endpoint.rstrip("/") + path
        request = PeerRequest("POST", url, (("Content-Type", REPLICATION_MEDIA_TYPE),), body)
        nonce = node.random_bytes(16).hex()
        return sign_request(request, asker.secret, sender=asker.author.hex(), now=node.clock(), nonce=nonce)


@dataclass(slots=True)
class _Progress:
    """What the questions have brought so far."""

    done: set[tuple[PublicKey, PublicKey]] = field(default_factory=set)
    """Nodes and authors, by their keys: what the node holds of the author is held here."""
    answered: set[PublicKey] = field(default_factory=set)
    """Nodes, by their keys, with which this is so for every author."""
    finished_names: set[str] = field(default_factory=set)
    """Names whose nodes have answered, or where nobody is served any more."""
    unfinished_names: set[str] = field(default_factory=set)
    """Names whose nodes were not done in their time; others are not asked again then."""
    errors: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    stored: int = 0
    others_until: float | None = None
    """When the time for others is over, on the clock of the event loop; None before they were asked."""
    last_noted: dict[str, str] | None = None
    """What was last noted on whose answers are lacking."""

    def begin_again(self) -> None:
        """Ask everybody anew, for the authors that they have not been asked for."""
        self.answered.clear()
        self.finished_names.clear()
        self.unfinished_names.clear()
        self.rounds, self.others_until = 0, None


class Recovery:
    """The worker that fetches our own entries back while the database is behind; belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        run_blocking: RunBlocking = in_thread,
        limits: RecoveryLimits = RecoveryLimits(),  # noqa: B008  (frozen)
    ) -> None:
        self._node = node
        self._transport = transport
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._limits = limits

    async def run(self, look_again_seconds: float = 5.0) -> None:
        """Check again and again whether the database is behind, and `catch_up` if it is; until cancelled."""
        while True:
            try:
                await self._run_blocking(self._node.signing.mark_newest)
                await self.catch_up()
            except InkgroveError as error:
                log.warning("what is lacking could not be asked for", code=error.code, reason=error.message)
            await asyncio.sleep(look_again_seconds)

    async def catch_up(self) -> None:
        """Ask everybody until all receivers have answered; returns at once if the database is not behind."""
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
        """Ask everybody who has not answered, once; returns whether this node signs again.

        It does when all receivers have answered, also those that became known by what was fetched, and when others
        have been asked as far as their time goes, or if the operator has decided meanwhile. Whose answers are lacking
        is noted before anybody is asked, and while they are.
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
            progress.begin_again()  # a key that became known: everybody is asked for its logs too
            return False
        is_answered = names.required and progress.answered and not _waits_for(names, progress)
        if is_answered and not self._others_to_ask(names, progress):
            await self._run_blocking(self._node.signing.resume)
            await self._run_blocking(lambda: bind_administrators(self._node))
            log.warning("entries are signed again", nodes=len(progress.answered), fetched=progress.stored)
            return True
        await self._note_waiting(names, progress)
        if progress.rounds == 1:
            is_any = names.required or names.unnamed_ids
            advice = "inkgrove resume says whom it waits for" if is_any else "nobody can be asked: see inkgrove resume"
            log.warning("nothing is signed yet", waits_for=len(_waits_for(names, progress)), advice=advice)
        return False

    async def _note_waiting(self, names: _Names, progress: _Progress) -> None:
        """Note for the operator whose answers are lacking, if that is not noted yet."""
        waits_for = dict(list(_waits_for(names, progress).items())[:_MOST_NOTED])
        if waits_for != progress.last_noted:
            await self._run_blocking(lambda: self._node.signing.set_waiting_for(waits_for))
            progress.last_noted = waits_for

    def _names(self) -> _Names:
        """Find everybody who is to be asked, as far as is known now."""
        receivers, others, own = self._node.database.read(
            lambda c: (find_receivers(c), names_of_others(c), {item.fqdn for item in list_identities(c)})
        )
        required = (receivers.names | self._node.receivers.names()) - own
        return _Names(required, (others | self._node.readers.names()) - required - own, receivers.nameless)

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
        """Ask receivers and others at the same time, each kind in slots of its own."""
        limits = _AskLimits(asyncio.Semaphore(self._limits.receivers_at_once), self._limits.receiver_seconds)
        async with asyncio.TaskGroup() as group:
            asked = {group.create_task(self._ask_others(names, askers, progress))}
            for name in sorted(names.required - progress.finished_names):
                asked.add(group.create_task(self._ask(name, askers, progress, limits)))
            while asked:
                _, asked = await asyncio.wait(asked, timeout=_NOTE_SECONDS)
                await self._note_waiting(names, progress)

    async def _ask_others(self, names: _Names, askers: list[_Asker], progress: _Progress) -> None:
        """Ask those who only know of us, until their time is over.

        What has begun to be written then is still written: nobody is interrupted but while waiting for an answer.
        """
        if progress.others_until is None:
            progress.others_until = asyncio.get_running_loop().time() + self._limits.others_seconds
        slots = asyncio.Semaphore(self._limits.others_at_once)
        limits = _AskLimits(slots, self._limits.other_seconds, progress.others_until)
        async with asyncio.TaskGroup() as group:
            for name in self._others_to_ask(names, progress):
                group.create_task(self._ask(name, askers, progress, limits))

    def _others_to_ask(self, names: _Names, progress: _Progress) -> list[str]:
        """The others who are still to be asked: none when they were asked three times, or when their time is over."""
        until = progress.others_until
        is_over = until is not None and asyncio.get_running_loop().time() >= until
        if is_over or progress.rounds >= _OPTIONAL_ROUNDS:
            return []
        return _mix(names.optional - progress.finished_names - progress.unfinished_names)[: self._limits.most_others]

    async def _ask(self, name: str, askers: list[_Asker], progress: _Progress, limits: _AskLimits) -> None:
        """Ask the node at a name for everything of every author; notes the result in `progress`."""
        async with limits.slots:
            begun = asyncio.get_running_loop().time()
            if begun >= limits.until:
                return
            until = min(begun + limits.seconds, limits.until)
            try:
                known = await self._find(name, until)
                failure = await self._fetch_all(known, askers, progress, until)
                if failure is None:
                    progress.finished_names.add(name)
                else:
                    progress.errors[name] = failure[:300]
            except (NoIdentityThere, WrongIdentity):
                progress.finished_names.add(name)  # its host says that nobody of this name is there
            except InkgroveError as error:
                progress.errors[name] = f"{error.code}: {error.message}"[:300]
            if asyncio.get_running_loop().time() >= until:
                progress.unfinished_names.add(name)

    async def _find(self, name: str, until: float) -> RemoteIdentity:
        try:
            async with asyncio.timeout_at(until):
                try:
                    return await self._discovery.find(name)
                except WrongName as error:
                    return await self._discovery.find(str(error.data["named"]))
        except TimeoutError as err:
            raise PeerTimeout(f"the node of {name} was not found in time") from err

    async def _fetch_all(
        self, known: RemoteIdentity, askers: list[_Asker], progress: _Progress, until: float
    ) -> str | None:
        """Fetch everything of ours that a node holds and this one lacks; why some could not be stored, or None."""
        if known.node_key in progress.answered:
            return None
        failure = None
        for asker in askers:
            if (known.node_key, asker.author) not in progress.done:
                found = await self._fetch(known, asker, progress, until)
                if found is None:
                    progress.done.add((known.node_key, asker.author))
                failure = failure or found
        if failure is None:
            progress.answered.add(known.node_key)
        return failure

    async def _fetch(self, known: RemoteIdentity, asker: _Asker, progress: _Progress, until: float) -> str | None:
        """Fetch what a node holds of an author of ours and this one lacks; why some could not be stored, or None.

        Raises a `FederationError` if the node does not answer all that it is asked, also if it is not done in time.
        """
        seconds = until - asyncio.get_running_loop().time()
        source = _OwnSource(self._node, self._transport, known, asker, seconds=seconds, run_blocking=self._run_blocking)
        taken = IntakeCounts()
        failure = None

        async def use(answer: Entries, asked: set[LogKey]) -> None:
            await self._run_blocking(lambda: self._ingest(answer, asked, asker.identity, taken))

        try:
            async for page in list_news(source, None):
                own = [item for item in page.logs if item.author == asker.author]
                wants = await self._run_blocking(lambda: find_missing(self._node, own))  # noqa: B023
                await fetch_entries(source, wants, use)
                lacking = await self._run_blocking(lambda: self._find_lacking(own))  # noqa: B023
                if lacking is not None:
                    codes = f" ({', '.join(sorted(taken.refused))})" if taken.refused else ""
                    entry = f"entry {lacking.height} of log {lacking.log_id} of {lacking.author.hex()}"
                    failure = failure or f"holds {entry}, which could not be taken{codes}"
        finally:
            progress.stored += taken.stored
        return failure

    def _find_lacking(self, logs: Collection[LogHeight]) -> LogHeight | None:
        """One of the logs that are longer elsewhere than here, if there is one that can still be signed here.

        A log that is forked, ended or of a revoked key takes no more entries: nothing can be signed twice.
        """

        def work(connection: Connection) -> LogHeight | None:
            for item in logs:
                held = find_log(connection, item.author, item.log_id)
                height, standing = (held.height, held.standing) if held is not None else (0, VALID_LOG)
                if height >= item.height or standing.refusal(item.height) is not None:
                    continue
                if item.height <= last_counted(connection, (item.author, item.log_id)):
                    return item
            return None

        return self._node.database.read(work)

    def _ingest(self, answer: Entries, asked: set[LogKey], identity: IdentityId, taken: IntakeCounts) -> None:
        checked = check_response(answer, asked)
        ingest_checked(self._node, checked, taken)
        recipients = _list_recipients(checked.batch)
        now = self._node.clock()

        def work(connection: Connection) -> None:
            # An update can name any instance: others are sent what is the identity's own.
            own = {item: recipients[item] for item in keep_own_instances(connection, identity, recipients)}
            add_shares(connection, [(instance, to) for instance, some in own.items() for to in sorted(some)], now)
            queue_own(connection, own, {identity}, now)

        if recipients:
            self._node.database.write(work)


def _waits_for(names: _Names, progress: _Progress) -> dict[str, str]:
    """The receivers that have not answered, by name or by id, each with why, or an empty text if that is not known."""
    waits_for = {identity.hex(): NO_NAME for identity in sorted(names.unnamed_ids)}
    return waits_for | {
        name: progress.errors.get(name, "") for name in sorted(names.required - progress.finished_names)
    }


def _mix(names: Collection[str]) -> list[str]:
    """Names in an order that nobody can choose: one of each domain before a second of any."""
    mixed = random.sample(sorted(names), len(names))
    seen: Counter[str] = Counter()
    ranks = {}
    for name in mixed:
        ranks[name] = seen[domain_of(name)]
        seen[domain_of(name)] += 1
    return sorted(mixed, key=ranks.__getitem__)


def _list_recipients(batch: Batch) -> dict[Hash, set[IdentityId]]:
    """The instances that came back, each with the recipients that its messages name."""
    found: dict[Hash, set[IdentityId]] = {}
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
                found.setdefault(instance, set()).update(message.access.to if message.access is not None else ())
    return found
