"""An identity that comes to a node: nobody sees it before one transaction lets it live there."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from inkgrove.client import Client, new_words
from inkgrove.core import IdentityId, SecretKey, identity_of, parse_hash, parse_words, sign_next
from inkgrove.federation.peers import Discovery, LogOwner, PeerRequest, PeerResponse
from inkgrove.federation.replication import ArrivalWorker, answer_own_relations, answer_own_shares
from inkgrove.messages import Access, Create, FurtherKey, SchemaVersion, Update, encode_message
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import SignedMessage, create_identity, hash_password, read_control, show_identity, sign_in
from inkgrove.node.moving import (
    PartWriter,
    begin_arrival,
    file_request,
    finish_rows,
    give_up,
    part_path,
    read_progress,
    require_arrival,
    set_state,
    settle,
    take_in_file,
    tidy_arrivals,
)
from inkgrove.node.person_file import FileReader, import_person, import_rows, write_person_file
from inkgrove.node.publishing import list_waiting_requests
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import Connection
from inkgrove.store.federation import list_held_shares
from inkgrove.store.federation.own_logs import HeldShare
from inkgrove.store.node import (
    StoredArrival,
    find_arrival,
    find_identity,
    find_name,
    keys_of,
    put_relation_state,
    shares_of,
)
from tests.store.postgres import PostgresServer
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.publishing import create, make_schema
from tests.support.templates import open_node

pytestmark = pytest.mark.both_databases
_NUMBERS = count(1)
OLD, NEW = "jane.haiku.ink", "jane.poem.ink"
SETTINGS = NodeSettings(registration="open", domains=("poem.ink",))


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, place: Path | str, tmp_path: Path) -> Iterator[Node]:
    """Another node, on the same kind of database."""
    home = tmp_path / "elsewhere"
    where: Path | str = home
    if isinstance(place, str):
        server: PostgresServer = request.getfixturevalue("postgres")
        where = server.create_store(f"arrivals{next(_NUMBERS)}")
    node = open_node(where, SETTINGS, home)
    yield node
    node.close()


class Move:
    """Jane, with words, a post and a follower on her old node; and her file."""

    def __init__(self, running: RunningNode, file: Path) -> None:
        self.words = new_words()
        self.first = SecretKey.from_seed(parse_words(self.words))
        self.identity = identity_of(self.first.public)
        with Client(running.url) as client:
            client.sign_up(OLD, PASSWORD, self.words, endpoint=running.node.settings.endpoint.format(fqdn=OLD))
        jane = running.sign_in(OLD)
        create(jane, make_schema(jane), fields={"subject": "Hello"}, access={"mode": "public"})
        self.john = IdentityId.fromhex(running.create("john.haiku.ink")["id"])
        running.node.database.write(lambda c: put_relation_state(c, self.john, self.identity, "accepted", 6))
        self.file = file
        with file.open("wb") as opened:
            write_person_file(running.node, self.identity, opened)

    def begin(self, node: Node, **more: object) -> StoredArrival:
        controller = SecretKey.from_seed(node.random_bytes(32))
        options: dict[str, Any] = {
            "way": "file",
            "fqdn": NEW,
            "password": hash_password(PASSWORD),
            "request": {},
            "replaces": True,
        }
        arrival, token, _ = begin_arrival(node, self.first.public, controller, **{**options, **more})
        assert require_arrival(node, arrival.id, token) == arrival
        return arrival

    def take_in(self, node: Node, arrival: StoredArrival) -> StoredArrival:
        for state in ("fetching", "arriving"):
            found = set_state(node, arrival, state)
            assert found is not None
            arrival = found
        import_person(node, self.file, expected=self.identity)
        found = set_state(node, arrival, "committing")
        assert found is not None
        return found

    def sign(self, node: Node, arrival: StoredArrival, **changes: object) -> SignedMessage:
        progress = read_progress(node, arrival)
        assert progress.document is not None
        assert progress.next is not None
        listed = (*progress.document.keys, FurtherKey(arrival.controller, label="server"))
        values: dict[str, Any] = {
            "fqdn": NEW,
            "endpoint": node.settings.endpoint.format(fqdn=NEW),
            "keys": listed,
            "under": None,
        }
        values |= {"controller": arrival.controller, **changes}
        document = replace(progress.document, **values)
        payload = encode_message(document)
        return SignedMessage(sign_next(self.first, payload, progress.next).encoded, payload)


@pytest.fixture
def move(running: RunningNode, tmp_path: Path) -> Move:
    return Move(running, tmp_path / "jane.person")


def test_nobody_sees_the_identity_before_it_is_settled(move: Move, elsewhere: Node) -> None:
    arrival = move.take_in(elsewhere, move.begin(elsewhere))
    with pytest.raises(UnknownIdentity):
        show_identity(elsewhere, move.identity)
    assert elsewhere.database.read(lambda c: find_name(c, NEW)) is None
    signed = move.sign(elsewhere, arrival)
    record = settle(elsewhere, move.identity, [signed])
    assert (record.id, record.document.fqdn, record.document.controller) == (move.identity, NEW, arrival.controller)
    assert elsewhere.secret_key(arrival.controller).public == arrival.controller
    assert sign_in(elsewhere, NEW, PASSWORD)
    stored = elsewhere.database.read(lambda c: find_arrival(c, move.identity))
    assert stored is not None
    assert stored.state == "here"
    # The row is kept for a while, and the secret is not: it lies with the key alone.
    assert (stored.sealed, stored.grant_sealed, stored.password) == (b"", None, None)
    # Asked again it answers again; another document goes another way.
    assert settle(elsewhere, move.identity, [signed]) == record
    with raises("arrival.not-ready"):
        settle(elsewhere, move.identity, [SignedMessage(signed.entry, b"")])
    with raises("arrival.lives-here"):
        move.begin(elsewhere)


def test_document_must_be_the_one_that_was_agreed_on(move: Move, elsewhere: Node) -> None:
    begun = move.begin(elsewhere)
    with raises("arrival.not-ready"):
        settle(elsewhere, move.identity, [])
    arrival = move.take_in(elsewhere, begun)
    before = elsewhere.database.read(lambda c: read_control(c, move.first.public))
    old = before.document.controller
    wrong: list[dict[str, object]] = [
        {"fqdn": "judy.poem.ink"},
        {"endpoint": "https://elsewhere.example"},
        {"controller": old},
        {"controller": None},
        {"keys": before.document.keys},
    ]
    for changes in wrong:
        with raises("identity.bad-document"):
            settle(elsewhere, move.identity, [move.sign(elsewhere, arrival, **changes)])
    assert elsewhere.database.read(lambda c: find_identity(c, move.identity)) is None
    assert elsewhere.database.read(lambda c: read_control(c, move.first.public)) == before
    assert settle(elsewhere, move.identity, [move.sign(elsewhere, arrival)]).document.fqdn == NEW


def test_arrival_that_is_begun_again_is_another_one(move: Move, elsewhere: Node) -> None:
    first = move.begin(elsewhere)
    with raises("arrival.under-way"):
        move.begin(elsewhere, replaces=False)
    second = move.begin(elsewhere)
    assert set_state(elsewhere, first, "fetching") is None
    assert set_state(elsewhere, second, "fetching") is not None


def test_host_that_is_left_cannot_end_an_arrival_with_grants(move: Move, elsewhere: Node) -> None:
    """Whoever has begun with the first key goes on; and they end what the old host has begun."""
    helped: dict[str, Any] = {"way": "helped", "request": {"lives_at": f"https://{OLD}"}, "grant": b"ink_g_"}
    move.begin(elsewhere, **helped)
    for way in ("file", "friends"):
        arrival = move.begin(elsewhere, way=way)
        with raises("arrival.under-way"):
            move.begin(elsewhere, **helped)
        assert elsewhere.database.read(lambda c: find_arrival(c, move.identity)) == arrival


def test_names_that_a_newcomer_brings_need_not_answer_after_a_restore(move: Move, elsewhere: Node) -> None:
    arrival = move.take_in(elsewhere, move.begin(elsewhere))
    settle(elsewhere, move.identity, [move.sign(elsewhere, arrival)])
    with FileReader(move.file) as reader:
        digest = reader.digest
    assert import_rows(elsewhere, move.file, move.identity, digest).people == [(move.john, "john.haiku.ink")]
    assert elsewhere.receivers.names() == set()


def test_name_that_is_taken_leaves_the_identity_outside(move: Move, elsewhere: Node) -> None:
    arrival = move.take_in(elsewhere, move.begin(elsewhere))
    signed = move.sign(elsewhere, arrival)
    create_identity(elsewhere, NEW, PASSWORD)
    with raises("identity.exists"):
        settle(elsewhere, move.identity, [signed])
    assert elsewhere.database.read(lambda c: find_identity(c, move.identity)) is None


def test_what_people_here_were_sent_is_told_page_by_page(running: RunningNode, tmp_path: Path) -> None:
    move = Move(running, tmp_path / "jane.person")
    jane = running.sign_in(OLD)
    schema = make_schema(jane, "letters")
    assert running.sign_in("john.haiku.ink").put(f"/me/senders/{OLD}").status_code == 200
    sent = {
        parse_hash(create(jane, schema, fields={"subject": str(number)}, recipients=["john.haiku.ink"])["instance"])
        for number in range(5)
    }
    create(jane, schema, fields={"subject": "For me"})

    def read(connection: Connection) -> list[HeldShare]:
        authors = keys_of(connection, move.identity)
        found: list[HeldShare] = []
        after: tuple[int, int] | None = (0, 0)
        while after is not None:
            some, after = list_held_shares(connection, authors, after=after, limit=2)
            found += some
        return found

    found = running.node.database.read(read)
    assert [item.instance for item in found if item.instance in sent] == [item.instance for item in found]
    assert {item.instance for item in found} == sent
    assert all(item.recipients == [move.john] and item.payload for item in found)
    owner = LogOwner(
        move.identity, frozenset(running.node.database.read(lambda c: keys_of(c, move.identity))), key(5).public
    )
    told = answer_own_shares(running.node, owner, None)
    assert (len(told.shares), told.next) == (5, None)
    (relation,) = answer_own_relations(running.node, owner, None).relations
    assert (relation.identity, relation.side, relation.state) == (move.john, "followers", "accepted")
    assert answer_own_relations(running.node, owner, f"following {'ff' * 32}").relations == []


def test_arrival_that_nobody_goes_on_with_is_given_up(move: Move, elsewhere: Node) -> None:
    arrival = move.begin(elsewhere, request=file_request(elsewhere, 1000, "00" * 64, older=False))
    writer = PartWriter(elsewhere, arrival, 0)
    with raises("auth.busy"):
        PartWriter(elsewhere, arrival, 0)
    writer.write(b"x" * 400)
    arrival = writer.finish()
    writer.close()
    assert (arrival.state, read_progress(elsewhere, arrival).received) == ("fetching", 400)
    tidy_arrivals(elsewhere)
    assert part_path(elsewhere, move.identity).exists()
    later = elsewhere.clock() + (elsewhere.settings.arrival_seconds + 1) * 1_000_000
    elsewhere.clock = lambda: later
    tidy_arrivals(elsewhere)
    assert not part_path(elsewhere, move.identity).exists()
    assert elsewhere.database.read(lambda c: find_arrival(c, move.identity)) is None
    again = move.begin(elsewhere)
    give_up(elsewhere, again)
    assert elsewhere.database.read(lambda c: find_arrival(c, move.identity)) is None


def test_file_that_has_gone_meanwhile_is_asked_for_again(move: Move, elsewhere: Node) -> None:
    size = move.file.stat().st_size
    arrival = move.begin(elsewhere, request=file_request(elsewhere, size, "00" * 64, older=False))
    arriving = set_state(elsewhere, arrival, "arriving")
    assert arriving is not None
    take_in_file(elsewhere, arriving)  # nothing has come: the home was put back from a backup
    found = elsewhere.database.read(lambda c: find_arrival(c, move.identity))
    assert found is not None
    assert (found.state, found.code) == ("asked", "input.unreadable-file")


def test_nothing_secret_stays_with_an_arrival_that_is_over(move: Move, elsewhere: Node) -> None:
    arrival = move.take_in(elsewhere, move.begin(elsewhere))
    settle(elsewhere, move.identity, [move.sign(elsewhere, arrival)])
    stored = elsewhere.database.read(lambda c: find_arrival(c, move.identity))
    assert stored is not None
    assert (stored.sealed, stored.password, stored.grant_sealed) == (b"", None, None)


def test_own_logs_that_name_something_of_others_open_nothing(move: Move, elsewhere: Node) -> None:
    """Jane comes with her words alone, and a log in which she has closed something of John's for herself and Judy."""
    john = LogBuilder(key(71))
    schema = SchemaVersion(key(71).public, 2, 1)
    john.append(encode_message(Create(schema, {"subject": "Not for Jane"})))
    judy = IdentityId.fromhex(create_identity(elsewhere, "judy.poem.ink", PASSWORD).id.hex())
    access = Access("closed", (judy, move.identity))
    jane = LogBuilder(move.first, log_id=7)
    jane.append(encode_message(Update(schema, john.hash(1), {"subject": "?"}, access)))
    jane.append(encode_message(Create(schema, {"subject": "To Judy"}, access)))
    for log in (john, jane):
        receipts = elsewhere.store.ingest(
            [(item.encoded, payload) for item, payload in zip(log.entries, log.payloads, strict=True)]
        )
        assert [item.error for item in receipts] == [None] * len(log.entries)
    arrival = move.take_in(elsewhere, move.begin(elsewhere, way="friends"))
    settle(elsewhere, move.identity, [move.sign(elsewhere, arrival)])
    here = elsewhere.database.read(lambda c: find_arrival(c, move.identity))
    assert here is not None
    for _ in range(2):
        finish_rows(elsewhere, here)
        for instance in (john.hash(1), jane.hash(2)):
            assert elsewhere.database.read(lambda c, item=instance: shares_of(c, item)) == []  # type: ignore[misc]
        assert [item.instance for item in list_waiting_requests(elsewhere, judy)] == [jane.hash(2)]


def begin_another(node: Node, number: int, **more: Any) -> StoredArrival:
    """Somebody else begins an arrival."""
    options: dict[str, Any] = {"way": "file", "fqdn": f"x{number}.poem.ink", "password": None, "request": {}}
    options |= {"replaces": True, **more}
    return begin_arrival(node, key(number).public, SecretKey.from_seed(node.random_bytes(32)), **options)[0]


HELPED: dict[str, Any] = {
    "way": "helped",
    "request": {"lives_at": "https://nobody.haiku.ink", "has_words": True},
    "grant": b"ink_g_" + b"00" * 32,
}


def test_arrivals_that_do_not_go_on_keep_nobody_out_for_ever(move: Move, elsewhere: Node) -> None:
    elsewhere.settings = replace(SETTINGS, arrivals_at_once=2)
    clock = elsewhere.clock
    stuck = set_state(elsewhere, begin_another(elsewhere, 101, **HELPED), "committing")
    idle = begin_another(elsewhere, 102)
    assert stuck is not None
    part = part_path(elsewhere, idle.identity)
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(b"a part")
    with raises("arrival.too-many"):
        move.begin(elsewhere)
    elsewhere.clock = lambda: clock() + 2 * 3600 * 1_000_000
    second = move.begin(elsewhere)
    assert elsewhere.database.read(lambda c: find_arrival(c, idle.identity)) is None
    assert not part.exists()
    with raises("arrival.too-many"):
        begin_another(elsewhere, 103)
    # An old node that never answers: its arrival is kept, since the secret is in it, and takes no place any more.
    elsewhere.clock = lambda: clock() + 25 * 3600 * 1_000_000
    assert set_state(elsewhere, second, "fetching") is not None
    begin_another(elsewhere, 104)
    with raises("arrival.too-many"):
        begin_another(elsewhere, 105)
    assert elsewhere.database.read(lambda c: find_arrival(c, stuck.identity)) == stuck


class Silence:
    """Other nodes, none of which answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, request: PeerRequest) -> PeerResponse:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError(request)


def test_old_nodes_that_never_answer_hold_up_nobody(move: Move, elsewhere: Node) -> None:
    for number in range(110, 118):
        begin_another(elsewhere, number, **HELPED)
    with FileReader(move.file) as reader:
        digest = reader.digest.hex()
    arrival = move.begin(elsewhere, request={"size": move.file.stat().st_size, "digest": digest, "older": False})
    part = part_path(elsewhere, move.identity)
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(move.file.read_bytes())
    assert set_state(elsewhere, arrival, "arriving") is not None
    others = Silence()

    async def work() -> None:
        worker = ArrivalWorker(elsewhere, others, Discovery(elsewhere, others))
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(30):
                while True:
                    found = await asyncio.to_thread(elsewhere.database.read, lambda c: find_arrival(c, move.identity))
                    if found is not None and found.state == "committing":
                        return
                    await asyncio.sleep(0.05)
        finally:
            running.cancel()

    asyncio.run(work())
    assert others.asked == 8
