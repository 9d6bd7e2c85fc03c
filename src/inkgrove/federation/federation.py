"""The parts that speak with other nodes, put together for one process; only one process of a home runs the workers."""

import asyncio
from typing import Final

import structlog

from inkgrove.core import IdentityId
from inkgrove.federation.peers.discovery import Discovery
from inkgrove.federation.peers.limits import Quotas
from inkgrove.federation.peers.senders import RequestAuthenticator
from inkgrove.federation.peers.transport import HttpTransport
from inkgrove.federation.replication.arrivals import ArrivalWorker
from inkgrove.federation.replication.intake import ArchiveImporter
from inkgrove.federation.replication.recovery import Recovery
from inkgrove.federation.replication.sync import Replicator
from inkgrove.federation.sharing.closing import AccountCloser
from inkgrove.federation.sharing.fetching import BlobFetcher
from inkgrove.federation.sharing.outbox import Outbox
from inkgrove.federation.sharing.relocation import Relocator, tell_of_new_document
from inkgrove.node.runtime import Node
from inkgrove.store.locks import try_file_lock

_RETRY_SECONDS: Final = 5.0

log = structlog.get_logger("inkgrove.federation")


class Federation:
    """Discovery, authentication and all workers that deal with other nodes, on one event loop."""

    def __init__(self, node: Node, importer: ArchiveImporter | None = None) -> None:
        """`importer` imports very many entries of a peer as an archive; without one they come in batches."""
        self._node = node
        self.transport = HttpTransport(node.settings)
        self._for_strangers = HttpTransport(node.settings)
        self.discovery = Discovery(node, self.transport, strangers=self._for_strangers)
        self.senders = RequestAuthenticator(node, self.discovery)
        self.outbox = Outbox(node, self.transport, self.discovery)
        self.relocator = Relocator(node, self.transport, self.discovery, on_moved=self.outbox.locate_again)
        self.replicator = Replicator(node, self.transport, self.discovery, importer=importer)
        self.recovery = Recovery(node, self.transport, self.discovery)
        self.closer = AccountCloser(node)
        self.arrivals = ArrivalWorker(node, self.transport, self.discovery, tell=self._tell_of_arrival)
        self.blobs = BlobFetcher(node, self.transport, self.discovery)
        self.answer_quotas = Quotas(node.settings.peer_answer_bytes_per_minute, node.clock)

    async def _tell_of_arrival(self, identity: IdentityId) -> None:
        """Tell everybody concerned of the document with which an identity lives here."""
        await asyncio.to_thread(tell_of_new_document, self._node, identity)
        self.relocator.wake()

    async def run(self) -> None:
        """Deliver, follow moves, replicate, recover, close accounts, take newcomers in; until cancelled."""
        while True:
            try:
                await self._run()
            except Exception:  # such as a home that cannot be written to: nobody else would begin again
                log.exception("nothing is delivered or replicated at the moment")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run(self) -> None:
        self._node.home.mkdir(parents=True, exist_ok=True)
        while (lock := try_file_lock(self._node.home / "outbox.lock")) is None:
            await asyncio.sleep(_RETRY_SECONDS)
        with lock:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.outbox.run())
                tasks.create_task(self.relocator.run())
                tasks.create_task(self.replicator.run())
                tasks.create_task(self.recovery.run())
                tasks.create_task(self.closer.run())
                tasks.create_task(self.arrivals.run())

    async def close(self) -> None:
        """Close what is open to other nodes."""
        await self.transport.close()
        await self._for_strangers.close()
