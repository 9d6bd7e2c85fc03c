"""Finds identities on other nodes and remembers them for a while (docs/protocol.md section 7.1).

A name is believed only if both sides say so: the host serves the identity, and the identity's signed document names the
host. A document that was once seen is never replaced by an older one, since its entries are kept in the log store.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection

from inkgrove.core.keys import IdentityId
from inkgrove.core.log import HeldEntry
from inkgrove.federation.errors import (
    BadAnswer,
    FederationError,
    ForkedIdentity,
    NoIdentityThere,
    Unreachable,
    WrongIdentity,
    WrongName,
)
from inkgrove.federation.fetch import Request, Transport
from inkgrove.federation.proving import ProvedIdentity, SignedLog, prove, read_log
from inkgrove.federation.quotas import LookupQuota
from inkgrove.federation.well_known import MAX_BYTES, PATH, WellKnown, parse_well_known
from inkgrove.node.identities import parse_fqdn
from inkgrove.node.identity_log import IDENTITY_LOG, follow_identity_log, newest_document
from inkgrove.node.node import Node
from inkgrove.node.node_key import node_key
from inkgrove.store.identities import HostedIdentity, find_identity
from inkgrove.store.ingest import ingest_batch
from inkgrove.store.peers import KnownIdentity, find_known, forget_known, put_known
from inkgrove.store.prepare import by_log, prepare
from inkgrove.store.reading import find_log

_SECOND: Final = 1_000_000
_FAILURE_SECONDS: Final = 30
"""How long a name that failed is not tried again."""
_FAILURES_KEPT: Final = 10_000
_AT_ONCE: Final = 32
"""How many names are asked at the same time."""
_MOST_WAITING: Final = 256
"""How many names are asked or wait for it: whoever sends requests can make this node look up any name."""

_Result = TypeVar("_Result")


class RunBlocking(Protocol):
    """Runs what waits for the database; a simulation runs it in place."""

    async def __call__(self, work: Callable[[], _Result], /) -> _Result:
        """What the work returns."""


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Run work in a thread, so that the event loop goes on meanwhile."""
    return await asyncio.to_thread(work)


class Discovery:
    """Finds identities by name or id; belongs to one event loop."""

    def __init__(self, node: Node, transport: Transport, *, run_blocking: RunBlocking = in_thread) -> None:
        self._node = node
        self._transport = transport
        self._run_blocking = run_blocking
        self._failures: dict[str, tuple[int, FederationError]] = {}
        self._under_way: dict[str, asyncio.Task[KnownIdentity]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._answered = 0
        """How many questions have been answered."""

    async def find(
        self, fqdn: str, *, fetched_since: int | None = None, quota: LookupQuota | None = None
    ) -> KnownIdentity:
        """The identity at an FQDN, from memory while that has not expired; a `FederationError` if none is proved.

        `fetched_since` (microseconds) asks again if it was last asked before that. `quota`: what a look-up counts for.
        """
        fqdn = parse_fqdn(fqdn)
        answered = self._answered
        known = await self._run_blocking(lambda: self._look_up(fqdn))
        if known is None and answered != self._answered:
            # Somebody else's question was answered meanwhile: it may have been the same.
            known = await self._run_blocking(lambda: self._look_up(fqdn))
        if known is not None and (fetched_since is None or known.fetched >= fetched_since):
            return known
        return await self._fetch_once(fqdn, quota)

    async def find_by_id(self, identity: IdentityId) -> KnownIdentity:
        """An identity whose name was once known, asked for again there, or where it has moved, if that has expired."""
        fqdn = await self._run_blocking(lambda: self._name_of(identity))
        if fqdn is None:
            raise NoIdentityThere(f"no name of the identity {identity} is known", id=identity)
        try:
            known = await self.find(fqdn)
        except WrongName as err:
            known = await self.find(str(err.data["named"]))
        if known.id != identity:
            raise WrongIdentity(f"{fqdn} is not the name of {identity} any more", fqdn=fqdn, id=identity)
        return known

    # Memory

    def _look_up(self, fqdn: str) -> KnownIdentity | None:
        now = self._node.clock()

        def work(connection: Connection) -> KnownIdentity | HostedIdentity | None:
            hosted = find_identity(connection, fqdn)
            if hosted is not None:
                return hosted
            known = find_known(connection, fqdn)
            if known is None or known.expires <= now:
                return None
            # A fork can be learnt of in other ways, such as from a third node.
            log = find_log(connection, known.key, IDENTITY_LOG)
            return known if log is not None and log.invalid_from is None else None

        found = self._node.database.read(work)
        return self._own(found, now) if isinstance(found, HostedIdentity) else found

    def _own(self, hosted: HostedIdentity, now: int) -> KnownIdentity:
        """An identity of this very node, which nobody has to be asked about."""
        revision, document = self._node.database.read(lambda connection: newest_document(connection, hosted.key))
        key = node_key(self._node).public
        return KnownIdentity(
            hosted.id, hosted.fqdn, document.endpoint, hosted.key, revision, key, fetched=now, expires=now + _SECOND
        )

    def _name_of(self, identity: IdentityId) -> str | None:
        def work(connection: Connection) -> str | None:
            found = find_identity(connection, identity) or find_known(connection, identity)
            return found.fqdn if found is not None else None

        return self._node.database.read(work)

    # Asking

    async def _fetch_once(self, fqdn: str, quota: LookupQuota | None) -> KnownIdentity:
        """Ask the node at a name, once for all who want to know at that time, and not again soon after a failure."""
        until, failure = self._failures.get(fqdn, (0, None))
        if failure is not None and self._node.clock() < until:
            raise type(failure)(failure.message, **failure.data)
        task = self._under_way.get(fqdn)
        if task is None:
            if len(self._under_way) >= _MOST_WAITING:
                raise Unreachable("too many names are being looked up: try again later", fqdn=fqdn)
            if quota is not None:
                quota.use(fqdn)
            task = asyncio.create_task(self._fetch(fqdn, quota))
            self._under_way[fqdn] = task
            task.add_done_callback(lambda done: self._finish(fqdn, done))
        return await asyncio.shield(task)

    def _finish(self, fqdn: str, task: asyncio.Task[KnownIdentity]) -> None:
        del self._under_way[fqdn]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, FederationError):
            while len(self._failures) >= _FAILURES_KEPT:
                del self._failures[next(iter(self._failures))]
            self._failures[fqdn] = self._node.clock() + _FAILURE_SECONDS * _SECOND, error
        else:
            self._answered += 1
            self._failures.pop(fqdn, None)

    async def _fetch(self, fqdn: str, quota: LookupQuota | None) -> KnownIdentity:
        async with self._slots:
            request = Request(
                "GET", f"https://{fqdn}{PATH}", (("Accept", "application/json"),), max_answer_bytes=MAX_BYTES
            )
            answer = await self._transport.send(request)
        if quota is not None:
            quota.add(fqdn, len(answer.body))
        if answer.status == 404:
            raise NoIdentityThere(f"no identity is served at {fqdn}", fqdn=fqdn)
        if answer.status != 200:
            raise BadAnswer(f"the node at {fqdn} answers with status {answer.status}", fqdn=fqdn)
        return await self._run_blocking(lambda: self._take_in(fqdn, answer.body))

    def _take_in(self, fqdn: str, body: bytes) -> KnownIdentity:
        offered = parse_well_known(body)
        log = read_log(offered)
        try:
            proved = prove(offered, log, fqdn)
        except ForkedIdentity:
            # Signed contradictions are kept: they are the proof.
            self._node.database.write(lambda connection: _take_in_forked(connection, log))
            raise
        now = self._node.clock()
        expires = now + self._node.settings.discovery_seconds * _SECOND
        taken = self._node.database.write(lambda connection: _remember(connection, offered, proved, now, expires))
        if isinstance(taken, FederationError):
            raise taken
        return taken


def _remember(
    connection: Connection, offered: WellKnown, proved: ProvedIdentity, now: int, expires: int
) -> KnownIdentity | FederationError:
    """Put what was proved beside what is held and believe the newest of both; an error is for after the commit."""
    identity, author, fqdn = proved.log.id, proved.log.author, proved.document.fqdn
    _ingest(connection, (*proved.log.entries, *proved.key_entries))
    log = find_log(connection, author, IDENTITY_LOG)
    if log is None or log.invalid_from is not None:
        forget_known(connection, identity)
        return ForkedIdentity(f"log 0 of {identity} contradicts what was seen of it before", id=identity)
    # What is held can be newer than what was just proved.
    document_seq, document = newest_document(connection, author)
    if document.fqdn != fqdn:
        return WrongName(f"the identity at {fqdn} has since moved to {document.fqdn}", fqdn=fqdn, named=document.fqdn)
    follow_identity_log(connection, author)
    known = KnownIdentity(
        identity, fqdn, document.endpoint, author, document_seq, offered.node_key, fetched=now, expires=expires
    )
    put_known(connection, known)
    return known


def _take_in_forked(connection: Connection, log: SignedLog) -> None:
    _ingest(connection, log.entries)
    forget_known(connection, log.id)


def _ingest(connection: Connection, entries: tuple[HeldEntry, ...]) -> None:
    prepared, _ = prepare((item.signed, item.payload) for item in entries)
    ingest_batch(connection, by_log(prepared), must_be_next=False)
