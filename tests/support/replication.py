"""Replication for tests: what one node takes from another, and what both hold."""

from inkgrove.federation.discovery import Discovery
from inkgrove.federation.fetch import HttpTransport
from inkgrove.federation.replicator import BULK, Replicator, Synced
from inkgrove.node.node import Node
from inkgrove.store.peer_list import add_peer
from tests.support.nodes import RunningNode
from tests.support.peers import run


def sync(running: RunningNode | Node, fqdn: str, *, bulk: int = BULK) -> Synced:
    """Make a name a peer of a node, and sync with it."""
    node = running.node if isinstance(running, RunningNode) else running
    node.database.write(lambda connection: add_peer(connection, fqdn, node.clock()))

    async def work() -> Synced:
        async with HttpTransport(node.settings) as transport:
            return await Replicator(node, transport, Discovery(node, transport), bulk=bulk).sync(fqdn)

    return run(work(), seconds=400)


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
        for state in node.store.logs().values()
        for stored in node.store.entries_of(state.author, state.log_id)
    }
