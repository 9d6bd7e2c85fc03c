"""What runs beside the requests ends when the node stops, whatever happens at that very moment."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from inkgrove.federation.federation import Federation
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings


def test_an_outbox_that_is_woken_as_the_node_stops_ends(tmp_path: Path) -> None:
    async def stop_while_waking(federation: Federation) -> None:
        running = asyncio.create_task(federation.outbox.run(idle_seconds=60))
        await asyncio.sleep(0.5)  # it has found nothing and waits
        federation.outbox.wake()
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()

    _with_federation(tmp_path, stop_while_waking)


def test_a_replicator_that_is_woken_as_the_node_stops_ends(tmp_path: Path) -> None:
    async def stop_while_waking(federation: Federation) -> None:
        running = asyncio.create_task(federation.replicator.run(idle_seconds=60))
        await asyncio.sleep(0.5)
        federation.replicator.wake()
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()

    _with_federation(tmp_path, stop_while_waking)


def _with_federation(home: Path, work: Callable[[Federation], Awaitable[None]]) -> None:
    node = Node(home, NodeSettings(), home=home)

    async def run() -> None:
        federation = Federation(node)
        try:
            await work(federation)
        finally:
            await federation.close()

    try:
        asyncio.run(run())
    finally:
        node.close()
