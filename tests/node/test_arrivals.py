"""An identity that comes to a node: nobody sees it before one transaction lets it live there."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from inkgrove.client import Client, new_words
from inkgrove.core import IdentityId, SecretKey, identity_of, parse_hash, parse_words, sign_next
from inkgrove.federation.peers import LogOwner
from inkgrove.federation.replication import answer_own_relations, answer_own_shares
from inkgrove.messages import FurtherKey, encode_message
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import SignedMessage, create_identity, hash_password, read_control, show_identity, sign_in
from inkgrove.node.moving import (
    PartWriter,
    begin_arrival,
    file_request,
    give_up,
    part_path,
    read_progress,
    require_arrival,
    set_state,
    settle,
    take_in_file,
    tidy_arrivals,
)
from inkgrove.node.person_file import import_person, write_person_file
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import Connection
from inkgrove.store.federation import list_held_shares
from inkgrove.store.federation.own_logs import HeldShare
from inkgrove.store.node import StoredArrival, find_arrival, find_identity, find_name, keys_of, put_relation_state
from tests.store.postgres import PostgresServer
from tests.support.errors import raises
from tests.support.logs import key
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
