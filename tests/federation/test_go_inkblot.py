"""The nine defects of go-inkblot, Ink's only implementation: each is tried here and comes to nothing."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
from sqlalchemy import inspect, text

from examples.demo.ports import free_port
from inkgrove.core import Hash, SecretKey, identity_of, parse_hash
from inkgrove.federation.peers import HttpTransport, PeerRequest, sign_request
from inkgrove.federation.sharing import DELIVERIES_PATH
from inkgrove.messages import (
    DELIVERY_FORMAT,
    DELIVERY_MEDIA_TYPE,
    Create,
    IdentityDocument,
    Parcel,
    SchemaVersion,
    Update,
    cbor,
    encode_message,
)
from inkgrove.node.identity import Caller, parse_scope
from inkgrove.node.publishing import read_deliveries
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.reference import fold_views
from inkgrove.store.db import nonces
from inkgrove.store.federation import count_waiting_deliveries, find_remote_identity
from inkgrove.store.logs import find_entry, read_entries, register_schema
from inkgrove.store.node import keys_of
from tests.federation.conftest import World
from tests.support.federated import federation, states, until, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.peers import Elsewhere, run
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal, schema_id
from tests.support.views import held_by


def secret_of(world: World, letter: str, author: Any) -> SecretKey:
    return world.them.nodes[letter].node.secret_key(author)


def log_of(world: World, schema: str, secret: SecretKey, *subjects: str, log_id: int = 1) -> LogBuilder:
    """A log of somebody with a create for each subject."""
    log = LogBuilder(secret, log_id=log_id)
    for subject in subjects:
        log.append(encode_message(Create(SchemaVersion(*schema_id(schema), 2), {"subject": subject})))
    return log


def parcel_of(log: LogBuilder, instance: Hash) -> Parcel:
    return Parcel(
        instance, (), [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
    )


# 1 The key that verifies a message was read from the message.


def test_key_embedded_in_the_message_verifies_nothing(world: World) -> None:
    mail = world.mail()
    parcel = world.them.pack("a", mail)
    mallory = key(99)
    content: dict[str, Any] = {
        "form": DELIVERY_FORMAT,
        "via": bytes(world.jane.id),
        "parcels": [
            {
                "instance": bytes(parcel.instance),
                "recipients": [bytes(world.john.id)],
                "entries": [[entry] if payload is None else [entry, payload] for entry, payload in parcel.entries],
            }
        ],
    }
    node = world.them.nodes["d"].node

    async def send(body: bytes, *headers: tuple[str, str]) -> tuple[int, str]:
        """A delivery in jane's name with a key of mallory's own, which it brings along."""
        async with HttpTransport(node.settings) as transport:
            request = PeerRequest(
                "POST", f"https://john.b.ink{DELIVERIES_PATH}", (("Content-Type", DELIVERY_MEDIA_TYPE), *headers), body
            )
            signed = sign_request(
                request, mallory, sender="jane.a.ink", now=node.clock(), nonce=node.random_bytes(16).hex()
            )
            answer = await transport.send(signed)
            return answer.status, httpx.Response(answer.status, content=answer.body).json()["code"]

    own = mallory.public.hex()
    refused = (401, "federation.bad-signature")
    assert run(send(cbor.encode(content))) == refused
    assert run(send(cbor.encode(content), ("Key", own), ("X-Public-Key", own))) == refused
    assert run(send(cbor.encode({**content, "key": bytes(mallory.public)}))) == refused
    # Signed as it should be, what names a key of its own is still no delivery.
    answer = world.them.send_as(world.jane, world.john, cbor.encode({**content, "key": bytes(mallory.public)}))
    assert (answer.status, b"parcel.bad" in answer.body) == (422, True)
    assert world.held(mail) == [1, None, None, None]


def test_entry_that_is_signed_with_another_key_is_another_instance(world: World) -> None:
    """Who puts a key of their own into an entry of jane's has written something of their own, not of jane's."""
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    log = log_of(world, world.schema, secret_of(world, "d", world.bob.key), "Hello, says jane")
    assert world.them.fate(world.bob, world.john, parcel_of(log, parse_hash(mail))) == ("refused", "parcel.bad")
    assert world.them.fate(world.bob, world.john, parcel_of(log, log.hash(1))) == ("accepted", None)
    stored = world.them.nodes["b"].node.store.read(find_entry, log.hash(1))
    assert stored is not None
    assert identity_of(stored.entry.author) == world.bob.id


# 2 Instances were kept by a number that every foreign instance could have.


def test_foreign_instances_do_not_overwrite_each_other(world: World) -> None:
    logs = [
        log_of(world, world.schema, secret_of(world, letter, author), "Hello", log_id=7)
        for letter, author in (("c", world.alice.key), ("d", world.bob.key))
    ]
    alices, bobs = (log.hash(1) for log in logs)
    assert world.them.fate(world.alice, world.john, parcel_of(logs[0], alices)) == ("accepted", None)
    assert world.them.fate(world.bob, world.john, parcel_of(logs[1], bobs)) == ("accepted", None)
    # The bare number means bob's own, in his own log.
    logs[1].append(encode_message(Update(SchemaVersion(*schema_id(world.schema), 2), 1, {"subject": "Bob's"})))
    assert world.them.fate(world.bob, world.john, parcel_of(logs[1], bobs)) == ("accepted", None)
    assert [world.them.payloads("b", instance.hex()) for instance in (alices, bobs)] == [1, 2]
    assert rows_of(world, "b") == {alices: "Hello", bobs: "Bob's"}


def rows_of(world: World, letter: str) -> dict[Hash, str]:
    """Every row of the schema that a node holds, with its subject."""
    node = world.them.nodes[letter].node
    take_schema(world, node)
    (view,) = (view for view in fold_views(held_by(node.store)) if view.schema == schema_id(world.schema))
    return {row.instance: str(row.fields["subject"]) for row in view.rows}


def take_schema(world: World, node: Node) -> None:
    wanted = schema_id(world.schema)
    source = world.them.nodes["a"].node.store
    node.store.ingest([(item.entry.encoded, item.payload) for item in source.read(read_entries, *wanted)])


# 3 Whatever came was put in place of what was there.


def test_change_of_an_unknown_instance_creates_nothing(world: World) -> None:
    mail = world.mail()
    world.change(mail, fields={"subject": "Second"})
    whole = world.them.pack("a", mail)
    update_alone = Parcel(whole.instance, (), [(e, p if e == whole.entries[-1][0] else None) for e, p in whole.entries])
    before = world.them.count_entries("b")
    assert world.them.fate(world.jane, world.john, update_alone) == ("refused", "parcel.lacks-create")
    assert world.them.count_entries("b") == before
    assert rows_of(world, "b") == {}


def test_what_arrives_late_does_not_replace_what_is_newer(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    old = world.them.pack("a", mail)
    wait_for(world.jane, mail, john_b="delivered")
    world.change(mail, fields={"subject": "Second"})
    until(lambda: world.held(mail)[1] == 2)
    assert world.them.fate(world.jane, world.john, old) == ("accepted", None)
    assert rows_of(world, "b") == {parse_hash(mail): "Second"}
    world.jane.delete(f"/instances/{mail}")
    until(lambda: world.them.is_deleted("b", mail))
    assert world.them.fate(world.jane, world.john, old) == ("accepted", None)
    assert rows_of(world, "b") == {}


def test_create_that_comes_after_the_end_was_told_is_refused(world: World) -> None:
    mail = world.mail()
    create = world.them.pack("a", mail)
    world.jane.delete(f"/instances/{mail}")
    whole = world.them.pack("a", mail)
    end = Parcel(whole.instance, (), [(e, p if e == whole.entries[-1][0] else None) for e, p in whole.entries])
    assert world.them.fate(world.jane, world.john, end) == ("refused", "parcel.lacks-create")
    assert world.them.fate(world.jane, world.john, create) == ("refused", "parcel.ended-before")
    assert rows_of(world, "b") == {}


# 4 A push made every receiver push again.


def test_push_does_not_go_round_in_a_circle(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    circle = [
        (world.john, "alice.c.ink"),
        (world.alice, "bob.d.ink"),
        (world.bob, "john.b.ink"),
        (world.bob, "jane.a.ink"),
    ]
    for sender, to in circle:
        answer = sender.post(f"/instances/{mail}/pass-on", json={"recipients": [to]})
        assert answer.status_code == 200, answer.text
        until(lambda sender=sender: set(states(sender, mail).values()) <= {"delivered"})  # type: ignore[misc]
    before = received(world)
    world.change(mail, fields={"subject": "Round and round"})
    until(lambda: world.held(mail) == [2, 2, 2, 2] and waiting(world) == 0)
    # jane to john, john to alice, alice to bob, bob to john: who has it sends it no further.
    until(lambda: received(world) - before == 4)
    time.sleep(0.5)
    assert received(world) - before == 4


def received(world: World) -> int:
    """How many signed requests all nodes together have taken in."""

    def count(node: RunningNode) -> int:
        query = nonces.select()
        return len(node.node.database.read(lambda c: c.execute(query).all()))

    return sum(map(count, world.them.nodes.values()))


def waiting(world: World) -> int:
    return sum(node.node.database.read(count_waiting_deliveries) for node in world.them.nodes.values())


# 5 Anybody could list what a node had.


def test_nobody_lists_anything_without_being_somebody(world: World) -> None:
    secret = world.mail(recipients=["john.b.ink"])
    public = world.mail(access={"mode": "public"})
    wait_for(world.jane, secret, john_b="delivered")
    node = world.them.nodes["a"]
    node.node.store.write(register_schema, schema_id(world.schema))
    build_views(node.node)

    def listed(client: httpx.Client) -> set[str]:
        return {row["instance"] for row in client.get(f"/views/{world.schema}").json()["rows"]}

    assert listed(node.anybody) == {public}
    assert listed(world.jane) == {public, secret}
    for path in (
        "/me",
        "/me/relations",
        "/me/requests",
        "/me/services",
        "/me/accesses",
        f"/instances/{secret}/deliveries",
    ):
        assert refusal(node.anybody.get(path)) == (401, "auth.required"), path
    assert refusal(node.anybody.get(f"/instances/{secret}")) == (404, "view.unknown-instance")
    for path in ("/identities", "/instances", "/entries", DELIVERIES_PATH, "/federation/relations"):
        assert node.anybody.get(path).status_code == 405, path


# 6 Whoever posted an identity replaced the key of the one of that name.


def test_key_is_not_substituted_by_posting_an_identity(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")
    node = world.them.nodes["b"].node
    before = node.database.read(lambda c: (find_remote_identity(c, world.jane.id), keys_of(c, world.jane.id)))
    log = LogBuilder(secret_of(world, "d", world.bob.key), log_id=0)
    log.append(encode_message(IdentityDocument("jane.a.ink", "https://bob.d.ink")))
    parcel = Parcel(log.hash(1), (), [(log.entry(1).encoded, log.payloads[0])])
    assert world.them.fate(world.bob, world.john, parcel) == ("refused", "parcel.bad")
    assert node.database.read(lambda c: (find_remote_identity(c, world.jane.id), keys_of(c, world.jane.id))) == before
    assert node.store.read(find_entry, log.hash(1)) is None


def test_name_that_is_taken_is_not_given_to_another_key(world: World) -> None:
    home = world.them.nodes["a"]
    shown = home.anybody.get("/identities/jane.a.ink").json()
    answer = home.anybody.post("/identities", json={"fqdn": "jane.a.ink", "password": "correct horse battery"})
    assert refusal(answer) == (409, "identity.exists")
    assert home.anybody.get("/identities/jane.a.ink").json() == shown


# 7 The token of the user was sent to wherever an address led.


def test_no_token_is_sent_to_another_node(tmp_path: Path) -> None:
    port = free_port()
    home = tmp_path / "a"
    home.mkdir()
    settings = NodeSettings(registration="open", domains=("a.ink",), resolve=(f"*.eve.ink=127.0.0.1:{port}",))
    with RunningNode(home, home, settings) as running, listening(port) as heard:
        running.create("jane.a.ink")
        jane = running.sign_in("jane.a.ink")
        token = jane.headers["Authorization"].removeprefix("Bearer ")
        schema = make_schema(jane)
        mail = create(jane, schema, recipients=["mallory.eve.ink"])["instance"]
        # What is told of relations goes first: a node that fails at it hears of nothing else.
        until(lambda: any(b"POST /federation/deliveries" in request for request in heard))
        jane.put("/me/following/mallory.eve.ink", json={})
        until(lambda: any(b"POST /federation/relations" in request for request in heard))
        for request in heard:
            head = request.split(b"\r\n\r\n")[0].lower()
            assert b"authorization:" not in head
            assert b"cookie:" not in head
            assert token.encode() not in request
        assert states_of(jane, mail) == {"waiting"}


def states_of(client: httpx.Client, instance: str) -> set[str]:
    return {item["state"] for item in client.get(f"/instances/{instance}/deliveries").json()["deliveries"]}


@contextmanager
def listening(port: int) -> Iterator[list[bytes]]:
    """A node that proves who it is and keeps every request it hears; to whatever is sent it answers 500."""
    heard: list[bytes] = []
    page = Elsewhere("mallory.eve.ink").page()
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(0.1)
    is_over = False

    def read(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def serve() -> None:
        while not is_over:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                request = read(connection)
                heard.append(request)
                status, body = ("200 OK", page) if request.startswith(b"GET ") else ("500 No", b"")
                lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", "", ""]
                connection.sendall("\r\n".join(lines).encode() + body)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        is_over = True
        thread.join()
        server.close()


# 8 A push that failed was lost, and nobody knew.


def test_push_is_not_forgotten_when_both_nodes_go_down(tmp_path: Path) -> None:
    with federation(tmp_path, "ab") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        wait_for(jane, create(jane, schema, recipients=["john.b.ink"])["instance"], john_b="delivered")
        down = them.nodes["b"]
        down.__exit__()
        mail = create(jane, schema, recipients=["john.b.ink"])["instance"]
        assert states(jane, mail) == {"john.b.ink": "waiting"}
        sender = them.nodes["a"]
        sender.__exit__()
        for letter, node in (("a", sender), ("b", down)):
            them.nodes[letter] = them.stack.enter_context(RunningNode(node.place, node.home, node.settings, node.port))
        until(lambda: states(jane, mail) == {"john.b.ink": "delivered"})
        assert them.payloads("b", mail) == 1


# 9 Who was related to whom was told to everybody.


def test_relations_are_nobody_elses_business(strangers: World) -> None:
    world = strangers
    world.them.follow(world.john, world.jane)
    world.them.follow(world.alice, world.jane)
    mail = world.mail(recipients=["john.b.ink", "alice.c.ink"])
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    post = world.mail(access={"mode": "relations"})
    wait_for(world.jane, post, john_b="delivered", alice_c="delivered")
    # john's node has not so much as heard of alice, nor alice's of john.
    assert places_of(world.them.nodes["b"].node, world.alice.id) == []
    assert places_of(world.them.nodes["c"].node, world.john.id) == []
    assert places_of(world.them.nodes["a"].node, world.alice.id) != []
    # Nor does jane's node tell: not to anybody, not to john.
    node = world.them.nodes["a"]
    shown = [
        node.anybody.get("/.well-known/inkgrove", headers={"Host": "jane.a.ink"}),
        node.anybody.get("/identities/jane.a.ink"),
    ]
    for answer in shown:
        assert answer.status_code == 200, answer.text
        assert world.alice.id.hex() not in answer.text
        assert "alice.c.ink" not in answer.text
    for path in (f"/instances/{mail}/deliveries", f"/instances/{post}/deliveries"):
        assert refusal(world.john.get(path)) == (404, "view.unknown-instance")
    # A service of jane's learns from deliveries whom she sent something by name; her followers only with the scope.
    jane, read = world.jane.id, f"schema:{world.schema}:read"
    for scopes, told in ((read, set()), (f"{read} relations:read", {"john.b.ink", "alice.c.ink"})):
        parsed = frozenset(map(parse_scope, scopes.split()))
        service = Caller(jane, grant=1, client="mailer", scopes=parsed)
        for instance, expected in ((mail, {"john.b.ink", "alice.c.ink"}), (post, told)):
            found = read_deliveries(node.node, service, parse_hash(instance))
            assert {fqdn for _, fqdn in found} == expected
    mine = world.john.get("/me/relations").json()["relations"]
    assert [(item["side"], item["identity"]) for item in mine] == [("following", world.jane.id.hex())]


def places_of(node: Node, what: bytes) -> list[str]:
    """The tables of a node that mention some bytes, as they are or in hex."""

    def is_in(value: object) -> bool:
        return what in value if isinstance(value, bytes) else isinstance(value, str) and what.hex() in value

    with node.database.reading() as connection:
        return [
            table
            for table in inspect(connection).get_table_names()
            if any(is_in(value) for row in connection.execute(text(f'SELECT * FROM "{table}"')) for value in row)
        ]
