"""What was erased on one node, and what the others are told of it (docs/protocol.md section 9.5)."""

from inkgrove.core import parse_hash
from inkgrove.messages import Parcel
from inkgrove.node.publishing import find_erased_instance, pack_next_parcel
from inkgrove.node.runtime import Node, erase_at_once, erase_due
from inkgrove.store.db import Connection
from tests.federation.conftest import World
from tests.support.federated import until, wait_for


def pack_end(node: Node, instance: str) -> Parcel:
    def work(connection: Connection) -> Parcel:
        held = find_erased_instance(connection, parse_hash(instance))
        assert held is not None
        packed = pack_next_parcel(connection, held, [], after=0, deletions_only=True)
        assert packed is not None
        return packed[0]

    return node.database.read(work)


def test_end_is_told_after_the_content_was_erased_and_the_content_is_not_taken_again(world: World) -> None:
    them, jane, john, alice = world.them, world.jane, world.john, world.alice
    instance = world.mail(recipients=[john.fqdn, alice.fqdn])
    wait_for(jane, instance, john_b="delivered", alice_c="delivered")
    everything = them.pack("a", instance)
    assert jane.delete(f"/instances/{instance}").status_code == 200
    wait_for(jane, instance, john_b="delivered", alice_c="delivered")
    owner, receiver = them.nodes["a"].node, them.nodes["b"].node
    assert erase_at_once(owner, parse_hash(instance))
    assert world.held(instance)[0] is None
    wait_for(jane, instance, john_b="delivered", alice_c="delivered")  # as she sees it
    # Who never had it hears of the end alone, and who has it of nothing new.
    end = pack_end(owner, instance)
    assert [payload is not None for _, payload in end.entries].count(True) == 1
    assert them.fate(jane, alice, end) == ("accepted", None)
    # An honest node erases after a grace of its own.
    assert them.payloads("b", instance) == 2
    report = erase_due(receiver, compact=False)
    assert report is not None
    assert (report.instances, report.waiting) == (0, 1)
    erase_at_once(receiver, parse_hash(instance))
    assert them.payloads("b", instance) is None
    assert them.fate(jane, john, everything) == ("refused", "payload.erased")
    assert them.fate(jane, john, end) == ("accepted", None)
    assert them.payloads("b", instance) is None


def test_end_that_waits_is_sent_although_the_content_is_gone(world: World) -> None:
    """The owner does not wait for the grace, and a recipient's node was away."""
    them, jane, john = world.them, world.jane, world.john
    instance = world.mail(recipients=[john.fqdn])
    wait_for(jane, instance, john_b="delivered")
    assert jane.delete(f"/instances/{instance}").status_code == 200
    erase_at_once(them.nodes["a"].node, parse_hash(instance))  # before or after it was sent, as it happens
    until(lambda: them.is_deleted("b", instance))
    wait_for(jane, instance, john_b="delivered")
