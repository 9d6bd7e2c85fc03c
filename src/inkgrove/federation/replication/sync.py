"""The worker that keeps this node in step with its peers, and asks for schemas that it has not seen.

docs/protocol.md section 8. A peer is asked which logs have changed since the last time; what is lacking of them is
fetched. A schema version that something held here names is asked for at the node of its author, at the nodes of those
who use it and at the peers; until it comes, messages are `pending`. The authors of registered schemas are also asked
for versions that nothing names yet.
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import EndlessAnswer, FederationError, PeerTimeout
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.limits import run_rounds
from inkgrove.federation.peers.transport import Transport, run_with_transport
from inkgrove.federation.replication.client import PeerSource, fetch_entries, list_news
from inkgrove.federation.replication.intake import (
    MOST_AT_HAND,
    ArchiveImporter,
    BulkIntake,
    Intake,
    IntakeCounts,
    count_missing,
    find_missing,
)
from inkgrove.federation.replication.server import catch_up
from inkgrove.messages import MAX_REPLICATION_ENTRIES, Entries, LogHeight, SchemaId, Want
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log, find_owner
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    Peer,
    RemoteIdentity,
    WantedSchema,
    authors_naming,
    find_missing_ranges,
    is_any_schema_due,
    list_due_schemas,
    list_peers,
    note_error,
    note_synced,
    postpone_schema,
)
from inkgrove.store.logs import LogKey, find_log, prepare_items, read_registered
from inkgrove.store.node import living_among

BULK: Final = 100_000
"""If more entries than this are lacking, they are imported as an archive, where there is an importer."""
_SECOND: Final = 1_000_000
_AT_ONCE: Final = 50
_MOST_UNDER_WAY: Final = 250
"""How many schemas are asked for, or wait to be, at the same time."""
_SCHEMAS_AT_ONCE: Final = 32
_PEERS_AT_ONCE: Final = 8
"""How many nodes are asked at the same time, for schemas and for all that they offer."""
_SCHEMA_SECONDS: Final = 60
"""How long a node is asked for schemas: they are small."""
_PASSED_OVER_SECONDS: Final = 60
_MOST_PASSED_OVER: Final = 10_000
_MOST_ASKED: Final = 8
"""How many nodes are asked for one schema."""
MOST_RENEWED: Final = 50
"""How many schemas are asked for newer versions in one round; the others follow in the next ones."""
_SCHEMA: Final = "schema"
_FIRST_WAIT: Final = 5.0
_LONGEST_WAIT: Final = 3600.0

log = structlog.get_logger("inkgrove.replication")


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Counts of what a sync with a peer brought."""

    peer: str
    logs: int
    received: int
    stored: int
    refused: dict[str, int]
    in_bulk: bool


OnProgress = Callable[[int, int], None]
"""Called with how many entries have come, and about how many will."""


class GrowingIntake:
    """Ingests in batches and, once very many entries have come, by archives: whatever a node said there would be."""

    def __init__(self, batches: Intake, bulk: Callable[[], BulkIntake] | None, most: int) -> None:
        """`bulk` makes the archive's intake once more than `most` entries have come; without it, batches go on."""
        self._intake: Intake | BulkIntake = batches
        self._bulk = bulk
        self._most = most
        self._received = 0
        self.is_bulk = False

    async def ingest(self, answer: Entries, asked: set[LogKey]) -> None:
        """Take a batch."""
        self._received += len(answer.entries)
        if self._received > self._most:
            await self.switch_to_bulk()
        await self._intake.ingest(answer, asked)

    async def switch_to_bulk(self) -> None:
        """Put everything that comes from now on into an archive."""
        if not self.is_bulk and self._bulk is not None:
            self.is_bulk = True
            await self._intake.finish()
            await self._intake.close()
            self._intake = self._bulk()

    async def finish(self) -> None:
        """Wait until everything has been stored."""
        await self._intake.finish()

    async def close(self) -> None:
        """Throw away what was not stored."""
        await self._intake.close()


class Replicator:
    """The worker: `run` goes on until it is cancelled, `step` does one round. Belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        run_blocking: RunBlocking = in_thread,
        importer: ArchiveImporter | None = None,
        bulk: int = BULK,
    ) -> None:
        """Without an `importer` everything is ingested in batches, however much it is."""
        self._node = node
        self._transport = transport
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._importer = importer
        self._bulk = bulk
        self._peer_slots = asyncio.Semaphore(_PEERS_AT_ONCE)
        self._schema_slots = asyncio.Semaphore(_SCHEMAS_AT_ONCE)
        self._locks: WeakValueDictionary[IdentityId | str, asyncio.Lock] = WeakValueDictionary()
        self._importing = asyncio.Semaphore(1)
        self._busy: set[str] = set()
        self._passed_over: dict[IdentityId | str, int] = {}
        """Who took too long when asked for schemas, and until when they are not asked again."""
        self._wake = asyncio.Event()
        self._next_sync = 0
        self._renewed: SchemaId | None = None
        """The last schema that was asked for newer versions."""

    def wake(self) -> None:
        """Look for work now: something arrived, which may name a schema that is not here."""
        self._wake.set()

    async def run(self, idle_seconds: float = 2.0) -> None:
        """Replicate until the task is cancelled; nodes are asked side by side, so that none delays the others."""
        await run_rounds(self._find_work, self._wake, idle_seconds, _log_error)

    async def step(self) -> None:
        """Do everything that is to be done now, and wait for it."""
        await asyncio.gather(*await self._find_work())

    async def _find_work(self) -> list[Coroutine[Any, Any, None]]:
        """Schemas to be asked for and, if it is time, peers to be synced with and schemas to be renewed."""
        while await self._run_blocking(lambda: catch_up(self._node)):
            pass
        work = {f"{_SCHEMA} {item.number}": partial(self._fetch_wanted, item) for item in await self._find_wanted()}
        period, now = self._node.settings.replication_seconds, self._node.clock()
        if period > 0 and now >= self._next_sync:
            self._next_sync = now + period * _SECOND
            peers = await self._run_blocking(lambda: self._node.database.read(list_peers))
            work |= {f"peer {peer.fqdn}": partial(self._sync_in_slot, peer.fqdn) for peer in peers}
            renewals = await self._find_renewals()
            work |= {f"owner {owner.hex()}": partial(self._fetch_schemas, owner, of) for owner, of in renewals.items()}
        free = {name: item for name, item in work.items() if name not in self._busy}
        self._busy |= free.keys()
        return [self._do(name, item) for name, item in free.items()]

    async def _do(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except InkgroveError as error:
            log.warning("replication was interrupted", at=name, code=error.code, reason=error.message)
        finally:
            self._busy.discard(name)

    # Peers

    async def _sync_in_slot(self, fqdn: str) -> None:
        async with self._peer_slots:
            try:
                synced = await self.sync(fqdn)
            except FederationError as error:
                log.warning("a peer was not synced", peer=fqdn, code=error.code, reason=error.message)
            else:
                if synced.stored:
                    log.info("a peer was synced", peer=fqdn, stored=synced.stored)

    async def sync(self, fqdn: str, on_progress: OnProgress = lambda _done, _total: None) -> SyncResult:
        """Fetch everything that a peer offers and that is lacking here.

        Raises `federation.unknown-peer`, or whatever error ends the sync; that is also noted on the list of peers.
        """
        peers = await self._run_blocking(lambda: self._node.database.read(list_peers))
        peer = next((peer for peer in peers if peer.fqdn == fqdn), None)
        if peer is None:
            raise FederationError("federation.unknown-peer", f"{fqdn} is no peer: inkgrove peer add {fqdn}", fqdn=fqdn)
        try:
            return await self._sync(peer, on_progress)
        except InkgroveError as error:
            text = f"{error.code}: {error.message}"[:500]
            await self._run_blocking(lambda: self._node.database.write(lambda c: note_error(c, fqdn, text)))
            raise

    async def _sync(self, peer: Peer, on_progress: OnProgress) -> SyncResult:
        known = await self._discovery.find(peer.fqdn)
        source = self._source(known, self._node.settings.peer_sync_seconds)
        taken = IntakeCounts()
        lacking = logs = 0
        position = ""
        batches = self._intake(taken, lambda done: on_progress(done, lacking))
        bulk = None if self._importer is None else partial(self._bulk_intake, taken, self._importer)
        intake = GrowingIntake(batches, bulk, self._bulk)
        try:
            async for news in list_news(source, peer.position if peer.node_key == known.node_key else None):
                position = news.position
                wants = await self._run_blocking(partial(find_missing, self._node, news.logs))
                count = count_missing(news.logs, wants)
                logs, lacking = logs + len(wants), lacking + count
                if count > self._bulk:
                    await intake.switch_to_bulk()
                await self._fetch(source, wants, intake)
                await self._run_blocking(partial(self._keep_proofs, news.logs))
        finally:
            await intake.close()
        now = self._node.clock()
        await self._run_blocking(
            lambda: self._node.database.write(lambda c: note_synced(c, peer.fqdn, known.node_key, position, now))
        )
        return SyncResult(peer.fqdn, logs, taken.received, taken.stored, dict(taken.refused), intake.is_bulk)

    def _source(self, known: RemoteIdentity, seconds: float) -> PeerSource:
        return PeerSource(self._node, self._transport, known, seconds=seconds, run_blocking=self._run_blocking)

    async def _fetch(self, source: PeerSource, wants: Sequence[Want], intake: "Intake | GrowingIntake") -> None:
        try:
            await fetch_entries(source, wants, intake.ingest)
        except FederationError:
            await intake.finish()  # what came before counts
            raise
        await intake.finish()

    def _intake(self, taken: IntakeCounts, on_progress: Callable[[int], None] = lambda _: None) -> Intake:
        return Intake(self._node, taken, on_progress, in_place=self._run_blocking is not in_thread)

    def _bulk_intake(self, taken: IntakeCounts, importer: ArchiveImporter) -> BulkIntake:
        folder, few = self._node.home / "replication", min(MOST_AT_HAND, self._bulk)
        return BulkIntake(self._node, taken, folder, importer, self._importing, few=few)

    def _keep_proofs(self, logs: Collection[LogHeight]) -> None:
        """Store the fork proofs of logs; anybody may bring them, and they are verified like everything else."""
        items = [(entry, None) for item in logs for entry in item.proof or ()]
        if items:
            prepared, _ = prepare_items(items)
            asked = {(item.author, item.log_id) for item in logs if item.proof is not None}
            self._node.store.ingest(
                (item.signed, None)
                for item in prepared
                if (item.signed.entry.author, item.signed.entry.log_id) in asked
            )
            for author in sorted(author for author, log_id in asked if log_id == IDENTITY_LOG):
                self._node.database.write(partial(apply_identity_log, author=author))

    # Schemas

    async def _find_wanted(self) -> list[WantedSchema]:
        """List some of the schemas that are wanted and due, besides those that are being asked for."""
        read = self._node.database.read
        now, under_way = self._node.clock(), sum(name.startswith(_SCHEMA) for name in self._busy)
        if under_way >= _MOST_UNDER_WAY or not await self._run_blocking(
            lambda: read(lambda c: is_any_schema_due(c, now))
        ):
            return []
        most = _AT_ONCE + under_way
        return await self._run_blocking(lambda: self._node.database.write(lambda c: list_due_schemas(c, now, most)))

    async def _fetch_wanted(self, item: WantedSchema) -> None:
        for identity in await self._run_blocking(lambda: self._node.database.read(lambda c: _list_to_ask(c, item))):
            if await self._ask_one(item, identity):
                return
        for peer in await self._run_blocking(lambda: self._node.database.read(list_peers)):
            if await self._ask_one(item, peer.fqdn):
                return
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(item.failures, 20))
        next_try = self._node.clock() + int(wait * _SECOND)
        await self._run_blocking(lambda: self._node.database.write(lambda c: postpone_schema(c, item, next_try)))

    async def _ask_one(self, item: WantedSchema, whom: IdentityId | str) -> bool:
        """Ask somebody for a schema; returns whether it is held up to the wanted version now."""
        await self._fetch_schemas(whom, [item.schema])
        state = await self._run_blocking(lambda: self._node.store.read(find_log, *item.schema))
        return state is not None and state.held >= item.version

    async def _fetch_schemas(self, whom: IdentityId | str, schemas: Sequence[SchemaId]) -> None:
        """Fetch what somebody's node has of schemas and this one lacks, if it answers."""
        find = self._discovery.find if isinstance(whom, str) else self._discovery.find_by_id
        # One question at a time for each, so that nobody takes up the slots of the others.
        lock = self._locks.setdefault(whom, asyncio.Lock())
        async with lock, self._schema_slots:
            if self._passed_over.get(whom, 0) > self._node.clock():
                return
            try:
                known = await find(whom)  # type: ignore[arg-type]
                source = self._source(known, min(_SCHEMA_SECONDS, self._node.settings.peer_sync_seconds))
                wants = await self._run_blocking(lambda: self._node.database.read(lambda c: _find_missing(c, schemas)))
                intake = self._intake(IntakeCounts())
                try:
                    await self._fetch(source, wants, intake)
                finally:
                    await intake.close()
            except FederationError as error:
                if isinstance(error, PeerTimeout | EndlessAnswer):
                    self._pass_over(whom)
                log.info("schemas were not had", first=str(schemas[0]), code=error.code, reason=error.message)

    def _pass_over(self, whom: IdentityId | str) -> None:
        """Ask whoever took too long for nothing more in a while: else every schema of theirs would wait for them."""
        if len(self._passed_over) >= _MOST_PASSED_OVER:
            self._passed_over.clear()
        self._passed_over[whom] = self._node.clock() + _PASSED_OVER_SECONDS * _SECOND

    async def renew_schemas(self) -> None:
        """Ask the nodes of their authors for newer versions of schemas that are indexed here, some in each round."""
        renewals = await self._find_renewals()
        await asyncio.gather(*(self._fetch_schemas(owner, schemas) for owner, schemas in renewals.items()))

    async def _find_renewals(self) -> dict[IdentityId, list[SchemaId]]:
        """Pick the schemas that are asked for newer versions now, by their owners."""
        foreign = await self._run_blocking(lambda: self._node.database.read(_foreign_schemas))
        picked = pick_next_schemas(list(foreign), self._renewed, MOST_RENEWED)
        if picked:
            self._renewed = picked[-1]
        by_owner: dict[IdentityId, list[SchemaId]] = defaultdict(list)
        for schema in picked:
            by_owner[foreign[schema]].append(schema)
        return by_owner


def _log_error(error: InkgroveError) -> None:
    log.warning("replication was interrupted", code=error.code, reason=error.message)


def pick_next_schemas(schemas: Sequence[SchemaId], last: SchemaId | None, most: int) -> list[SchemaId]:
    """Return the schemas that follow the last one that was picked, in order; then from the beginning."""
    ordered = sorted(schemas)
    start = bisect_right(ordered, last) if last is not None else 0
    return (ordered[start:] + ordered[:start])[:most]


def _foreign_schemas(connection: Connection) -> dict[SchemaId, IdentityId]:
    """The schemas that are registered here and owned by somebody elsewhere, each with its owner."""
    owners = {schema: find_owner(connection, schema.author) for schema in read_registered(connection)}
    living = living_among(connection, set(owners.values()))
    return {schema: owner for schema, owner in owners.items() if owner not in living}


def _find_missing(connection: Connection, schemas: Collection[SchemaId]) -> list[Want]:
    """The next versions of schemas, whether something names them or not; no more than an answer holds."""
    wants = []
    for schema in schemas:
        log = find_log(connection, *schema)
        height = (log.height if log is not None else 0) + MAX_REPLICATION_ENTRIES
        ranges = find_missing_ranges(connection, *schema, height, most=_AT_ONCE)
        if ranges:  # a log that is forked at its beginning has nothing to give
            wants.append(Want(*schema, ranges))
    return wants


def _list_to_ask(connection: Connection, item: WantedSchema) -> list[IdentityId]:
    """The owner of a schema, who brought what names it, then some who use it; none of them lives here."""
    users = [find_owner(connection, author) for author in authors_naming(connection, item.number, _MOST_ASKED)]
    brought = [item.via] if item.via is not None else []
    asked = dict.fromkeys([find_owner(connection, item.schema.author), *brought, *users])
    living = living_among(connection, asked)
    return [identity for identity in asked if identity not in living][:_MOST_ASKED]


def sync_with(node: Node, fqdn: str, on_progress: OnProgress, importer: ArchiveImporter | None = None) -> SyncResult:
    """Sync with a peer and wait for it, as `Replicator.sync`; for commands, which have no event loop."""

    async def work(transport: Transport) -> SyncResult:
        replicator = Replicator(node, transport, Discovery(node, transport), importer=importer)
        return await replicator.sync(fqdn, on_progress)

    return run_with_transport(node.settings, work)
