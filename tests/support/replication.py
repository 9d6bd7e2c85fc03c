"""Replication for tests: what one node takes from another, and what both hold."""

from inkgrove.cli.import_process import SparkImporter
from inkgrove.federation.errors import PeerUnreachable
from inkgrove.federation.peers import Discovery, HttpTransport, PeerRequest, PeerResponse, Transport
from inkgrove.federation.replication import BULK, ENTRIES_PATH, ArchiveImporter, Replicator, SyncResult
from inkgrove.node.runtime import Node
from inkgrove.settings import SparkSettings
from inkgrove.store.federation import add_peer
from inkgrove.store.logs import read_entries, read_logs
from tests.support.nodes import RunningNode
from tests.support.peers import run

SPARK = SparkImporter(SparkSettings())


def sync(
    running: RunningNode | Node,
    fqdn: str,
    *,
    importer: ArchiveImporter | None = SPARK,
    bulk: int = BULK,
    answers: int | None = None,
) -> SyncResult:
    """Make a name a peer of a node, and sync with it; it can be reached no more after so many answers with entries."""
    node = running.node if isinstance(running, RunningNode) else running
    node.database.write(lambda connection: add_peer(connection, fqdn, node.clock()))

    async def work() -> SyncResult:
        async with HttpTransport(node.settings) as http:
            transport = http if answers is None else _Breaking(http, answers)
            replicator = Replicator(node, transport, Discovery(node, transport), importer=importer, bulk=bulk)
            return await replicator.sync(fqdn)

    return run(work(), seconds=400)


class _Breaking:
    """A network that breaks down in the midst of a sync."""

    def __init__(self, network: Transport, answers: int) -> None:
        self._network = network
        self._left = answers

    async def send(self, request: PeerRequest) -> PeerResponse:
        if request.url.endswith(ENTRIES_PATH):
            if self._left == 0:
                raise PeerUnreachable("the network has broken down")
            self._left -= 1
        return await self._network.send(request)


def renew_schemas(node: Node) -> None:
    """Ask for newer versions of the schemas that a node indexes."""

    async def work() -> None:
        async with HttpTransport(node.settings) as transport:
            await Replicator(node, transport, Discovery(node, transport)).renew_schemas()

    run(work())


def held(node: Node) -> dict[tuple[str, int, int], bytes | None]:
    """Every entry that a node holds, by author, log and place, with its payload."""
    return {
        (state.author.hex(), state.log_id, stored.entry.seq_num): stored.payload
        for state in node.store.read(read_logs).values()
        for stored in node.store.read(read_entries, state.author, state.log_id)
    }
