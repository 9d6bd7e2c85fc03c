"""Finds identities on other nodes and remembers them for a while (docs/protocol.md section 7.1).

A name is believed only if both sides say so: the host serves the identity, and the identity's signed document names the
host. A document that was once seen is never replaced by an older one, since its entries are kept in the log store.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from inkgrove.core import IdentityId, NextEntry, PublicKey, find_next_entry, identity_of
from inkgrove.core.errors import InkgroveError, make_error
from inkgrove.federation.errors import (
    AnswerTooLarge,
    BadAnswer,
    FederationError,
    ForkedIdentity,
    NoIdentityThere,
    PeerUnreachable,
    QuotaUsedUp,
    WrongIdentity,
    WrongName,
)
from inkgrove.federation.peers.documents import MOVED_STATUS, find_newest_name, store_log0_entries, take_moved_name
from inkgrove.federation.peers.limits import LookupQuota, RequestSlots, domain_of
from inkgrove.federation.peers.transport import PeerRequest, PeerResponse, Transport, parse_url
from inkgrove.federation.peers.well_known import (
    MAX_WELL_KNOWN_BYTES,
    WELL_KNOWN_NODE_PATH,
    WELL_KNOWN_PATH,
    ProvedIdentity,
    SignedLog,
    WellKnown,
    find_node_key,
    leads_to,
    parse_well_known,
    prove_identity,
    read_identity_log,
)
from inkgrove.messages import IdentityDocument
from inkgrove.node.identity import (
    IDENTITY_LOG,
    apply_identity_log,
    confirm_name,
    find_control,
    find_own_name_holder,
    find_unconfirmed_holder,
    is_identity_forked,
    parse_fqdn,
    read_newest_document,
    read_next_of_log0,
)
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    RemoteIdentity,
    find_remote_identity,
    forget_remote_identity,
    is_mentioned,
    newest_node_key,
    put_remote_identity,
    queue_relocation,
)
from inkgrove.store.logs import find_log
from inkgrove.store.node import HostedIdentity, has_accepted_relation, leave_name

_SECOND: Final = 1_000_000
_FAILURE_SECONDS: Final = 30
"""How long a name that failed is not tried again."""
_FAILURES_KEPT: Final = 10_000
_ASIDE_SECONDS: Final = 30
"""How long what was found for a stranger is not asked for again, though it is not stored yet."""
_PAGE: Final = 4096
"""The largest document that says which node answers at a name."""
_MOST_WAITING: Final = 256
"""How many names are asked or wait for it."""
_MOST_OF_DOMAIN: Final = 16
"""How many of them may be under one domain, if strangers want to be looked up."""

_Result = TypeVar("_Result")


class RunBlocking(Protocol):
    """Runs what waits for the database; a simulation runs it in place."""

    async def __call__(self, work: Callable[[], _Result], /) -> _Result:
        """Run `work` and return its result."""


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Run work in a thread, so that the event loop goes on meanwhile."""
    return await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class _Found:
    """An identity as its node serves it, proved but not stored yet."""

    offered: WellKnown
    proved: ProvedIdentity
    fetched: int
    expires: int

    @property
    def remote(self) -> RemoteIdentity:
        log, document = self.proved.log, self.proved.document
        return RemoteIdentity(
            log.id,
            document.fqdn,
            document.endpoint,
            log.author,
            self.proved.document_seq,
            self.offered.node_key,
            fetched=self.fetched,
            expires=self.expires,
        )


class _Lookups:
    """Look-ups that share slots: those under way, and the names that failed."""

    def __init__(self, transport: Transport) -> None:
        self.slots = RequestSlots(transport)
        self.under_way: dict[str, asyncio.Task[RemoteIdentity]] = {}
        self.failures: dict[str, tuple[int, FederationError]] = {}


class Discovery:
    """Finds identities by name or id; belongs to one event loop.

    Anybody who sends requests can make this node look up any name. Look-ups for strangers therefore have a quota and
    share nothing with the rest; `strangers` is a transport of their own, with threads of its own that resolve names.
    """

    def __init__(
        self,
        node: Node,
        transport: Transport,
        *,
        strangers: Transport | None = None,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        self._node = node
        self._run_blocking = run_blocking
        self._ours = _Lookups(transport)
        self._strangers = _Lookups(strangers or transport)
        self._aside: dict[str, _Found] = {}
        """Strangers who are new here, by name; as many as their quota lets in."""
        self._domains: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._names = LookupQuota(node.settings.stranger_bytes_per_minute, node.clock)
        """For names that somebody wants to take here, or says that they live at."""
        self._confirming: dict[str, asyncio.Task[bool]] = {}
        """Names of people here for which it is being asked whether they still lead here."""
        self._led_away: dict[str, int] = {}
        """Those that did not, each with when it may be asked for again."""
        self._answered = 0
        """How many questions have been answered."""

    async def find(
        self, fqdn: str, *, fetched_since: int | None = None, quota: LookupQuota | None = None
    ) -> RemoteIdentity:
        """Return the identity at an FQDN, from memory while that has not expired; raises a `FederationError`.

        `fetched_since` (microseconds) asks again if it was last asked before that. `quota` is charged for a look-up,
        unless it is of somebody with an accepted relation to an identity of this node. A stranger who is new here is
        not stored before `remember` is called: the request that names them may be anybody's.
        """
        fqdn = parse_fqdn(fqdn)
        answered = self._answered
        known = await self._run_blocking(lambda: self._look_up(fqdn))
        if known is None and (own := await self._find_confirmed(fqdn)) is not None:
            return own
        if known is None and answered != self._answered:
            # Somebody else's question was answered meanwhile: it may have been the same.
            known = await self._run_blocking(lambda: self._look_up(fqdn))
        if known is not None and (fetched_since is None or known.fetched >= fetched_since):
            return known
        found = self._aside.get(fqdn) if quota is not None else None
        now = self._node.clock()
        fresh = max(fetched_since or 0, now - _ASIDE_SECONDS * _SECOND)
        if found is not None and fresh <= found.fetched <= now:
            return found.remote
        if quota is not None and await self._run_blocking(lambda: self._is_related(fqdn)):
            quota = None
        return await self._fetch_once(fqdn, quota)

    async def remember(self, known: RemoteIdentity) -> RemoteIdentity:
        """Store what was found for a stranger, whose request turned out to be theirs; raises `WrongIdentity`."""
        found = self._aside.get(known.fqdn)
        if found is None:
            return known
        kept = await self._run_blocking(lambda: self._keep(found))
        self._aside.pop(known.fqdn, None)
        if kept.id != known.id:
            raise WrongIdentity(f"{known.fqdn} has become the name of {kept.id}", fqdn=known.fqdn, id=known.id)
        return kept

    async def find_by_id(self, identity: IdentityId) -> RemoteIdentity:
        """Return an identity, from memory while that has not expired; else asked for where its newest document leads.

        An older name is asked only if no document is held: its host may be dead, or not want it to move. Raises
        `NoIdentityThere` if no name is known, or another `FederationError`.
        """
        fqdn = await self._run_blocking(lambda: self._node.database.read(lambda c: find_newest_name(c, identity)))
        if fqdn is None:
            raise NoIdentityThere(f"no name of the identity {identity} is known", id=identity)
        try:
            known = await self.find(fqdn)
        except WrongName as err:
            known = await self.find(str(err.data["named"]))
        if known.id != identity:
            raise WrongIdentity(f"{fqdn} is not the name of {identity} any more", fqdn=fqdn, id=identity)
        return known

    async def refresh(self, first_key: PublicKey) -> None:
        """Ask an identity's node for its newest document, if anything of it is held; failures are passed over."""

        identity = identity_of(first_key)
        fqdn = await self._run_blocking(
            lambda: self._node.database.read(lambda c: find_newest_name(c, identity, first_key))
        )
        if fqdn is not None and not await self._run_blocking(lambda: self._is_own(fqdn)):
            with suppress(InkgroveError):  # where nobody answers, what is held is all that is known
                await self.find(fqdn, fetched_since=self._node.clock(), quota=self._names)

    async def find_log_end(self, first_key: PublicKey, lives_at: str) -> tuple[NextEntry, IdentityDocument]:
        """Return the next entry of an identity's log 0 and its newest document, asked for where it is said to live.

        An identity that is new here is not stored: the caller has proved nothing yet.
        """
        known = await self._find_at(first_key, lives_at, fetched_since=self._node.clock())
        found = self._aside.get(known.fqdn)
        if found is not None and found.proved.log.author == first_key:
            held = {item.signed.entry.seq_num: item.signed for item in found.proved.log.entries}
            return find_next_entry(held), found.proved.document

        def work(connection: Connection) -> tuple[NextEntry, IdentityDocument]:
            return read_next_of_log0(connection, first_key), read_newest_document(connection, first_key)[1]

        return await self._run_blocking(lambda: self._node.database.read(work))

    async def find_home(self, first_key: PublicKey, lives_at: str) -> RemoteIdentity:
        """Find where an identity lives, asked for anew under a name, and store it; raises a `FederationError`."""
        return await self.remember(await self._find_at(first_key, lives_at, fetched_since=self._node.clock()))

    async def store_from(self, first_key: PublicKey, lives_at: str) -> None:
        """Store an identity as the node where it lives serves it; for a caller who has its first key."""
        await self.remember(await self._find_at(first_key, lives_at))

    async def _find_at(
        self, first_key: PublicKey, lives_at: str, *, fetched_since: int | None = None
    ) -> RemoteIdentity:
        known = await self.find(lives_at, fetched_since=fetched_since, quota=self._names)
        if known.id != (identity := identity_of(first_key)):
            raise WrongIdentity(f"{known.fqdn} is not the name of {identity}", fqdn=known.fqdn, id=identity)
        return known

    def _is_own(self, fqdn: str) -> bool:
        return self._node.database.read(lambda c: find_own_name_holder(c, self._node, fqdn)) is not None

    async def leads_here(self, fqdn: str) -> bool:
        """Whether a name leads to this node, asked over the network; raises `QuotaUsedUp`."""
        fqdn = parse_fqdn(fqdn)
        self._names.charge(fqdn)
        return await self._leads_here(self._strangers, domain_of(fqdn), fqdn)

    async def find_node(self, endpoint: str) -> PublicKey | None:
        """Find the key that the node at an endpoint signs its requests with; None unless it has signed the endpoint.

        Raises `QuotaUsedUp`, or why the node does not answer.
        """
        url = parse_url(endpoint)
        self._names.charge(url.host)
        address = f"{url.scheme}://{url.authority}{WELL_KNOWN_NODE_PATH}"
        request = PeerRequest("GET", address, (("Accept", "application/json"),), max_answer_bytes=_PAGE)
        async with self._strangers.slots.acquire(domain_of(url.host)) as transport:
            answer = await transport.send(request)
        return find_node_key(answer.body, url.host, endpoint) if answer.status == 200 else None

    async def _leads_here(self, lookups: _Lookups, slot_name: str, fqdn: str) -> bool:
        request = PeerRequest(
            "GET", f"https://{fqdn}{WELL_KNOWN_NODE_PATH}", (("Accept", "application/json"),), max_answer_bytes=_PAGE
        )
        try:
            async with lookups.slots.acquire(slot_name) as transport:
                answer = await transport.send(request)
        except FederationError:
            return False
        endpoint = self._node.settings.endpoint.format(fqdn=fqdn)
        own_key = await self._run_blocking(lambda: load_node_key(self._node).public)
        return answer.status == 200 and leads_to(answer.body, fqdn, endpoint, own_key)

    async def _find_confirmed(self, fqdn: str) -> RemoteIdentity | None:
        """The identity that is hosted here under a name of another domain, if that still leads here.

        No quota is charged: there are no more such names than people, each is asked for once at a time, and not again
        soon after an answer that led elsewhere.
        """
        is_led_away = 0 < self._led_away.get(fqdn, 0) - self._node.clock() <= _FAILURE_SECONDS * _SECOND
        if is_led_away or not await self._run_blocking(lambda: self._is_unconfirmed(fqdn)):
            return None
        task = self._confirming.get(fqdn)
        if task is None:
            task = self._confirming[fqdn] = asyncio.create_task(self._confirm(fqdn))
            task.add_done_callback(lambda _: self._confirming.pop(fqdn))
        return await self._run_blocking(lambda: self._look_up(fqdn)) if await asyncio.shield(task) else None

    async def _confirm(self, fqdn: str) -> bool:
        """Ask whether a name of somebody here leads here, and record it if it does."""
        node = self._node
        if not await self._run_blocking(lambda: self._is_unconfirmed(fqdn)):
            return True  # another task has confirmed it
        if not await self._leads_here(self._ours, fqdn, fqdn):
            self._led_away[fqdn] = node.clock() + _FAILURE_SECONDS * _SECOND
            return False
        self._led_away.pop(fqdn, None)
        await self._run_blocking(lambda: node.database.write(lambda c: confirm_name(c, node, fqdn)))
        self._answered += 1
        return True

    def _is_unconfirmed(self, fqdn: str) -> bool:
        return self._node.database.read(lambda c: find_unconfirmed_holder(c, self._node, fqdn)) is not None

    # Memory

    def _look_up(self, fqdn: str) -> RemoteIdentity | None:
        now = self._node.clock()

        def work(connection: Connection) -> RemoteIdentity | HostedIdentity | None:
            hosted = find_own_name_holder(connection, self._node, fqdn)
            if hosted is not None:
                return hosted
            known = find_remote_identity(connection, fqdn)
            # What was fetched at a time that has not come was fetched with a wrong clock, and is asked for again.
            if known is None or not known.fetched <= now < known.expires:
                return None
            # A fork can be learnt of in other ways, such as from a third node.
            log = find_log(connection, known.key, IDENTITY_LOG)
            return known if log is not None and not is_identity_forked(connection, known.key) else None

        found = self._node.database.read(work)
        return self._own(found, now) if isinstance(found, HostedIdentity) else found

    def _own(self, hosted: HostedIdentity, now: int) -> RemoteIdentity | None:
        """An identity of this very node, which nobody has to be asked about; None if its document names another."""
        revision, document = self._node.database.read(lambda connection: read_newest_document(connection, hosted.key))
        if (document.fqdn, document.endpoint) != (hosted.fqdn, self._node.settings.endpoint.format(fqdn=hosted.fqdn)):
            return None
        key = load_node_key(self._node).public
        return RemoteIdentity(
            hosted.id, hosted.fqdn, document.endpoint, hosted.key, revision, key, fetched=now, expires=now + _SECOND
        )

    def _is_related(self, fqdn: str) -> bool:
        def work(connection: Connection) -> bool:
            known = find_remote_identity(connection, fqdn)
            return known is not None and has_accepted_relation(connection, known.id)

        return self._node.database.read(work)

    # Asking

    async def _fetch_once(self, fqdn: str, quota: LookupQuota | None) -> RemoteIdentity:
        """Ask the node at a name, once for all callers at that time, and not again soon after a failure."""
        lookups = self._ours if quota is None else self._strangers
        until, failure = lookups.failures.get(fqdn, (0, None))
        if failure is not None and 0 < until - self._node.clock() <= _FAILURE_SECONDS * _SECOND:
            raise make_error(failure.code, failure.message, **failure.data)
        task = lookups.under_way.get(fqdn)
        if task is None:
            self._check_room(lookups, fqdn)
            if quota is not None:
                quota.charge(fqdn)
            task = asyncio.create_task(self._fetch(fqdn, quota))
            lookups.under_way[fqdn] = task
            task.add_done_callback(lambda done: self._finish(lookups, fqdn, done))
        return await asyncio.shield(task)

    def _check_room(self, lookups: _Lookups, fqdn: str) -> None:
        of_domain = sum(domain_of(name) == domain_of(fqdn) for name in lookups.under_way)
        is_crowd = lookups is self._strangers and of_domain >= _MOST_OF_DOMAIN
        if is_crowd or len(lookups.under_way) >= _MOST_WAITING:
            raise PeerUnreachable("too many names are being looked up: try again later", fqdn=fqdn)

    def _finish(self, lookups: _Lookups, fqdn: str, task: asyncio.Task[RemoteIdentity]) -> None:
        del lookups.under_way[fqdn]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, FederationError) and not isinstance(error, QuotaUsedUp):
            while len(lookups.failures) >= _FAILURES_KEPT:
                del lookups.failures[next(iter(lookups.failures))]
            lookups.failures[fqdn] = self._node.clock() + _FAILURE_SECONDS * _SECOND, error
        else:
            self._answered += 1
            lookups.failures.pop(fqdn, None)

    async def _fetch(self, fqdn: str, quota: LookupQuota | None) -> RemoteIdentity:
        if quota is None:
            async with self._ours.slots.acquire(fqdn) as transport:
                answer = await transport.send(_request(fqdn, MAX_WELL_KNOWN_BYTES))
        else:
            answer = await self._ask_for_stranger(fqdn, quota)
        if answer.status == 404:
            raise NoIdentityThere(f"no identity is served at {fqdn}", fqdn=fqdn)
        if answer.status == MOVED_STATUS:
            raise await self._run_blocking(lambda: take_moved_name(self._node, fqdn, answer.body))
        if answer.status != 200:
            raise BadAnswer(f"the node at {fqdn} answers with status {answer.status}", fqdn=fqdn)
        taken = await self._run_blocking(lambda: self._store(fqdn, answer.body, is_stranger=quota is not None))
        if isinstance(taken, RemoteIdentity):
            return taken
        old = taken.fetched - 2 * _ASIDE_SECONDS * _SECOND
        self._aside = {name: found for name, found in self._aside.items() if found.fetched >= old} | {fqdn: taken}
        return taken.remote

    async def _ask_for_stranger(self, fqdn: str, quota: LookupQuota) -> PeerResponse:
        """Names under one domain are asked one after the other, each for no more than what the others left."""
        domain = domain_of(fqdn)
        async with self._domains.setdefault(domain, asyncio.Lock()), self._strangers.slots.acquire(domain) as transport:
            most = min(MAX_WELL_KNOWN_BYTES, quota.left(fqdn))
            try:
                answer = await transport.send(_request(fqdn, most))
            except AnswerTooLarge:
                quota.add(fqdn, most)
                raise
            quota.add(fqdn, len(answer.body))
            return answer

    def _store(self, fqdn: str, body: bytes, *, is_stranger: bool) -> RemoteIdentity | _Found:
        offered = parse_well_known(body)
        log = read_identity_log(offered.document)
        is_new = self._node.database.read(lambda connection: find_log(connection, log.author, IDENTITY_LOG)) is None
        try:
            proved = prove_identity(offered, log, fqdn)
        except ForkedIdentity:
            # Signed contradictions are kept: they are the proof.
            if not (is_stranger and is_new):
                self._node.database.write(lambda connection: _store_forked(connection, log))
            raise
        now = self._node.clock()
        found = _Found(offered, proved, now, now + self._node.settings.discovery_seconds * _SECOND)
        return found if is_stranger and is_new else self._keep(found)

    def _keep(self, found: _Found) -> RemoteIdentity:
        taken = self._node.database.write(lambda connection: _remember(connection, self._node, found))
        if isinstance(taken, FederationError):
            raise taken
        return taken


def _request(fqdn: str, most: int) -> PeerRequest:
    return PeerRequest(
        "GET", f"https://{fqdn}{WELL_KNOWN_PATH}", (("Accept", "application/json"),), max_answer_bytes=most
    )


def _remember(connection: Connection, node: Node, found: _Found) -> RemoteIdentity | FederationError:
    """Store what was proved and return the newest of it and what is held; an error to be raised after the commit."""
    proved = found.proved
    identity, author, fqdn = proved.log.id, proved.log.author, proved.document.fqdn
    store_log0_entries(connection, (*proved.log.entries, *proved.key_entries))
    control = find_control(connection, author)
    if control is None or is_identity_forked(connection, author):
        forget_remote_identity(connection, identity)
        return ForkedIdentity(f"log 0 of {identity} contradicts what was seen of it before", id=identity)
    # What is held can be newer than what was just proved.
    document_seq, document = control.path[0].seq_num, control.document
    if document.fqdn != fqdn:
        apply_identity_log(connection, author)
        return WrongName(f"the identity at {fqdn} has since moved to {document.fqdn}", fqdn=fqdn, named=document.fqdn)
    known = replace(found.remote, endpoint=document.endpoint, document_seq=document_seq)
    own_key = newest_node_key(connection)
    if own_key is not None and known.node_key == own_key[0]:  # the world leads to this very node
        forget_remote_identity(connection, identity)
        confirm_name(connection, node, fqdn)
    else:
        before, ousted = find_remote_identity(connection, identity), find_remote_identity(connection, fqdn)
        put_remote_identity(connection, known)
        moved = [before] if before is not None and before.node_key != known.node_key else []
        # Who had the name before is on another node, wherever they are found next.
        moved += [ousted] if ousted is not None and ousted.id != identity else []
        for item in moved:
            if is_mentioned(connection, item.id):
                queue_relocation(connection, item.id, is_new_node=True)
        if (hosted := find_unconfirmed_holder(connection, node, fqdn)) is not None:
            leave_name(connection, fqdn, hosted.id)  # it is somebody's on another node now
    apply_identity_log(connection, author)
    return known


def _store_forked(connection: Connection, log: SignedLog) -> None:
    store_log0_entries(connection, log.entries)
    forget_remote_identity(connection, log.id)
