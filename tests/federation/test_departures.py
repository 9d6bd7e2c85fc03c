"""An identity that leaves its node for another one, as the old node sees it: states, what rests, and the end.

Node a is the old one. The new one, b, is a real node too; what it asks of a is asked by hand here.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client import Client
from inkgrove.core import IdentityId, SecretKey, decode_entry, sign_entry
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import Discovery, HttpTransport, PeerRequest, PeerResponse, sign_request
from inkgrove.federation.sharing.recipients import find_leaving, read_leaving
from inkgrove.messages import (
    MOVE_MEDIA_TYPE,
    IdentityDocument,
    KeyOf,
    MoveCommit,
    MoveOffer,
    cbor,
    decode_message,
    decode_move_answer,
    decode_move_offer,
    encode_message,
    encode_move_commit,
)
from inkgrove.node.identity import apply_identity_log, change_identity, create_identity, create_with_words, read_control
from inkgrove.node.moving import Departures, begin_arrival
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import RemoteIdentity, read_backoffs, retry_unapproved, sealed_authors
from inkgrove.store.node import (
    find_identity,
    forget_secret,
    keep_secret,
    lives_here,
    remove_departure,
    sealed_key,
    set_home,
)
from tests.support.federated import until
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.peers import run
from tests.support.publishing import create, make_schema

NUMBERS = count(1)
MOVES = "application/vnd.inkgrove.relation+cbor"


def follow(to: IdentityId) -> bytes:
    return cbor.encode({"form": "inkgrove relation 1", "to": bytes(to), "move": "request"})


DAY = 86_400_000_000


class SteppingClock:
    """The time of the system, and as much more as a test has added."""

    def __init__(self, clock: Any) -> None:
        self._clock, self.more = clock, 0

    def __call__(self) -> int:
        return int(self._clock()) + self.more


@dataclass
class Leaver:
    """Somebody on node a, who can sign in with a password."""

    world: "World"
    fqdn: str
    id: IdentityId
    client: httpx.Client
    words: str | None = None

    @property
    def there(self) -> str:
        return self.fqdn.replace(".a.ink", ".b.ink")

    def ask(self, **facts: Any) -> httpx.Response:
        body = {"endpoint": f"https://{self.there}", "password": PASSWORD, **facts}
        return self.client.post("/me/move", json=body)

    def leave(self, **facts: Any) -> str:
        answer = self.ask(**facts)
        assert answer.status_code == 201, answer.text
        grant: str = answer.json()["grant"]
        return grant

    def cancel(self, password: str = PASSWORD) -> httpx.Response:
        return self.client.request("DELETE", "/me/move", json={"password": password})


@dataclass
class World:
    a: RunningNode
    b: RunningNode
    clock: SteppingClock

    def leaver(self, *, has_words: bool = True) -> Leaver:
        fqdn = f"jane{next(NUMBERS)}.a.ink"
        if has_words:
            made = create_with_words(self.a.node, fqdn, PASSWORD)
            return Leaver(self, fqdn, made.identity.id, self.a.sign_in(fqdn), made.words)
        return Leaver(self, fqdn, create_identity(self.a.node, fqdn, PASSWORD).id, self.a.sign_in(fqdn))

    def person(self, letter: str) -> Person:
        return Person(getattr(self, letter), f"john{next(NUMBERS)}.{letter}.ink")

    def ask(
        self, jane: Leaver, path: str, body: bytes = b"", *, key: SecretKey | None = None, headers: Any = ()
    ) -> PeerResponse:
        """What node b asks of node a, signed with its key."""
        given = (*headers, ("Content-Type", MOVE_MEDIA_TYPE)) if body else tuple(headers)
        method = "POST" if body else "GET"
        request = PeerRequest(method, f"https://{jane.fqdn}/federation/moves/{path}", given, body)
        node = self.b.node
        secret = key or load_node_key(node)
        nonce = node.random_bytes(16).hex()
        signed = sign_request(request, secret, sender=jane.there, now=self.clock(), nonce=nonce)

        async def work() -> PeerResponse:
            async with HttpTransport(node.settings) as transport:
                return await transport.send(signed)

        return run(work())

    def offer(self, jane: Leaver, grant: str) -> MoveOffer:
        answer = self.ask(jane, grant)
        assert answer.status == 200, answer.body
        return decode_move_offer(answer.body)

    def ready(self, jane: Leaver, grant: str) -> MoveOffer:
        offer: MoveOffer = until(lambda: found if (found := self.offer(jane, grant)).state == "ready" else None)
        return offer

    def commit(self, jane: Leaver, grant: str, controller: SecretKey, digest: bytes) -> PeerResponse:
        return self.ask(jane, f"{grant}/commit", encode_move_commit(MoveCommit(key_of(controller, jane.id), digest)))

    def move(self, jane: Leaver, **facts: Any) -> tuple[str, SecretKey, PeerResponse]:
        grant = jane.leave(**facts)
        controller = new_key()
        return grant, controller, self.commit(jane, grant, controller, self.ready(jane, grant).digest)


def new_key() -> SecretKey:
    return SecretKey.from_seed(b"departures" + next(NUMBERS).to_bytes(22, "big"))


def key_of(key: SecretKey, identity: IdentityId) -> tuple[bytes, bytes]:
    payload = encode_message(KeyOf(identity))
    return sign_entry(key, payload, log_id=0, seq_num=1).encoded, payload


def code(answer: httpx.Response | PeerResponse) -> tuple[int, str]:
    if isinstance(answer, PeerResponse):
        return answer.status, httpx.Response(answer.status, content=answer.body).json()["code"]
    return answer.status_code, answer.json()["code"]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("departures")
    here, there = free_port(), free_port()
    leads = (f"*.a.ink=127.0.0.1:{here}", f"*.b.ink=127.0.0.1:{there}")
    settings = NodeSettings(registration="open", domains=("a.ink",), replication_seconds=0, resolve=leads)
    settings = replace(settings, registrations_per_address=1_000)
    for letter in "ab":
        (folder / letter).mkdir()
    place: Path | str = folder / "a"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres").create_store(f"departures{next(NUMBERS)}")
    with (
        RunningNode(place, folder / "a", settings, here) as a,
        RunningNode(folder / "b", folder / "b", replace(settings, domains=("b.ink",)), there) as b,
    ):
        clock = SteppingClock(a.node.clock)
        a.node.clock = clock
        yield World(a, b, clock)


def is_here(node: Node, identity: IdentityId) -> bool:
    return node.database.read(lambda connection: lives_here(connection, identity))


# Asking for a grant


def test_grant_is_given_for_the_password_to_a_node_that_has_signed_its_endpoint(world: World) -> None:
    jane = world.leaver()
    assert jane.client.get("/me/move").json()["state"] == "here"
    assert code(jane.ask(password="another password")) == (401, "auth.bad-password")
    assert code(jane.ask(endpoint="https://nobody.dead.ink")) == (422, "move.not-a-node")
    assert code(jane.ask(endpoint="https://jane.b.ink/elsewhere")) == (422, "move.not-a-node")
    assert code(jane.ask(endpoint=f"https://{jane.fqdn}", fqdn=jane.fqdn)) == (422, "move.same-node")
    assert code(jane.ask(fqdn="no name")) == (422, "identity.bad-name")
    assert code(jane.cancel()) == (404, "move.none")
    answer = jane.ask()
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    assert (shown["lives_at"], shown["fqdn"]) == (f"https://{jane.fqdn}", jane.there)
    assert code(jane.ask()) == (409, "identity.leaving")
    found = jane.client.get("/me/move").json()
    assert (found["state"], found["endpoint"], found["expires"]) == (
        "leaving",
        f"https://{jane.there}",
        shown["expires"],
    )


def test_first_key_that_nobody_else_has_is_not_destroyed_by_accident(world: World) -> None:
    jane = world.leaver(has_words=False)
    assert code(jane.ask()) == (409, "move.without-words")
    assert jane.client.get("/me/move").json()["state"] == "here"
    grant, controller, answer = world.move(jane, without_words=True)
    assert answer.status == 200
    entry, payload = decode_move_answer(answer.body).document
    document = decode_message(payload or b"")
    assert isinstance(document, IdentityDocument)
    assert document.under is None
    first = decode_entry(entry).author
    ended = {item.key: item.revoked for item in document.keys}
    assert ended[first] is not None
    assert document.controller == controller.public
    assert ended[controller.public] is None
    assert world.a.node.database.read(lambda c: sealed_authors(c, jane.id)) == []
    assert world.offer(jane, grant).state == "moved"


def test_client_that_keeps_the_first_key_moves_by_itself(world: World) -> None:
    jane = world.leaver()
    world.a.node.database.write(lambda c: forget_all(c, jane.id))
    assert code(jane.ask()) == (422, "identity.no-key-here")


def forget_all(connection: Any, identity: IdentityId) -> None:
    for key in sealed_authors(connection, identity):
        forget_secret(connection, key)


# What rests


def test_nothing_is_signed_or_changed_while_leaving(world: World) -> None:
    jane = world.leaver()
    schema = make_schema(jane.client)
    before = create(jane.client, schema, fields={"subject": "before"})["instance"]
    jane.leave()
    body = {"schema": schema, "fields": {"subject": "now"}}
    merge = {"Content-Type": "application/merge-patch+json"}
    refused = [
        jane.client.post("/instances", json=body),
        jane.client.patch(f"/instances/{before}", json={"fields": {"subject": "x"}}, headers=merge),
        jane.client.delete(f"/instances/{before}"),
        jane.client.patch("/me", json={"name": "Jane"}),
        jane.client.post("/schemas", json={"name": "more", "description": "x"}),
        jane.client.put(f"/me/senders/{jane.fqdn}"),
        jane.client.request("DELETE", "/me", json={"password": PASSWORD}),
        jane.client.post("/blobs", content=b"x", headers={"Content-Type": "text/plain"}),
    ]
    assert {code(answer) for answer in refused} == {(409, "identity.leaving")}
    assert jane.client.get(f"/instances/{before}").status_code in (200, 404)  # there is no view, and reading is free
    assert jane.cancel("another password").status_code == 401
    assert jane.cancel().status_code == 204
    assert jane.client.post("/instances", json=body).status_code == 201
    assert jane.client.get("/me/move").json()["state"] == "here"


def test_outbox_rests_and_goes_on_when_the_move_is_taken_back(world: World) -> None:
    jane = world.leaver()
    with world.person("b") as john:
        schema = make_schema(jane.client)
        sent = create(jane.client, schema, fields={"subject": "1"}, recipients=[john.fqdn])["instance"]

        def state(instance: str) -> str:
            (item,) = jane.client.get(f"/instances/{instance}/deliveries").json()["deliveries"]
            found: str = item["state"]
            return found

        until(lambda: state(sent) == "held")
        jane.leave()
        # As if it had been queued at the moment in which she began to leave.
        world.a.node.database.write(lambda c: retry_unapproved(c, jane.id, john.id, world.clock()))
        with world.person("a") as other:  # whose mail goes on
            note = create(other, make_schema(other), fields={"subject": "2"}, recipients=[john.fqdn])["instance"]
            until(lambda: other.get(f"/instances/{note}/deliveries").json()["deliveries"][0]["state"] == "held")
        assert state(sent) == "waiting"
        assert jane.cancel().status_code == 204
        until(lambda: state(sent) == "held")


def test_mail_from_elsewhere_stays_with_its_sender(world: World) -> None:
    jane = world.leaver()
    with world.person("b") as john:
        schema = make_schema(john)
        jane.leave()
        mail = create(john, schema, fields={"subject": "for later"}, recipients=[jane.fqdn])["instance"]

        def state() -> dict[str, Any]:
            (item,) = john.get(f"/instances/{mail}/deliveries").json()["deliveries"]
            found: dict[str, Any] = item
            return found

        until(lambda: "status 503" in backoffs(world.b.node))
        assert state()["state"] == "waiting"
        assert jane.client.get("/me/requests").json() == {"requests": []}
        jane.cancel()
        until(lambda: state()["state"] == "held")
        assert mail in jane.client.get("/me/requests").text


def backoffs(node: Node) -> str:

    return str(node.database.read(read_backoffs))


def test_mail_from_the_same_node_waits_for_the_move_or_its_end(world: World) -> None:
    jane = world.leaver()
    with world.person("a") as john:
        schema = make_schema(john)
        jane.leave()
        mail = create(john, schema, fields={"subject": "for later"}, recipients=[jane.fqdn])["instance"]
        (item,) = john.get(f"/instances/{mail}/deliveries").json()["deliveries"]
        assert item["state"] == "waiting"
        assert john.put(f"/me/following/{jane.fqdn}", json={}).json() == {"state": "requested"}
        assert jane.client.get("/me/requests").json() == {"requests": []}
        assert jane.cancel().status_code == 204
        until(lambda: john.get(f"/instances/{mail}/deliveries").json()["deliveries"][0]["state"] == "delivered")
        until(lambda: [item["state"] for item in jane.client.get("/me/relations").json()["relations"]] == ["requested"])


def test_moves_in_relations_from_elsewhere_wait(world: World) -> None:
    jane = world.leaver()
    with world.person("b") as john:
        jane.leave()
        john.put(f"/me/following/{jane.fqdn}", json={})
        until(lambda: "status 503" in backoffs(world.b.node))
        assert jane.client.get("/me/relations").json()["relations"] == []
        jane.cancel()
        until(lambda: jane.client.get("/me/relations").json()["relations"])


# The end of it


def test_leaving_is_over_after_a_day(world: World) -> None:
    jane = world.leaver()
    grant = jane.leave()
    offer = world.ready(jane, grant)
    departures = Departures(world.a.node)
    world.clock.more += DAY - 60_000_000
    departures.tidy()
    assert departures.show(jane.id).state == "leaving"
    world.clock.more += 120_000_000
    assert code(world.commit(jane, grant, new_key(), offer.digest)) == (404, "move.unknown-grant")
    assert departures.show(jane.id).state == "leaving"  # nobody has looked yet, and nothing is signed
    departures.tidy()
    assert departures.show(jane.id).state == "here"
    assert code(world.commit(jane, grant, new_key(), offer.digest)) == (404, "move.unknown-grant")
    assert is_here(world.a.node, jane.id)
    change_identity(world.a.node, jane.id, name="Jane")
    # A clock that goes back makes nobody leave for longer.
    world.clock.more = 0
    jane.leave()
    world.clock.more -= DAY
    departures.tidy()
    assert departures.show(jane.id).state == "here"
    world.clock.more = 0


def test_move_is_done_once_and_answered_alike_ever_after(world: World) -> None:
    jane = world.leaver()
    schema = make_schema(jane.client)
    create(jane.client, schema, fields={"subject": "mine"})
    grant, controller, answer = world.move(jane)
    assert answer.status == 200, answer.body
    digest = bytes(64)  # is not asked for any more: the answer is the same
    assert world.commit(jane, grant, controller, digest).body == answer.body
    assert code(world.commit(jane, grant, new_key(), digest)) == (409, "move.done-before")
    node = world.a.node
    entry, payload = decode_move_answer(answer.body).document
    document = decode_message(payload or b"")
    assert isinstance(document, IdentityDocument)
    old = decode_entry(entry).author
    assert (document.fqdn, document.endpoint, document.controller) == (
        jane.there,
        f"https://{jane.there}",
        controller.public,
    )
    keys = {item.key: item.revoked for item in document.keys}
    assert keys[controller.public] is None
    ends = keys[old]
    assert ends is not None
    assert {(end.log_id, end.last) for end in ends if end.log_id} == {(1, 2), (2, 1)}  # a schema, and its instance
    assert all(end.hash is not None for end in ends)
    assert node.database.read(lambda c: sealed_authors(c, jane.id)) == []
    assert not is_here(node, jane.id)
    first = node.database.read(lambda c: read_control(c, first_key(node, jane.id)))
    assert first.document == document
    assert first.controller == controller.public
    # Reading is free, and nothing else.
    assert jane.client.get("/me/move").json()["state"] == "moved"
    assert code(jane.client.post("/instances", json={"schema": schema, "fields": {}})) == (
        409,
        "identity.lives-elsewhere",
    )
    assert code(jane.client.patch("/me", json={"name": "x"}))[1] in ("identity.no-key-here", "identity.lives-elsewhere")
    assert code(jane.ask()) == (409, "identity.lives-elsewhere")
    assert code(jane.cancel()) == (404, "move.none")


def first_key(node: Node, identity: IdentityId) -> Any:
    hosted = node.database.read(lambda c: find_identity(c, identity))
    assert hosted is not None
    return hosted.key


def test_what_is_wrong_with_a_commit_is_told_and_changes_nothing(world: World) -> None:
    jane = world.leaver()
    grant = jane.leave()
    offer = world.ready(jane, grant)
    controller, other = new_key(), world.leaver()
    path = f"{grant}/commit"

    def commit(key_of_entry: tuple[bytes, bytes], digest: bytes = offer.digest) -> tuple[int, str]:
        return code(world.ask(jane, path, encode_move_commit(MoveCommit(key_of_entry, digest))))

    assert commit(key_of(controller, jane.id), bytes(64)) == (409, "move.wrong-digest")
    assert commit(key_of(controller, other.id)) == (422, "move.bad-key")
    entry, payload = key_of(controller, jane.id)
    assert commit((entry[:-1] + bytes([entry[-1] ^ 1]), payload)) == (422, "entry.bad-signature")
    assert commit((entry, payload + b"x"))[0] == 422
    assert code(world.ask(jane, path, b"no CBOR")) == (422, "parcel.bad-move")
    body = encode_move_commit(MoveCommit((entry, payload), offer.digest))
    assert code(world.ask(jane, path, body, key=new_key())) == (401, "federation.bad-signature")
    assert code(world.ask(jane, "ink_g_" + "00" * 32 + "/commit", body)) == (404, "move.unknown-grant")
    assert code(world.ask(jane, "ink_s_" + "00" * 32)) == (404, "move.unknown-grant")
    assert is_here(world.a.node, jane.id) is False  # as far as others are concerned, while she is leaving
    assert jane.cancel().status_code == 204
    assert is_here(world.a.node, jane.id)
    assert commit((entry, payload)) == (404, "move.unknown-grant")
    assert code(world.ask(jane, grant)) == (404, "move.unknown-grant")


def test_file_comes_in_ranges_to_the_new_node_alone(world: World) -> None:
    jane = world.leaver()
    grant = jane.leave()
    offer = world.ready(jane, grant)
    whole = world.ask(jane, f"{grant}/file")
    assert (whole.status, len(whole.body)) == (200, offer.size)
    rest = world.ask(jane, f"{grant}/file", headers=(("Range", "bytes=100-"),))
    assert (rest.status, rest.body) == (206, whole.body[100:])
    assert world.ask(jane, f"{grant}/file", headers=(("Range", f"bytes={offer.size}-"),)).status == 416
    assert world.ask(jane, f"{grant}/file", key=new_key()).status == 401
    assert httpx.get(f"{world.a.url}/federation/moves/{grant}/file", headers={"Host": jane.fqdn}).status_code == 401


def test_who_has_moved_is_proved_to_be_elsewhere(world: World) -> None:
    jane = world.leaver()
    with world.person("b") as john:
        _, _, answer = world.move(jane)
        assert answer.status == 200
        request = PeerRequest(
            "POST", f"https://{jane.fqdn}/federation/relations", (("Content-Type", MOVES),), follow(jane.id)
        )
        signed = sign_request(request, load_node_key(world.b.node), sender=john.fqdn, now=world.clock(), nonce="n" * 20)

        async def work() -> PeerResponse:
            async with HttpTransport(world.b.node.settings) as transport:
                return await transport.send(signed)

        told = run(work())
        assert code(told) == (410, "identity.moved")
        (proof,) = httpx.Response(410, content=told.body).json()["identities"]
        assert proof["id"] == jane.id.hex()
        entries = {item["entry"] for log in (proof["log"], *proof["speakers"]) for item in log}
        assert b64encode(decode_move_answer(answer.body).document[0]).decode() in entries


def test_new_node_that_was_put_back_gets_the_answer_again(world: World) -> None:
    """Its database is of before it asked for the end: the arrival is there, with the only key that there is now."""
    jane, node = world.leaver(has_words=False), world.b.node
    first_key = world.a.node.database.read(lambda c: find_identity(c, jane.id)).key  # type: ignore[union-attr]

    async def look_up() -> None:
        async with HttpTransport(node.settings) as transport:
            await Discovery(node, transport).find_home(first_key, jane.fqdn)

    run(look_up())
    grant, controller, answer = world.move(jane, without_words=True)
    assert answer.status == 200, answer.body
    begin_arrival(
        node,
        first_key,
        controller,
        way="helped",
        fqdn=jane.there,
        password=None,
        request={"lives_at": f"https://{jane.fqdn}", "has_words": False},
        grant=grant.encode(),
        replaces=True,
    )
    until(lambda: is_here(node, jane.id))
    assert node.database.read(lambda c: sealed_authors(c, jane.id)) == [controller.public]


def test_words_take_back_what_somebody_else_has_begun(world: World) -> None:
    jane = world.leaver()
    grant = jane.leave()  # with a stolen password
    offer = world.ready(jane, grant)
    with Client(world.a.url) as client:
        client.recover(jane.fqdn, "a better password", jane.words or "")
    assert code(world.commit(jane, grant, new_key(), offer.digest)) == (404, "move.unknown-grant")
    assert is_here(world.a.node, jane.id)


def test_node_that_was_restored_does_not_take_itself_for_the_home(world: World) -> None:
    jane, node = world.leaver(has_words=False), world.a.node
    first = first_key(node, jane.id)
    sealed = node.database.read(lambda c: sealed_key(c, first))
    assert sealed is not None
    world.move(jane, without_words=True)

    def restore(connection: Any) -> None:
        """Let the tables be as they were before; log 0 is asked for from others, and is as it is now."""
        keep_secret(connection, first, sealed)
        remove_departure(connection, jane.id)
        set_home(connection, jane.id, f"https://{jane.fqdn}", lives_here=True)
        apply_identity_log(connection, first)

    node.database.write(restore)
    assert not is_here(node, jane.id)


def test_node_that_says_of_others_that_they_leave_is_not_believed() -> None:
    john = RemoteIdentity(
        IdentityId(bytes(32)),
        "john.b.ink",
        "https://john.b.ink",
        new_key().public,
        1,
        new_key().public,
        fetched=0,
        expires=0,
    )
    body = {"code": "identity.recipient-leaving", "identities": [bytes(range(32)).hex(), john.id.hex()]}
    answer = PeerResponse(503, (), json.dumps(body).encode())
    error = FederationError("federation.bad-answer", "no", **read_leaving(answer))
    assert find_leaving(error, [john]) == [john.id]
    assert find_leaving(error, []) == []
    for bad in (
        b"",
        b"[]",
        b"no JSON",
        json.dumps({**body, "identities": [1]}).encode(),
        json.dumps({"code": 1}).encode(),
    ):
        assert read_leaving(PeerResponse(503, (), bad)) == {}
    assert read_leaving(PeerResponse(500, (), answer.body)) == {}
