"""Deliveries to a node whose disk is nearly full: small ones are taken, large ones wait with their sender."""

from pathlib import Path

from inkgrove.node.errors import StorageError
from inkgrove.node.runtime import DiskReserve
from tests.support.federated import federation, states, until, wait_for
from tests.support.publishing import create, make_schema

MIB = 1024 * 1024


class Watched(DiskReserve):
    """Remembers how large the deliveries were that were refused."""

    refused: list[int]

    def require_for_delivery(self, size: int) -> None:
        try:
            super().require_for_delivery(size)
        except StorageError as error:
            if error.code != "storage.low-disk":
                raise
            self.refused.append(size)
            raise


def test_small_deliveries_are_taken_below_the_reserve_and_large_ones_when_there_is_room(tmp_path: Path) -> None:
    left = [MIB]
    with federation(tmp_path, "ab") as them:
        jane, carol = them.person("jane", "a"), them.person("carol", "b")
        schema = make_schema(jane)
        them.follow(jane, carol)
        receiver = them.nodes["b"].node
        disk = Watched([tmp_path], 2 * MIB, free=lambda _: left[0], seconds=0)
        disk.refused = []
        receiver.disk = disk
        facts = {"recipients": ["carol.b.ink"]}
        small = create(jane, schema, fields={"subject": "short"}, **facts)["instance"]
        wait_for(jane, small, carol_b="delivered")
        large = create(jane, schema, fields={"subject": "x" * 100_000}, **facts)["instance"]
        until(lambda: disk.refused)
        assert states(jane, large) == {"carol.b.ink": "waiting"}
        left[0] = 2 * MIB
        wait_for(jane, large, carol_b="delivered")
