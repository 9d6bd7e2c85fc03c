"""An identity that moves from one node to another: where it is delivered to, and how it is brought there.

Node a has the domain a.ink, node b has b.ink; each is led to the other under these names.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client.client import Client
from inkgrove.core import IdentityId, SecretKey, identity_of, parse_hash
from inkgrove.federation.errors import QuotaUsedUp
from inkgrove.federation.peers import (
    WELL_KNOWN_PATH,
    Discovery,
    PeerRequest,
    PeerResponse,
    host_document,
    render_well_known,
    well_known_of,
)
from inkgrove.federation.sharing import prepare_delivery
from inkgrove.messages import FurtherKey, IdentityDocument, encode_message
from inkgrove.node.identity import (
    SignedMessage,
    adopt_proved,
    apply_identity_log,
    find_own_name_holder,
    read_adoption,
    register_identity,
    show_identity,
)
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import queue_deliveries, states_of
from inkgrove.store.node import lives_here
from tests.support.adopting import bring, prove, signed
from tests.support.federated import until
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.peers import run
from tests.support.publishing import create, make_schema

NUMBERS = count(1)
DAY = 86_400_000_000


def new_log() -> LogBuilder:
    return LogBuilder(SecretKey.from_seed(b"moves " + next(NUMBERS).to_bytes(26, "big")), log_id=0)


def document(fqdn: str, **facts: Any) -> IdentityDocument:
    return IdentityDocument(fqdn, f"https://{fqdn}", **facts)


def bring_from(client: httpx.Client, log: LogBuilder, fqdn: str, item: dict[str, str], lives_at: str) -> httpx.Response:
    proof = prove(client, log.secret, log.entries[-1].encoded, fqdn)
    body = {"fqdn": fqdn, "password": PASSWORD, "signed": item, "proof": proof, "lives_at": lives_at}
    return client.post("/identities", json=body)


@dataclass(frozen=True)
class Moved:
    """Somebody who was at home on node a and has moved to node b, which node a has not heard of yet."""

    log: LogBuilder
    old: str
    new: str
    there: httpx.Client

    @property
    def id(self) -> IdentityId:
        return identity_of(self.log.secret.public)


@dataclass(frozen=True)
class World:
    a: RunningNode
    b: RunningNode

    def move(self) -> Moved:
        log, number = new_log(), next(NUMBERS)
        old, new = f"x{number}.a.ink", f"x{number}.b.ink"
        assert bring(self.a.anybody, log, old, signed(log, document(old))).status_code == 201
        answer = bring_from(self.b.anybody, log, new, signed(log, document(new)), old)
        assert answer.status_code == 201, answer.text
        return Moved(log, old, new, self.b.sign_in(new))

    def writer(self) -> Person:
        return Person(self.a, f"writer{next(NUMBERS)}.a.ink")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("moving")
    here, there = free_port(), free_port()
    leads = (f"*.a.ink=127.0.0.1:{here}", f"*.b.ink=127.0.0.1:{there}")
    settings = NodeSettings(registration="open", domains=("a.ink",), replication_seconds=0, resolve=leads)
    settings = replace(settings, registrations_per_address=1_000)
    for letter in "ab":
        (folder / letter).mkdir()
    place: Path | str = folder / "a"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres").create_store(f"moving{next(NUMBERS)}")
    with (
        RunningNode(place, folder / "a", settings, here) as a,
        RunningNode(folder / "b", folder / "b", replace(settings, domains=("b.ink",)), there) as b,
    ):
        yield World(a, b)


# Where somebody who moved is delivered to


def test_mail_goes_to_the_node_where_the_recipient_lives_now(world: World) -> None:
    moved = world.move()
    with world.writer() as writer:
        schema = make_schema(writer)
        mail = create(writer, schema, fields={"subject": "private"}, recipients=[moved.new])["instance"]

        def state() -> Any:
            (item,) = writer.get(f"/instances/{mail}/deliveries").json()["deliveries"]
            return item if item["state"] != "waiting" else None

        told = until(state)
        assert (told["state"], told["fqdn"], told["recipient"]) == ("held", moved.new, moved.id.hex())
        (waiting,) = moved.there.get("/me/requests").json()["requests"]
        assert [item["instance"] for item in waiting["instances"]] == [mail]
        # By the id too, which both nodes know.
        other = create(writer, schema, recipients=[moved.id.hex()])["instance"]
        until(lambda: len(moved.there.get("/me/requests").json()["requests"][0]["instances"]) == 2)
        assert other in moved.there.get("/me/requests").text
        assert world.a.sign_in(moved.old).get("/me/requests").json() == {"requests": []}


def test_who_moved_is_followed_where_they_live_now(world: World) -> None:
    moved = world.move()
    with world.writer() as writer:
        assert writer.put(f"/me/following/{moved.new}", json={}).json() == {"state": "requested"}
        (asked,) = until(lambda: moved.there.get("/me/relations").json()["relations"])
        assert (asked["identity"], asked["state"]) == (writer.id.hex(), "requested")
        answer = moved.there.put(f"/me/followers/{writer.fqdn}", json={"state": "accepted"})
        assert answer.json() == {"state": "accepted"}
        (mine,) = until(
            lambda: [r for r in writer.get("/me/relations").json()["relations"] if r["state"] == "accepted"]
        )
        assert (mine["fqdn"], mine["side"]) == (moved.new, "following")


def test_old_node_lets_who_moved_sign_in_and_read_and_nothing_else(world: World) -> None:
    moved = world.move()
    old = world.a.sign_in(moved.old)
    assert lives(world.a.node, moved.id)  # it has not heard of it
    with world.writer() as writer:
        create(writer, make_schema(writer), recipients=[moved.new])  # which finds them, and takes their document in
        assert not lives(world.a.node, moved.id)
        assert old.get("/me").json()["fqdn"] == moved.new
        assert world.a.sign_in(moved.old).get("/me/requests").status_code == 200
        codes = [
            old.get("/publish/next", params={"log_id": 1}).json()["code"],
            old.put(f"/me/following/{writer.fqdn}", json={}).json()["code"],
        ]
        assert codes == ["identity.lives-elsewhere"] * 2
        # What it was still to send for them is theirs to send from there.
        waiting = parse_hash(create(writer, make_schema(writer, "notes"))["instance"])
        other = identity_of(key(8).public)
        world.a.node.database.write(
            lambda c: queue_deliveries(c, waiting, moved.id, [other], wanted=1, now=world.a.node.clock())
        )
        letter = prepare_delivery(world.a.node, [other])
        assert letter is None or not letter.body
        (state,) = world.a.node.database.read(lambda c: states_of(c, waiting))
        assert (state.state, state.code) == ("given-up", "identity.lives-elsewhere")
        # To come back they sign a document that names this node, and take the name that was kept for them.
        answer = old.patch("/me", json={"signed": signed(moved.log, document(moved.old))})
        assert answer.status_code == 200, answer.text
        assert lives(world.a.node, moved.id)
        assert old.get("/publish/next", params={"log_id": 1}).status_code == 200


def lives(node: Node, identity: IdentityId) -> bool:
    return node.database.read(lambda connection: lives_here(connection, identity))


# The same name on another node: only the network tells


class Led:
    """A network in which every name leads to one node, which may fail for a while."""

    def __init__(self, node: Node) -> None:
        self.node, self.failures, self.asked = node, 0, 0

    async def send(self, request: PeerRequest) -> PeerResponse:
        host = request.url.split("/")[2]
        self.asked += 1
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            return PeerResponse(503, (), b"")
        known = request.url.endswith(WELL_KNOWN_PATH)
        told = render_well_known(well_known_of(self.node, host)) if known else host_document(self.node, host)
        return PeerResponse(200, (), json.dumps(told).encode())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes that host one identity under one name, which is under a domain of neither."""
    now = [1_800_000_000_000_000]
    nodes = []
    log = LogBuilder(key(9), log_id=0)
    item = signed(log, document("x.own.example"))
    message = SignedMessage(b64decode(item["entry"]), b64decode(item["payload"]))
    for letter in "ab":
        node = Node(tmp_path / letter, NodeSettings(), home=tmp_path / letter, clock=lambda: now[0])
        adopt_proved(node, None, message, *read_adoption("x.own.example", message), leads_here=True)
        nodes.append(node)
    now[0] += DAY
    yield nodes[0], nodes[1]
    for node in nodes:
        node.close()


def test_who_is_found_on_another_node_under_the_same_name_has_moved(two: tuple[Node, Node]) -> None:
    here, there = two
    identity = identity_of(key(9).public)
    assert lives(here, identity)
    run(Discovery(here, Led(there)).find("x.own.example"))
    assert not lives(here, identity)
    assert here.database.read(lambda c: find_own_name_holder(c, here, "x.own.example")) is None
    # And is back once the name leads here again.
    run(Discovery(here, Led(here)).find("x.own.example", fetched_since=here.clock() + 1))
    assert lives(here, identity)


def test_name_that_an_overruled_document_left_is_theirs_again(tmp_path: Path) -> None:
    log = LogBuilder(key(9), log_id=0)
    item = signed(log, document("x.a.ink"))
    message = SignedMessage(b64decode(item["entry"]), b64decode(item["payload"]))
    node = Node(tmp_path, NodeSettings(domains=("a.ink",)), home=tmp_path)
    adopt_proved(node, None, message, *read_adoption("x.a.ink", message), leads_here=False)
    identity, holders = identity_of(key(9).public), []
    for fqdn in ("x.elsewhere.example", "x.a.ink"):
        log.append(encode_message(document(fqdn)))
        node.store.ingest([(log.entries[-1].encoded, log.payloads[-1])])
        node.database.write(lambda connection: apply_identity_log(connection, key(9).public))
        holder = node.database.read(lambda connection: find_own_name_holder(connection, node, "x.a.ink"))
        holders.append((holder is not None, lives(node, identity)))
    node.close()
    assert holders == [(False, False), (True, True)]


def test_nobody_loses_their_own_name_by_one_failed_request(two: tuple[Node, Node]) -> None:
    here, _ = two
    led = Led(here)
    led.failures = 1  # whether the name leads here is not answered; who is there is, by this very node
    assert run(Discovery(here, led).find("x.own.example")).id == identity_of(key(9).public)
    assert here.database.read(lambda c: find_own_name_holder(c, here, "x.own.example")) is not None
    assert lives(here, identity_of(key(9).public))


def test_names_that_people_want_use_up_nothing_of_those_that_people_have(tmp_path: Path) -> None:
    """However many ask for names outside of the domains, who has one is found; each is asked for once at a time."""
    now = [1_800_000_000_000_000]
    node = Node(tmp_path, NodeSettings(domains=("a.ink",)), home=tmp_path, clock=lambda: now[0])
    names = [f"p{number}.own.example" for number in range(70)]
    ids = [register_identity(node, fqdn, None, leads_here=True).id for fqdn in names]
    now[0] += DAY
    led = Led(node)

    async def want_many(discovery: Discovery) -> None:
        for number in range(1_000):
            await discovery.leads_here(f"wanted{number}.own.example")

    async def work() -> None:
        discovery = Discovery(node, led)
        with pytest.raises(QuotaUsedUp):
            await want_many(discovery)
        assert [(await discovery.find(fqdn)).id for fqdn in names] == ids
        now[0] += DAY
        led.asked = 0
        found = await asyncio.gather(*(discovery.find(names[0]) for _ in range(20)))
        assert {known.id for known in found} == {ids[0]}
        assert led.asked == 1

    run(work())
    node.close()


# Brought to a node that never met it


def test_next_entry_at_a_node_that_never_met_the_identity_needs_to_say_where_it_lives(world: World) -> None:
    log, number = new_log(), next(NUMBERS)
    old, new = f"y{number}.a.ink", f"y{number}.b.ink"
    assert bring(world.a.anybody, log, old, signed(log, document(old))).status_code == 201
    second = signed(log, document(new))
    answer = bring(world.b.anybody, log, new, second)
    assert (answer.status_code, answer.json()["code"]) == (409, "identity.unknown-home")
    assert "next" not in answer.json()
    assert "lives_at" in answer.json()["detail"]
    # Somebody else's name proves nothing, and keeps nothing.
    with world.writer() as writer:
        answer = bring_from(world.b.anybody, log, new, second, writer.fqdn)
        told = answer.status_code, answer.json()["code"], answer.json()["reason"]
        assert told == (409, "identity.unknown-home", "federation.wrong-identity")
    assert bring_from(world.b.anybody, log, new, second, old).status_code == 201


def test_second_entry_1_is_refused_where_the_first_one_is_known(world: World) -> None:
    log, number = new_log(), next(NUMBERS)
    old, new = f"z{number}.a.ink", f"z{number}.b.ink"
    assert bring(world.a.anybody, log, old, signed(log, document(old))).status_code == 201
    fork = LogBuilder(log.secret, log_id=0)
    answer = bring_from(world.b.anybody, fork, new, signed(fork, document(new)), old)
    assert (answer.status_code, answer.json()["code"]) == (409, "identity.lives-elsewhere")
    assert bring_from(world.b.anybody, log, new, signed(log, document(new)), old).status_code == 201


def test_client_brings_an_identity_with_its_next_entry(world: World) -> None:
    log, number = new_log(), next(NUMBERS)
    secret, old, new = log.secret, f"c{number}.a.ink", f"c{number}.b.ink"
    further = (FurtherKey(key(31).public),)
    first = signed(log, document(old, name="Joan", profile={"city": "Ulm"}, keys=further))
    assert bring(world.a.anybody, log, old, first).status_code == 201
    with Client(world.b.url) as client:
        moved = client.adopt_identity(new, PASSWORD, secret, lives_at=old)
        assert (moved.fqdn, moved.name, moved.id) == (new, "Joan", identity_of(secret.public).hex())
        shown = show_identity(world.b.node, identity_of(secret.public))
        assert (shown.revision, shown.document.keys, shown.document.profile) == (2, further, {"city": "Ulm"})
