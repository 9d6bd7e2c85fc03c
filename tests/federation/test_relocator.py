"""The worker that follows moves and tells of documents, with a clock and a network of the test's own."""

from dataclasses import dataclass, field

import pytest

from inkgrove.core import Hash, IdentityId
from inkgrove.federation.errors import PeerUnreachable
from inkgrove.federation.peers import (
    DOCUMENTS_PATH,
    Discovery,
    PeerRequest,
    PeerResponse,
    parse_url,
    receive_document,
    take_document,
)
from inkgrove.federation.sharing import Relocator, tell_of_new_document
from inkgrove.node.identity import register_identity
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    find_remote_identity,
    list_due_deliveries,
    list_notice_targets,
    list_relocations,
    queue_deliveries,
    record_delivery,
    states_of,
)
from inkgrove.store.node import put_relation_state
from tests.federation.conftest import Clock
from tests.support.peers import Elsewhere, VirtualNetwork, run

HOUR, DAY = 3600, 86_400
OLD, NEW = "john.haiku.ink", "john.new.ink"
INSTANCE = Hash(b"\x00\x40" + bytes(64))
JANE = IdentityId(bytes([9]) * 32)


@dataclass
class Listening(VirtualNetwork):
    """Also takes notices, and answers them as the test says."""

    status: int = 204
    notices: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def send(self, request: PeerRequest) -> PeerResponse:
        url = parse_url(request.url)
        if url.target != DOCUMENTS_PATH:
            return await super().send(request)
        self.notices.append((url.host, request.body))
        return PeerResponse(self.status, (), b"")


@pytest.fixture
def network() -> Listening:
    return Listening()


@pytest.fixture
def john(node: Node, network: Listening) -> Elsewhere:
    """Somebody whom Jane, of this node, follows and has sent something, which his node took."""
    john = Elsewhere(OLD)
    network.pages[OLD] = john.page()
    find(node, network, OLD)

    def work(connection: Connection) -> None:
        put_relation_state(connection, JANE, john.id, "accepted", 0)
        queue_deliveries(connection, INSTANCE, JANE, [john.id], wanted=2, now=node.clock())
        deliver(connection, node, john)

    node.database.write(work)
    network.asked.clear()
    return john


def find(node: Node, network: VirtualNetwork, fqdn: str) -> None:
    async def work() -> None:
        await Discovery(node, network).find(fqdn, fetched_since=node.clock() + 1)

    run(work())


def step(node: Node, network: VirtualNetwork, moved: list[IdentityId] | None = None) -> None:
    """One round, of a worker that has just started."""
    heard = [] if moved is None else moved

    async def work() -> None:
        await Relocator(node, network, Discovery(node, network), on_moved=heard.append, random=lambda: 0.5).step()

    run(work())


def deliver(connection: Connection, node: Node, john: Elsewhere) -> None:
    for due in list_due_deliveries(connection, [john.id]):
        record_delivery(connection, due, "delivered", delivered=2, now=node.clock())


def state(node: Node) -> str:
    (found,) = node.database.read(lambda c: states_of(c, INSTANCE))
    return found.state


def move(node: Node, john: Elsewhere, number: int = 150) -> None:
    """John has a new name, on another node, and this one hears of the document."""
    john.fqdn, john.node_key = NEW, Elsewhere(number=number).node_key
    john.publish()
    take_document(node, john.well_known().document)


# Those who have moved


def test_only_the_name_in_the_newest_document_is_asked(
    node: Node, network: Listening, john: Elsewhere, clock: Clock
) -> None:
    move(node, john)
    network.pages[NEW] = john.page()
    moved: list[IdentityId] = []
    step(node, network, moved)
    assert network.asked == [NEW]
    known = node.database.read(lambda c: find_remote_identity(c, john.id))
    assert known is not None
    assert (known.fqdn, known.node_key, known.expires) == (NEW, john.node_key.public, clock.now + HOUR * 1_000_000)
    assert set(moved) == {john.id}
    assert state(node) == "waiting"
    assert node.database.read(list_relocations) == []
    step(node, network)
    assert network.asked == [NEW], "there is nothing left to do"


def test_document_that_names_somebody_elses_name_turns_nothing(node: Node, network: Listening, john: Elsewhere) -> None:
    other = Elsewhere(NEW, 2)
    network.pages[NEW] = other.page()
    move(node, john)
    step(node, network)
    known = node.database.read(lambda c: find_remote_identity(c, john.id))
    assert known is not None
    assert (known.fqdn, known.has_moved) == (OLD, True)
    assert state(node) == "delivered"
    assert [item.identity for item in node.database.read(list_relocations)] == [john.id]


def test_look_ups_that_fail_become_rarer_and_end(node: Node, network: Listening, john: Elsewhere, clock: Clock) -> None:
    move(node, john)
    network.pages[NEW] = PeerUnreachable("away")
    for _ in range(60):
        step(node, network)
        clock.go_on(1)
    assert 3 <= len(network.asked) <= 6, "after 2, 4, 8 ... seconds"
    for _ in range(24):
        clock.go_on(HOUR)
        step(node, network)
    assert len(network.asked) <= 30
    clock.go_on(7 * DAY)
    step(node, network)
    assert node.database.read(list_relocations) == []
    # Whoever needs him looks him up, and then everything turns.
    network.pages[NEW] = john.page()
    clock.go_on(HOUR)
    find(node, network, NEW)
    step(node, network)
    assert state(node) == "waiting"


def test_host_that_shows_another_key_all_the_time_gets_everything_once_an_hour(
    node: Node, network: Listening, john: Elsewhere, clock: Clock
) -> None:
    offered = 0
    for number in range(60, 120):  # a minute each
        john.node_key = Elsewhere(number=number).node_key
        network.pages[OLD] = john.page()
        find(node, network, OLD)
        step(node, network)
        if state(node) == "waiting":
            offered += 1
            node.database.write(lambda c: deliver(c, node, john))
        clock.go_on(60)
    assert offered == 1
    clock.go_on(61)
    step(node, network)
    assert state(node) == "waiting"


def test_name_that_passed_to_somebody_else_loses_nobody(node: Node, network: Listening, john: Elsewhere) -> None:
    """The old host gives the name away before anybody hears of the move."""
    network.pages[OLD] = Elsewhere(OLD, 2).page()
    find(node, network, OLD)
    assert node.database.read(lambda c: find_remote_identity(c, john.id)) is None
    move(node, john)
    network.pages[NEW] = john.page()
    step(node, network)
    known = node.database.read(lambda c: find_remote_identity(c, john.id))
    assert known is not None
    assert known.fqdn == NEW
    assert state(node) == "waiting"


# Those who are told


@dataclass
class Told:
    """Jane lives on this node; three people follow her, two of them on one other node."""

    id: IdentityId
    people: list[Elsewhere]


@pytest.fixture
def told(node: Node, network: Listening) -> Told:
    jane = register_identity(node, "jane.own.example", None, leads_here=True)
    people = [Elsewhere(f"p{number}.haiku.ink", number) for number in (2, 3, 4)]
    people[1].node_key = people[0].node_key
    for person in people:
        network.pages[person.fqdn] = person.page()
        find(node, network, person.fqdn)
        node.database.write(lambda c: put_relation_state(c, person.id, jane.id, "accepted", 0))  # noqa: B023
    assert tell_of_new_document(node, jane.id) == 3
    return Told(jane.id, people)


def test_each_node_gets_one_notice_that_another_one_takes(node: Node, network: Listening, told: Told) -> None:
    step(node, network)
    assert len(network.notices) == 2
    assert node.database.read(list_notice_targets) == []
    charged: list[int] = []
    receive_document(node, network.notices[0][1], charged.append)  # as any node would
    assert charged == [1024]
    assert told.people


@pytest.mark.parametrize("status", [404, 422])
def test_notice_that_will_never_be_taken_is_sent_once(node: Node, network: Listening, told: Told, status: int) -> None:
    network.status = status
    step(node, network)
    assert len(network.notices) == 2
    assert node.database.read(list_notice_targets) == []
    assert told.people


def test_notices_are_tried_again_and_given_up(node: Node, network: Listening, told: Told, clock: Clock) -> None:
    network.status = 503
    step(node, network)
    assert len(node.database.read(list_notice_targets)) == 3
    step(node, network)
    assert len(network.notices) == 3, "each waits"
    clock.go_on(60)
    network.status = 204
    step(node, network)
    assert node.database.read(list_notice_targets) == []
    network.status = 503
    tell_of_new_document(node, told.id)
    clock.go_on(8 * DAY)
    step(node, network)
    assert node.database.read(list_notice_targets) == []
