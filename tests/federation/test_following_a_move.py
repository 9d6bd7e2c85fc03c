"""Somebody moves to another node: what third parties do who have to do with them (docs/protocol.md section 7.10.3).

Jane lives on node a and moves to node b; her first key is with the test. John lives on node j. Each node is real.
"""

import json
import signal
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.core import IdentityId, SecretKey, hash_entry, identity_of, parse_hash
from inkgrove.core.errors import ParcelError
from inkgrove.federation.errors import PeerUnreachable, UnprovedMove, WrongName
from inkgrove.federation.peers import (
    DOCUMENT_MEDIA_TYPE,
    DOCUMENTS_PATH,
    Discovery,
    DocumentProof,
    HttpTransport,
    PeerResponse,
    ProofEntry,
    encode_document,
    make_signed_request,
    read_document_proof,
    receive_document,
    render_document_proof,
    take_document,
    take_moved,
)
from inkgrove.federation.sharing import tell_of_new_document
from inkgrove.messages import FurtherKey, IdentityDocument, KeyOf, encode_message
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log, find_newest_document
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import Connection, deliveries
from inkgrove.store.federation import (
    RemoteIdentity,
    find_remote_identity,
    list_notice_targets,
    list_relocations,
    read_backoffs,
)
from inkgrove.store.logs import find_log, lend_reference, read_entries
from inkgrove.store.node import add_shares, find_relation_state, put_relation_state, sealed_key, shares_of
from inkgrove.store.views import put_blob
from tests.support.adopting import bring, signed
from tests.support.federated import states, until
from tests.support.logs import LogBuilder
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.peers import run
from tests.support.publishing import create, make_schema
from tests.support.tiers import amount

NUMBERS = count(1)
DAY = 86_400_000_000
LETTERS = "abj"


def new_log(log_id: int = 0) -> LogBuilder:
    return LogBuilder(SecretKey.from_seed(b"follow" + next(NUMBERS).to_bytes(26, "big")), log_id=log_id)


def document(fqdn: str, **facts: Any) -> IdentityDocument:
    return IdentityDocument(fqdn, f"https://{fqdn}", **facts)


@dataclass
class World:
    """Node a, from which people move, node b, to which they do, and node j of those who have to do with them."""

    folder: Path
    settings: dict[str, NodeSettings]
    ports: dict[str, int]
    places: dict[str, Path | str]
    running: dict[str, RunningNode] = field(default_factory=dict)

    def start(self, letters: str = LETTERS) -> None:
        for letter in letters:
            home = self.folder / letter
            home.mkdir(exist_ok=True)
            self.running[letter] = RunningNode(
                self.places.get(letter, home), home, self.settings[letter], self.ports[letter]
            )
            self.running[letter].__enter__()

    def stop(self, letters: str) -> None:
        for letter in letters:
            if letter in self.running:
                self.running.pop(letter).__exit__()

    def node(self, letter: str) -> Node:
        return self.running[letter].node

    def jane(self) -> "Jane":
        """Somebody new on node a."""
        log, number = new_log(), next(NUMBERS)
        jane = Jane(self, log, f"jane{number}.a.ink", f"jane{number}.b.ink")
        assert bring(self.running["a"].anybody, log, jane.old, signed(log, document(jane.old))).status_code == 201
        return jane

    def john(self) -> Person:
        return Person(self.running["j"], f"john{next(NUMBERS)}.j.ink")

    def find(self, letter: str, fqdn: str, **facts: Any) -> RemoteIdentity:
        """What a node finds under a name now."""

        async def work() -> RemoteIdentity:
            async with HttpTransport(self.node(letter).settings) as transport:
                return await Discovery(self.node(letter), transport).find(fqdn, **facts)

        return run(work())

    def known(self, identity: IdentityId, letter: str = "j") -> RemoteIdentity | None:
        return self.node(letter).database.read(lambda c: find_remote_identity(c, identity))

    def relate(self, letter: str, follower: IdentityId, followee: IdentityId) -> None:
        self.node(letter).database.write(lambda c: put_relation_state(c, follower, followee, "accepted", 0))


@dataclass
class Jane:
    """Somebody who moves; `log` is log 0 of their first key."""

    world: World
    log: LogBuilder
    old: str
    new: str

    @property
    def id(self) -> IdentityId:
        return identity_of(self.log.secret.public)

    def arrive(self) -> httpx.Client:
        """Come to node b with the first key alone, as from a dead host: log 0 so far comes from a friend."""
        node = self.world.node("b")
        node.store.ingest(zip((entry.encoded for entry in self.log.entries), self.log.payloads, strict=True))
        node.database.write(lambda c: apply_identity_log(c, self.log.secret.public))
        answer = bring(self.world.running["b"].anybody, self.log, self.new, signed(self.log, document(self.new)))
        assert answer.status_code == 201, answer.text
        return self.world.running["b"].sign_in(self.new)

    def tell(self, *others: Person) -> None:
        """Let node b tell everybody whom it has a relation with, and these."""
        for other in others:
            self.world.find("b", other.fqdn)
            self.world.relate("b", other.id, self.id)
        tell_of_new_document(self.world.node("b"), self.id)

    def proof(self) -> DocumentProof:
        """What proves the newest document, as the test has it."""
        entries = zip(self.log.entries, self.log.payloads, strict=True)
        return DocumentProof(self.id, tuple(ProofEntry(entry.encoded, payload) for entry, payload in entries))


@contextmanager
def making_world(folder: Path, places: dict[str, Path | str], **changes: Any) -> Iterator[World]:
    """Nodes that know each other by name; none is up yet."""
    ports = {letter: free_port() for letter in LETTERS}
    leads = tuple(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    settings = {
        letter: NodeSettings(
            registration="open",
            domains=(f"{letter}.ink",),
            replication_seconds=0,
            resolve=leads,
            registrations_per_address=1_000,
            **changes,
        )
        for letter in LETTERS
    }
    world = World(folder, settings, ports, places)
    try:
        yield world
    finally:
        world.stop(LETTERS)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    places: dict[str, Path | str] = {}
    if request.param == "postgresql":
        places["j"] = request.getfixturevalue("postgres").create_store(f"following{next(NUMBERS)}")
    with making_world(tmp_path_factory.mktemp("following"), places) as world:
        yield world


@pytest.fixture
def world(shared: World) -> World:
    """All nodes are up."""
    shared.start("".join(letter for letter in LETTERS if letter not in shared.running))
    return shared


@contextmanager
def answering(world: World, status: int, body: bytes) -> Iterator[list[str]]:
    """In place of node a, something that answers every POST the same and serves nobody; the paths that it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path)
            self._answer(status, body)

        def do_GET(self) -> None:
            asked.append(self.path)
            self._answer(status if self.path.startswith("/federation/") else 503, body)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    world.stop("a")
    server = ThreadingHTTPServer(("127.0.0.1", world.ports["a"]), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def moved_answer(*proofs: DocumentProof, code: str = "identity.moved") -> bytes:
    return json.dumps({"code": code, "identities": [render_document_proof(proof) for proof in proofs]}).encode()


def has_arrived(world: World, jane: Jane, mail: str) -> bool:
    """Whether Jane has a mail on the node where she lives now."""
    return jane.id in world.node("b").database.read(lambda c: shares_of(c, parse_hash(mail)))


def instances_in(box: httpx.Client) -> set[str]:
    """What waits for somebody."""
    requests = box.get("/me/requests").json()["requests"]
    return {item["instance"] for request in requests for item in request["instances"]}


def delivery_of(person: Person, instance: str) -> dict[str, Any]:
    (item,) = person.get(f"/instances/{instance}/deliveries").json()["deliveries"]
    return dict(item)


# Mail


@pytest.mark.both_databases
def test_queued_mail_turns_to_the_new_node_when_the_old_one_is_dead(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        world.find("j", jane.old)
        world.stop("a")
        mail = create(john, make_schema(john), fields={"subject": "for you"}, recipients=[jane.old])["instance"]
        until(lambda: "federation.unreachable" in str(backoffs_of(world.node("j"))))
        assert states(john, mail) == {jane.old: "waiting"}
        jane.arrive()
        jane.tell(john)
        told = until(lambda: (item := delivery_of(john, mail))["state"] == "delivered" and item)
        assert has_arrived(world, jane, mail)
        assert (told["fqdn"], told["recipient"]) == (jane.new, jane.id.hex())
        assert world.node("j").database.read(list_relocations) == []
        assert world.node("b").database.read(list_notice_targets) == []


@pytest.mark.both_databases
def test_what_the_old_node_took_in_30_days_is_offered_to_the_new_one(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        schema = make_schema(john)
        recent, old = (create(john, schema, recipients=[jane.old])["instance"] for _ in range(2))
        until(lambda: states(john, recent) == states(john, old) == {jane.old: "held"})
        world.node("j").database.write(lambda c: set_changed(c, old, world.node("j").clock() - 31 * DAY))
        world.stop("a")
        jane.arrive()
        jane.tell(john)
        until(lambda: states(john, recent) == {jane.new: "delivered"})
        assert has_arrived(world, jane, recent)
        # What is older stays as it was, and nothing is offered a second time because of the same move.
        offered = delivery_of(john, recent)
        jane.tell(john)
        until(lambda: world.node("b").database.read(list_notice_targets) == [])
        assert delivery_of(john, recent) == offered
        assert states(john, old) == {jane.new: "held"}
        assert not has_arrived(world, jane, old)


def set_changed(connection: Connection, instance: str, changed: int) -> None:
    connection.execute(deliveries.update().where(deliveries.c.instance == parse_hash(instance)).values(changed=changed))


def test_relation_goes_on_by_id_under_the_new_name(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        assert john.put(f"/me/following/{jane.old}", json={}).status_code == 200
        old = world.running["a"].sign_in(jane.old)
        until(lambda: old.get("/me/relations").json()["relations"])
        assert old.put(f"/me/followers/{john.fqdn}", json={"state": "accepted"}).status_code == 200
        until(lambda: john.get("/me/relations").json()["relations"][0]["state"] == "accepted")
        world.stop("a")
        jane.arrive()
        jane.tell(john)
        (mine,) = until(lambda: [r for r in john.get("/me/relations").json()["relations"] if r["fqdn"] == jane.new])
        assert (mine["identity"], mine["side"], mine["state"]) == (jane.id.hex(), "following", "accepted")
        # What John does about it is told to where she lives now.
        assert john.delete(f"/me/following/{jane.new}").status_code in (200, 204)
        until(lambda: world.node("b").database.read(lambda c: find_relation_state(c, john.id, jane.id)) is None)


# The host so far


def test_host_that_shows_an_older_document_turns_nobody_back(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        schema = make_schema(john)
        first = create(john, schema, recipients=[jane.old])["instance"]
        until(lambda: states(john, first) == {jane.old: "held"})
        jane.arrive()
        jane.tell(john)
        until(lambda: states(john, first) == {jane.new: "delivered"})
        # Node a has heard of nothing: it serves her under the old name, with the document from before.
        now = world.node("j").clock()
        with pytest.raises(WrongName) as refused:
            world.find("j", jane.old, fetched_since=now)
        assert refused.value.data["named"] == jane.new
        older = DocumentProof(jane.id, jane.proof().log[:1])
        assert take_document(world.node("j"), older).fqdn == jane.new
        known = world.known(jane.id)
        assert known is not None
        assert (known.fqdn, known.has_moved) == (jane.new, False)
        second = create(john, schema, recipients=[jane.id.hex()])["instance"]
        until(lambda: states(john, second) == {jane.new: "delivered"})
        assert has_arrived(world, jane, first)
        assert has_arrived(world, jane, second)


def test_controller_that_the_first_key_has_overruled_turns_nobody_back(world: World) -> None:
    """The host so far keeps a controller of Jane's and speaks for her, before and after her own word."""
    jane, former = world.jane(), new_log()
    with world.john() as john:
        mail = create(john, make_schema(john), recipients=[jane.old])["instance"]
        until(lambda: states(john, mail) == {jane.old: "held"})
        former.append(encode_message(KeyOf(jane.id)))
        keys = (FurtherKey(former.secret.public),)
        jane.log.append(encode_message(document(jane.old, controller=former.secret.public, keys=keys)))
        under = hash_entry(jane.log.entries[-1])

        def speak(fqdn: str) -> DocumentProof:
            former.append(encode_message(document(fqdn, under=under, keys=keys)))
            entries = zip(former.entries, former.payloads, strict=True)
            speaker = tuple(ProofEntry(entry.encoded, payload) for entry, payload in entries)
            return DocumentProof(jane.id, jane.proof().log[:2], (), (speaker,))

        # So far it may: but nobody serves her there, and so nothing turns, and nothing more goes to where she was.
        assert take_document(world.node("j"), speak("jane.dead.ink")).fqdn == "jane.dead.ink"
        known = world.known(jane.id)
        assert known is not None
        assert (known.fqdn, known.has_moved) == (jane.old, True)
        jane.arrive()  # signed by the first key
        jane.tell(john)
        until(lambda: states(john, mail) == {jane.new: "delivered"})
        assert take_document(world.node("j"), speak("jane.dead.ink")).fqdn == jane.new
        known = world.known(jane.id)
        assert known is not None
        assert (known.fqdn, known.has_moved) == (jane.new, False)


# Answers that say that somebody has moved


def test_answer_that_proves_a_move_turns_mail_relations_and_queue(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        world.find("j", jane.old)
        there = jane.arrive()
        with answering(world, 410, moved_answer(jane.proof())) as asked:
            schema = make_schema(john)
            mail = create(john, schema, recipients=[jane.old])["instance"]
            until(lambda: mail in instances_in(there))
            assert asked.count("/federation/deliveries") == 1
        until(lambda: states(john, mail) == {jane.new: "held"})


def test_deliveries_and_relations_follow_what_the_old_node_answers(world: World) -> None:
    """Nobody tells John's node, and it does not ask for the name again: the old node's answers are all it hears."""
    jane, joan = world.jane(), world.jane()
    with world.john() as john:
        for person in (jane, joan):
            world.find("j", person.old)
        there, also_there = jane.arrive(), joan.arrive()
        for person in (jane, joan):
            take_document(world.node("a"), person.proof())
        mail = create(john, make_schema(john), recipients=[jane.old])["instance"]
        until(lambda: mail in instances_in(there))
        until(lambda: states(john, mail) == {jane.new: "held"})
        assert john.put(f"/me/following/{joan.old}", json={}).json() == {"state": "requested"}
        (wanted,) = until(lambda: also_there.get("/me/relations").json()["relations"])
        assert (wanted["identity"], wanted["state"]) == (john.id.hex(), "requested")


def test_node_that_says_again_who_has_moved_delays_its_queue(world: World) -> None:
    """Jane has moved, Joan has not; whatever the node is sent for Joan, it answers that Jane has moved."""
    jane, joan = world.jane(), world.jane()
    with world.john() as john:
        for person in (jane, joan):
            world.find("j", person.old)
        there, schema = jane.arrive(), make_schema(john)
        with answering(world, 410, moved_answer(jane.proof())) as asked:
            mail = create(john, schema, recipients=[jane.old, joan.old])["instance"]
            until(lambda: mail in instances_in(there))
            until(lambda: any("federation.unproved-move" in error for error in backoffs_of(world.node("j"))))
            assert asked.count("/federation/deliveries") <= 4
        world.start("a")
        until(lambda: states(john, mail) == {jane.new: "held", joan.old: "held"})


def test_move_in_a_relation_follows_an_answer_that_proves_a_move(world: World) -> None:
    jane = world.jane()
    with world.john() as john:
        world.find("j", jane.old)
        there = jane.arrive()
        with answering(world, 410, moved_answer(jane.proof())) as asked:
            assert john.put(f"/me/following/{jane.old}", json={}).json() == {"state": "requested"}
            (wanted,) = until(lambda: there.get("/me/relations").json()["relations"])
            assert (wanted["identity"], wanted["state"]) == (john.id.hex(), "requested")
            assert asked.count("/federation/relations") == 1


def test_blob_is_asked_for_where_an_answer_proves_its_owner_to_be(world: World) -> None:
    """Jane's key is on node a; her blob is fetched when somebody on j reads it, and by then she has moved."""
    number = next(NUMBERS)
    owner = Person(world.running["a"], f"jane{number}.a.ink")
    with owner, world.john() as john:
        world.relate("j", owner.id, john.id)  # known to him: what she sends is taken in
        picture = b"a sloth, hanging"
        blob = owner.post("/blobs", content=picture, headers={"Content-Type": "image/png"}).json()
        mail = create(owner, make_schema(owner), fields={"picture": blob}, recipients=[john.fqdn])["instance"]
        until(lambda: states(owner, mail) == {john.fqdn: "delivered"})
        a = world.node("a")
        sealed = a.database.read(lambda c: sealed_key(c, owner.key))
        assert sealed is not None
        log = LogBuilder(a.vault.open(sealed), log_id=0)
        held = a.store.read(read_entries, owner.key, IDENTITY_LOG)
        log.entries, log.payloads = [item.entry for item in held], [item.payload or b"" for item in held]
        jane = Jane(world, log, owner.fqdn, f"jane{number}.b.ink")
        jane.arrive()
        # What she wrote comes with her, and the picture.
        b = world.node("b")
        entries = [item for log_id in range(1, 6) for item in a.store.read(read_entries, owner.key, log_id)]
        b.store.ingest((item.entry.encoded, item.payload) for item in entries)
        b.database.write(lambda c: add_shares(c, [(parse_hash(mail), john.id)], 0))
        there = b.blobs.new_draft()
        there.write(picture)
        there.sync()

        def keep(connection: Connection) -> None:
            put_blob(connection, parse_hash(blob["hash"]), len(picture), 0)
            lend_reference(connection, parse_hash(blob["hash"]), parse_hash(mail), owner.key)
            b.blobs.keep(there)

        b.database.write(keep)
        with answering(world, 410, moved_answer(jane.proof())) as asked:
            answer = until(lambda: (got := john.get(f"/blobs/{blob['hash']}")).status_code == 200 and got)
            assert answer.content == picture
            assert [path.split("?")[0] for path in asked] == [f"/federation/blobs/{blob['hash']}"]


def test_honest_old_node_answers_look_ups_of_the_name_with_the_proof(world: World) -> None:
    """Nobody tells John's node; it learns of the move when it asks for the old name again, as it does after an hour."""
    jane = world.jane()
    with world.john() as john, world.john() as joan:
        mail = create(john, make_schema(john), recipients=[jane.old])["instance"]
        until(lambda: states(john, mail) == {jane.old: "held"})
        there = jane.arrive()
        take_document(world.node("a"), jane.proof())
        answer = world.running["a"].anybody.get("/.well-known/inkgrove", headers={"Host": jane.old})
        assert (answer.status_code, answer.json()["code"]) == (410, "identity.moved")
        with pytest.raises(WrongName) as refused:
            world.find("j", jane.old, fetched_since=world.node("j").clock())
        assert refused.value.data["named"] == jane.new
        until(lambda: mail in instances_in(there))
        until(lambda: states(john, mail) == {jane.new: "held"})
        # Who never met her hears the new name too.
        other = world.jane()
        other.log.append(encode_message(document(other.new)))
        take_document(world.node("a"), other.proof())
        answer = joan.post("/instances", json={"schema": make_schema(joan), "recipients": [other.old]})
        assert (answer.status_code, answer.json()["reason"]) == (404, "federation.wrong-name")
        assert other.new in answer.text
        assert world.node("j").store.read(find_log, other.log.secret.public, IDENTITY_LOG) is None


@pytest.mark.parametrize("what", ["nothing", "somebody else's entries", "a forged entry", "the document so far"])
def test_answer_that_proves_no_move_changes_nothing(world: World, what: str) -> None:
    jane, other = world.jane(), world.jane()
    with world.john() as john:
        world.find("j", jane.old)
        known = world.known(jane.id)
        assert known is not None
        so_far = jane.proof()
        forger = LogBuilder(new_log().secret, log_id=0)
        forger.append(encode_message(document(jane.new)))
        forged = ProofEntry(
            jane.log.entries[0].encoded[:-1] + bytes([jane.log.entries[0].encoded[-1] ^ 1]), jane.log.payloads[0]
        )
        body = {
            "nothing": b'{"code":"identity.moved","identities":[]}',
            "somebody else's entries": moved_answer(other.proof()),
            "a forged entry": moved_answer(DocumentProof(jane.id, (forged,))),
            "the document so far": moved_answer(so_far),
        }[what]
        with pytest.raises(UnprovedMove):
            take_moved(world.node("j"), PeerResponse(410, (), body), [known])
        with answering(world, 410, body):
            mail = create(john, make_schema(john), recipients=[jane.old])["instance"]
            backoffs = until(lambda: [b for b in backoffs_of(world.node("j")) if "federation.unproved-move" in b])
            assert backoffs
            assert states(john, mail) == {jane.old: "waiting"}
        after = world.known(jane.id)
        assert after is not None
        assert (after.fqdn, after.has_moved) == (jane.old, False)
        world.start("a")
        until(lambda: states(john, mail) == {jane.old: "held"})


def backoffs_of(node: Node) -> list[str]:
    return [backoff.error for backoff in node.database.read(read_backoffs).values()]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"\xff", b"1"),
        b'{"code":"identity.moved"}',
        b'{"code":"identity.moved","identities":[[]]}',
        b'{"code":"identity.moved","identities":[{"id":"00","log":[],"speakers":[],"keys":[]}]}',
    ],
)
def test_malformed_answer_about_a_move_is_an_error(world: World, body: bytes) -> None:
    known = RemoteIdentity(IdentityId(bytes(32)), "x.a.ink", "https://x.a.ink", new_log().secret.public, 1, *[None] * 3)  # type: ignore[arg-type]
    with pytest.raises(UnprovedMove):
        take_moved(world.node("j"), PeerResponse(410, (), body), [known])


# Notices


def send_notice(world: World, sender: str, to: str, body: bytes, letter: str = "j") -> PeerResponse:
    """What a node could send if it wanted to."""
    node = world.node(letter)

    async def work() -> PeerResponse:
        async with HttpTransport(node.settings) as transport:
            known = await Discovery(node, transport).find(to)
            request = make_signed_request(
                node, known, "POST", DOCUMENTS_PATH, sender=sender, body=body, content_type=DOCUMENT_MEDIA_TYPE
            )
            return await transport.send(request)

    return run(work())


def test_notice_of_a_stranger_about_somebody_unknown_leaves_nothing(world: World) -> None:
    """Node b is told by somebody on j about an identity that nobody on b has to do with; the answer shows nothing."""
    unknown = new_log()
    unknown.append(encode_message(document("nobody.a.ink")))
    proof = DocumentProof(
        identity_of(unknown.secret.public), (ProofEntry(unknown.entries[0].encoded, unknown.payloads[0]),)
    )
    local = Person(world.running["b"], f"here{next(NUMBERS)}.b.ink")
    with world.john() as john, local:
        answer = send_notice(world, john.fqdn, local.fqdn, encode_document(proof))
        assert (answer.status, answer.body) == (204, b"")
        assert world.node("b").store.read(find_log, unknown.secret.public, IDENTITY_LOG) is None
        assert world.node("b").database.read(list_relocations) == []


def test_notice_of_a_stranger_about_somebody_known_counts_only_with_a_proof(world: World) -> None:
    jane, other = world.jane(), world.jane()
    local = Person(world.running["b"], f"here{next(NUMBERS)}.b.ink")
    with world.john() as john, local:
        world.find("b", jane.old)
        world.relate("b", local.id, jane.id)
        before = world.known(jane.id, "b")
        jane.log.append(encode_message(document(jane.new)))
        proof, foreign = jane.proof(), other.proof()
        forged = ProofEntry(proof.log[1].encoded[:-1] + bytes([proof.log[1].encoded[-1] ^ 1]), proof.log[1].payload)
        for bad in (
            DocumentProof(jane.id, foreign.log),
            DocumentProof(jane.id, (proof.log[0], forged)),
            DocumentProof(jane.id, (proof.log[1],)),
            DocumentProof(jane.id, ()),
        ):
            answer = send_notice(world, john.fqdn, local.fqdn, encode_document(bad))
            assert (answer.status, json.loads(answer.body)["code"]) == (422, "parcel.bad-document")
        assert world.known(jane.id, "b") == before
        # The real one is taken, whoever brings it. But nobody serves her under the new name: nothing turns.
        assert send_notice(world, john.fqdn, local.fqdn, encode_document(proof)).status == 204
        node = world.node("b")
        newest = node.database.read(lambda c: find_newest_document(c, jane.log.secret.public))
        assert newest is not None
        assert newest[1].fqdn == jane.new
        until(lambda: any("federation.no-identity-there" in error for error in backoffs_of(node)))
        known = world.known(jane.id, "b")
        assert known is not None
        assert (known.fqdn, known.has_moved) == (jane.old, True)
        # And nothing is sent to the place that she has left.
        with pytest.raises(PeerUnreachable):
            make_signed_request(node, known, "GET", "/", sender=local.fqdn)


def test_notice_without_a_signature_is_refused(world: World) -> None:
    answer = world.running["j"].anybody.post(
        DOCUMENTS_PATH, content=encode_document(world.jane().proof()), headers={"Content-Type": DOCUMENT_MEDIA_TYPE}
    )
    assert (answer.status_code, answer.json()["code"]) == (401, "federation.signature-missing")


@pytest.mark.parametrize("body", [b"", b"\xa0", b"\xff", b"\x81\x00", b64encode(b"no CBOR")])
def test_malformed_notice_is_an_error(world: World, body: bytes) -> None:
    with pytest.raises(ParcelError) as refused:
        receive_document(world.node("j"), body)
    assert refused.value.code == "parcel.bad-document"


def test_notice_costs_its_sender_before_it_is_verified(world: World) -> None:
    charged: list[int] = []
    receive_document(world.node("j"), encode_document(world.jane().proof()), charged.append)
    assert charged == [1024]


def test_sender_of_many_notices_has_to_wait(tmp_path: Path) -> None:
    with making_world(tmp_path, {}, peer_bytes_per_minute=64 * 1024) as world:
        world.start("bj")
        local, john = Person(world.running["b"], "here.b.ink"), world.john()
        with local, john:
            log = new_log()
            for number in range(10):
                log.append(encode_message(document("somebody.a.ink", name=str(number))))
            proof = encode_document(Jane(world, log, "", "").proof())
            answers = [send_notice(world, john.fqdn, local.fqdn, proof).status for _ in range(10)]
            assert answers[0] == 204
            assert answers[-1] == 429


def test_everybody_elsewhere_who_has_to_do_with_somebody_is_told_once(world: World) -> None:
    jane = world.jane()
    with world.john() as john, world.john() as joan, ExitStack() as stack:
        jane.arrive()
        near = stack.enter_context(Person(world.running["b"], f"near{next(NUMBERS)}.b.ink"))
        world.relate("b", near.id, jane.id)  # lives on the same node
        world.node("b").database.write(lambda c: put_relation_state(c, jane.id, joan.id, "requested", 0))
        for person in (john, joan):
            world.find("b", person.fqdn)
        world.relate("b", john.id, jane.id)
        world.stop("j")
        assert tell_of_new_document(world.node("b"), jane.id) == 2
        assert tell_of_new_document(world.node("b"), jane.id) == 2  # again: the same ones
        targets = world.node("b").database.read(list_notice_targets)
        assert sorted(targets) == sorted([john.id.hex(), joan.id.hex()])
        world.start("j")
        until(lambda: world.node("b").database.read(list_notice_targets) == [])


def test_only_the_node_where_somebody_lives_tells_others(world: World) -> None:
    jane = world.jane()
    with pytest.raises(Exception, match="does not live here"):
        tell_of_new_document(world.node("j"), jane.id)


# Restarts


def test_node_that_stops_in_between_goes_on_later(world: World) -> None:
    """The document comes while the new node is away; John's node stops, and turns when both are back."""
    jane = world.jane()
    with world.john() as john:
        mail = create(john, make_schema(john), recipients=[jane.old])["instance"]
        until(lambda: states(john, mail) == {jane.old: "held"})
        jane.arrive()
        proof = world.node("b").database.read(lambda c: read_document_proof(c, jane.log.secret.public))
        world.stop("ab")
        take_document(world.node("j"), proof)
        assert [item.identity for item in world.node("j").database.read(list_relocations)] == [jane.id]
        world.stop("j")
        world.start("bj")
        there = world.running["b"].sign_in(jane.new)
        until(lambda: mail in instances_in(there))
        until(lambda: states(john, mail) == {jane.new: "held"})
        until(lambda: world.node("j").database.read(list_relocations) == [])


def test_node_that_is_killed_while_it_turns_loses_nothing_and_sends_nothing_twice(tmp_path: Path) -> None:
    """John's node is a process of its own, killed again and again from when it hears of the move."""
    rng, mails = Random(5), 12
    with making_world(tmp_path, {}) as world, ExitStack() as stack:
        world.start("ab")
        chosen = {"registration": "open", "domains": "j.ink", "replication_seconds": "0"}
        chosen["resolve"] = ",".join(world.settings["j"].resolve)

        def serve() -> Serving:
            return stack.enter_context(Serving(world.folder / "j", chosen, port=world.ports["j"]))

        node = serve()
        body = {"fqdn": "john.j.ink", "password": PASSWORD}
        assert node.client.post("/identities", json=body).status_code == 201
        token = node.client.post("/sessions", json=body).json()["token"]
        john = stack.enter_context(
            httpx.Client(base_url=node.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        )
        jane, schema = world.jane(), make_schema(john)
        sent = [create(john, schema, recipients=[jane.old])["instance"] for _ in range(mails)]

        until(lambda: all(states(john, mail) == {jane.old: "held"} for mail in sent))
        there = jane.arrive()
        answer = send_notice(world, jane.new, "john.j.ink", encode_document(jane.proof()), letter="b")
        assert answer.status == 204  # from now on the document is there, and John's node begins to turn
        for _ in range(amount(4, 40, "INKGROVE_TEST_KILLS")):
            time.sleep(rng.uniform(0, 0.3))
            node.stop(signal.SIGKILL)
            node = serve()
        until(lambda: instances_in(there) == set(sent))
        until(lambda: all(states(john, mail) == {jane.new: "held"} for mail in sent))
        # Each is there once, and stays so.
        (waiting,) = there.get("/me/requests").json()["requests"]
        assert sorted(item["instance"] for item in waiting["instances"]) == sorted(sent)


# Who lived on this very node


def test_mail_from_neighbours_is_offered_to_the_node_that_somebody_moved_to(world: World) -> None:
    jane = world.jane()
    with Person(world.running["a"], f"neighbour{next(NUMBERS)}.a.ink") as neighbour:
        mail = create(neighbour, make_schema(neighbour), recipients=[jane.old])["instance"]
        assert states(neighbour, mail) == {jane.old: "held"}
        there = jane.arrive()
        take_document(world.node("a"), jane.proof())
        until(lambda: mail in instances_in(there))
        until(lambda: states(neighbour, mail) == {jane.new: "held"})
