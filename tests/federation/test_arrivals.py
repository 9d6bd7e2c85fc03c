"""An identity that comes to a node from one that is dead or hostile: with its file, or with the words and friends.

All nodes are processes of their own: a has Jane's old home and dies, b and c have her friends, d is where she goes.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client import (
    Arrival,
    ArrivalFailed,
    AsyncClient,
    Client,
    Conflict,
    Identity,
    NotFound,
    Refused,
    Unreachable,
    arrivals,
    new_words,
)
from inkgrove.core import IdentityId, SecretKey, parse_hash, parse_words, render_words
from inkgrove.core.errors import InkgroveError, KeysError
from inkgrove.node.publishing import find_held_instance
from inkgrove.store.db import Connection, Database, parse_store_url
from inkgrove.store.federation import read_backoffs
from inkgrove.store.node import shares_of
from tests.support.command import inkgrove
from tests.support.federated import until
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.publishing import create, make_schema

NEW_PASSWORD = "another horse battery"
T = TypeVar("T")
PICTURE = b"\x89PNG a picture of a sloth" * 500
OLD, NEW = "jane.a.ink", "jane.d.ink"


class World:
    """Four nodes; Jane on a with words, John on b who follows her and whom she follows, Judy on c who follows her."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.ports = {letter: free_port() for letter in "abcd"}
        self.nodes: dict[str, Serving] = {}
        for letter in "abcd":
            self.start(letter)
        self.words = new_words()
        self.first = SecretKey.from_seed(parse_words(self.words))
        with Client(self.nodes["a"].url) as client:
            self.id = client.sign_up(OLD, PASSWORD, self.words, name="Jane").id
        self.jane, self.john, self.judy = (
            self.sign_in(OLD),
            self.join("john.b.ink"),
            self.join("judy.c.ink"),
        )
        for follower in (self.john, self.judy):
            follower.follow(OLD)
        until(lambda: sum(item.state == "requested" for item in self.jane.relations()) == 2)
        for name in ("john.b.ink", "judy.c.ink"):
            self.jane.answer_follower(name, "accepted")
        self.jane.follow("john.b.ink")
        until(lambda: any(item.fqdn == OLD and item.state == "requested" for item in self.john.relations()))
        self.john.answer_follower(OLD, "accepted")
        until(lambda: all(item.state == "accepted" for item in self.jane.relations()))
        for person in (self.jane, self.john):
            person.accept_sender("john.b.ink" if person is self.jane else OLD)
        http = self.http(self.jane)
        self.schema = make_schema(http)
        self.post = create(http, self.schema, fields={"subject": "Hello"}, access={"mode": "relations"})["instance"]
        blob = http.post("/blobs", content=PICTURE, headers={"Content-Type": "image/png"}).json()
        content = {"subject": "To John", "picture": blob}
        self.letter = create(http, self.schema, fields=content, recipients=["john.b.ink"])["instance"]
        self.picture = f"/blobs/{blob['hash']}"
        self.diary = create(http, self.schema, fields={"subject": "Mine"}, access={"mode": "self"})["instance"]
        for letter in "bc":
            until(lambda letter=letter: self.holds(letter, self.post))  # type: ignore[misc]
        until(lambda: self.holds("b", self.letter))
        assert self.http(self.john).get(self.picture).content == PICTURE

    def start(self, letter: str, **settings: str) -> Serving:
        resolve = ",".join(f"*.{name}.ink=127.0.0.1:{port}" for name, port in self.ports.items())
        chosen = {"registration": "open", "domains": f"{letter}.ink", "resolve": resolve, "replication_seconds": "0"}
        node = Serving(self.folder / letter, {**chosen, **settings}, port=self.ports[letter])
        self.nodes[letter] = self.stack.enter_context(node)
        return node

    def join(self, fqdn: str) -> Client:
        with Client(self.url_of(fqdn)) as client:
            client.create_identity(fqdn, PASSWORD)
        return self.sign_in(fqdn)

    def url_of(self, fqdn: str) -> str:
        return self.nodes[fqdn.split(".")[1]].url

    def sign_in(self, fqdn: str, password: str = PASSWORD) -> Client:
        return self.stack.enter_context(Client.sign_in(self.url_of(fqdn), fqdn, password))

    def http(self, client: Client) -> httpx.Client:
        headers = {"Authorization": f"Bearer {client._credentials.token}"}
        return self.stack.enter_context(httpx.Client(base_url=client.url, headers=headers, timeout=60))

    def holds(self, letter: str, instance: str) -> bool:
        """Whether a node has an instance with its payloads, and what comes of it counts."""
        held = self.read(letter, lambda c: find_held_instance(c, parse_hash(instance)))
        return held is not None and all(item.payload is not None for item in held.messages)

    def is_deleted(self, letter: str, instance: str) -> bool:
        """Whether a node knows that an instance has ended."""
        held = self.read(letter, lambda c: find_held_instance(c, parse_hash(instance)))
        return held is not None and held.is_deleted

    def john_knows(self, name: str) -> bool:
        """Whether John's node knows Jane by a name."""
        return any(item.fqdn == name for item in self.john.relations())

    def was_sent(self, letter: str, instance: str, identity: str) -> bool:
        """Whether a node shows an instance to somebody as sent to them."""
        return IdentityId.fromhex(identity) in self.read(letter, lambda c: shares_of(c, parse_hash(instance)))

    def read(self, letter: str, work: Callable[[Connection], T]) -> T:
        database = Database(parse_store_url(self.folder / letter))
        try:
            return database.read(work)
        finally:
            database.close()

    def file(self) -> Path:
        path = self.folder / "jane.person"
        if not path.exists():
            self.jane.export_me(path)
        return path

    def kill(self, letter: str) -> None:
        self.nodes[letter].stop(signal.SIGKILL)

    def bring(self, **options: Any) -> Identity:
        with Client(self.nodes["d"].url) as client:
            words = options.pop("words", self.words)
            return client.bring_identity(options.pop("fqdn", NEW), NEW_PASSWORD, words, **{"timeout": 60, **options})

    def begin(self, **options: Any) -> Arrival:
        with Client(self.nodes["d"].url) as client:
            return client.run(arrivals.begin_arrival(NEW, NEW_PASSWORD, self.words, **options))

    def run(self, flow: Any) -> Any:
        with Client(self.nodes["d"].url) as client:
            return client.run(flow)

    def is_unknown(self) -> bool:
        """Whether nobody sees Jane on the new node."""
        with Client(self.nodes["d"].url) as client, pytest.raises(NotFound):
            client.identity(self.id)
        return True


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def answer(world: World, to: str) -> str:
    """John answers Jane, whom he knows by a name."""
    john = world.http(world.john)
    instance: str = create(john, make_schema(john, "answers"), fields={"subject": "Re: To John"}, recipients=[to])[
        "instance"
    ]
    return instance


def answer_arrives(world: World, *instances: str) -> None:
    """What John has sent, before and after, comes to where Jane lives now."""
    for instance in (answer(world, NEW), *instances):
        until(lambda sent=instance: world.was_sent("d", sent, world.id), "John's answer does not arrive")  # type: ignore[misc]


def goes_on(world: World, jane: Client) -> None:
    """What she publishes now reaches those who follow her; what the old node signed she can change and delete."""
    http = world.http(jane)
    post = create(http, make_schema(http, "news"), fields={"subject": "I live here"}, access={"mode": "relations"})
    for letter in "bc":
        until(lambda letter=letter: world.holds(letter, post["instance"]))  # type: ignore[misc]
    assert http.delete(f"/instances/{world.letter}").status_code == 200
    until(lambda: world.is_deleted("b", world.letter), "John has not heard of the delete")


def test_dead_host_with_the_file(world: World) -> None:
    file = world.file()
    world.kill("a")
    sent = answer(world, OLD)  # nobody takes it there any more
    states: list[str] = []
    came = world.bring(file=file, on_progress=lambda arrival: states.append(arrival.state))
    assert (came.id, came.fqdn, came.name, came.recovery) == (world.id, NEW, "Jane", "words")
    assert states[-1] == "here"
    assert "committing" in states
    jane = world.sign_in(NEW, NEW_PASSWORD)
    # The old controller counts as before, so that nothing is lost which nobody has shown yet.
    assert [key.state for key in jane.devices()] == ["counts"] * 3
    for instance in (world.post, world.letter, world.diary):
        assert world.holds("d", instance)
    assert world.http(jane).get(world.picture).content == PICTURE
    # Those who follow her do, and John says again that she may follow him.
    until(lambda: {(item.fqdn, item.side, item.state) for item in jane.relations()} == ALL, str(jane.relations()))
    answer_arrives(world, sent)
    goes_on(world, jane)
    assert not list((world.folder / "d" / "arrivals").glob("*.part"))
    with pytest.raises(Conflict) as refused:
        world.bring(file=file)
    assert refused.value.code == "arrival.lives-here"


ALL = {
    ("john.b.ink", "followers", "accepted"),
    ("judy.c.ink", "followers", "accepted"),
    ("john.b.ink", "following", "accepted"),
}


def test_words_alone_and_two_friends(world: World) -> None:
    world.kill("a")
    sent = answer(world, OLD)
    where = ("--to", world.nodes["d"].url, "--as", NEW)
    friends = ("--friend", "john.b.ink", "--friend", "judy.c.ink")
    told = f"{NEW_PASSWORD}\n{world.words}\n"
    done = inkgrove("identity", "recover", OLD, *where, *friends, "--json", stdin=told)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["id"], facts["fqdn"], facts["recovery"]) == (world.id, NEW, "words")
    assert set(facts["friends"]) == {"john.b.ink", "judy.c.ink"}
    jane = world.sign_in(NEW, NEW_PASSWORD)
    for instance in (world.post, world.letter):
        assert world.holds("d", instance)
    assert not world.holds("d", world.diary)  # nobody has ever seen it
    assert world.was_sent("d", world.letter, world.john.me().id), "whom it was sent to is known again"
    assert world.http(jane).get(world.picture).content == PICTURE, "John's node has it still"
    until(lambda: {(item.fqdn, item.side, item.state) for item in jane.relations()} == ALL, str(jane.relations()))
    answer_arrives(world, sent)
    goes_on(world, jane)


def test_hostile_host_is_ended_and_pinned(world: World) -> None:
    """It has given her another name and a key of its own: what the words have not signed does not go along."""
    world.jane.change_me(name="Mallory")
    theirs = SecretKey.from_seed(bytes(31) + b"\x07")
    world.jane.add_key(theirs, "phone", password=PASSWORD)
    file = world.file()
    old = world.jane.me().controller

    async def bring() -> Identity:
        async with AsyncClient(world.nodes["d"].url) as client:
            return await client.bring_identity(NEW, NEW_PASSWORD, world.words, file=file, hostile=True, timeout=60)

    came = asyncio.run(bring())
    assert came.name == "Jane"
    jane = world.sign_in(NEW, NEW_PASSWORD)
    states = {key.key: key.state for key in jane.devices()}
    assert states[str(old)] == "ended"
    assert states[theirs.public.hex()] == "ended"
    assert states[str(came.controller)] == "counts"
    assert world.holds("d", world.post)
    keys = world.http(jane).get("/me/keys").json()["keys"]
    ends = next(item["revoked"] for item in keys if item["key"] == old)
    assert ends
    assert all(len(end) == 3 for end in ends)
    # The old host has not been told, and goes on signing in her name: it counts nowhere.
    until(lambda: world.john_knows(NEW), "John's node has not heard where Jane lives")
    http = world.http(world.jane)
    forged = create(http, world.schema, fields={"subject": "Forged"}, access={"mode": "relations"})["instance"]

    until(lambda: any("403" in item.error for item in world.read("a", read_backoffs).values()), "nobody refuses it")
    assert not world.holds("b", forged)


def test_words_that_are_wrong_change_nothing(world: World) -> None:
    words = world.words.split()
    wrong = {
        "key.wrong-word": ["slothlike", *words[1:]],
        "key.bad-words": [*words[:-1], words[0]] if words[-1] != words[0] else [*words[:-1], "abandon"],
    }
    for code, some in wrong.items():
        with pytest.raises(KeysError) as refused:
            world.bring(words=" ".join(some), file=world.file())
        assert refused.value.code in (code, "key.bad-words")
    with pytest.raises(KeysError) as refused:
        world.bring(words=new_words(), file=world.file())
    assert refused.value.code == "key.mismatch"
    with pytest.raises(Refused) as unknown:
        world.bring(words=render_words(bytes(31) + b"\x01"), friends=["john.b.ink"])
    assert unknown.value.code == "arrival.nobody-knows"
    assert "right words" in unknown.value.message
    assert world.is_unknown()


def change_body(content: bytes) -> bytes:
    """Flip a bit in the middle and seal the file again: only the signatures can tell."""
    body = bytearray(content[:-82])
    body[len(body) // 2] ^= 1
    return bytes(body) + content[-82:-64] + blake2b(body).digest()


WRONG_FILES: dict[str, Callable[[bytes], bytes]] = {
    "file.cut-off": lambda content: content[:-100],
    "file.unknown-form": lambda _content: b"Dear diary, " * 100,
    "file.changed": change_body,
}


@pytest.mark.parametrize("code", WRONG_FILES)
def test_file_that_is_wrong_changes_nothing(world: World, code: str) -> None:
    path = world.folder / "wrong.person"
    path.write_bytes(WRONG_FILES[code](world.file().read_bytes()))
    with pytest.raises(InkgroveError) as refused:
        world.bring(file=path)
    assert refused.value.code == code
    assert world.is_unknown()
    # The same arrival goes on with the right file.
    assert world.bring(file=world.file()).fqdn == NEW


def test_file_of_somebody_else_is_refused_by_the_node_too(world: World) -> None:
    other = world.folder / "john.person"
    world.john.export_me(other)
    with pytest.raises(KeysError):
        world.bring(file=other)
    facts = arrivals.read_file_facts(other)
    lying = arrivals.FileFacts(other, facts.size, facts.digest, world.id)
    arrival = world.begin(file=lying)
    arrival = world.run(arrivals.send_part(arrival, other.read_bytes()))
    arrival = until(lambda: look_for_code(world, arrival))
    assert (arrival.state, arrival.code, arrival.received) == ("asked", "file.not-yours", 0)
    assert world.is_unknown()


def look_for_code(world: World, arrival: Arrival) -> Arrival | None:
    found: Arrival = world.run(arrivals.arrival_state(arrival))
    return found if found.code is not None else None


def test_file_that_is_older_than_what_the_node_holds(world: World) -> None:
    file = world.file()
    newer = create(world.http(world.jane), world.schema, fields={"subject": "Newer"}, access={"mode": "relations"})
    julia = world.join("julia.d.ink")
    julia.follow(OLD)
    until(lambda: any(item.fqdn == "julia.d.ink" for item in world.jane.relations()))
    world.jane.answer_follower("julia.d.ink", "accepted")
    until(lambda: world.holds("d", newer["instance"]))
    with pytest.raises(Refused) as refused:
        world.bring(file=file)
    assert refused.value.code == "file.older"
    assert world.is_unknown()
    assert world.bring(file=file, older=True).fqdn == NEW
    assert world.holds("d", newer["instance"])


def test_limits_of_the_node(world: World) -> None:
    file = world.file()
    for name, value, code in (
        ("arrivals_at_once", "0", "arrival.too-many"),
        ("registration", "closed", "auth.required"),
        ("arrival_bytes", "1000", "arrival.too-large"),
        ("identity_entries", "2", "quota.exceeded"),
        ("identity_payload_bytes", "300", "quota.exceeded"),
    ):
        world.nodes["d"].stop()
        world.start("d", **{name: value})
        with pytest.raises(Refused) as refused:
            world.bring(file=file)
        assert refused.value.code == code
        assert world.is_unknown()
    world.nodes["d"].stop()
    world.start("d")
    with pytest.raises(Refused) as refused:
        world.bring(file=file, fqdn="jane.elsewhere.ink")
    assert refused.value.code == "identity.foreign-name"
    with pytest.raises(ArrivalFailed, match="no friend has answered"):
        world.bring(friends=["nobody.b.ink", "nobody.e.ink"], timeout=2)
    with pytest.raises(KeysError) as mismatch:
        world.bring(file=file, old_name="julia.a.ink")
    assert mismatch.value.code == "key.mismatch"
    assert world.is_unknown()


def test_parts_of_a_file_and_who_may_send_them(world: World) -> None:
    facts = arrivals.read_file_facts(world.file())
    content = facts.path.read_bytes()
    arrival = world.begin(file=facts)
    arrival = world.run(arrivals.send_part(arrival, content[:1000]))
    assert (arrival.state, arrival.received, arrival.size) == ("fetching", 1000, len(content))
    url = f"{world.nodes['d'].url}/identities/arrivals/{arrival.id}"
    binary = {"Content-Type": "application/octet-stream"}
    bearer = {"Authorization": f"Bearer {arrival.token}", **binary}
    again = httpx.put(f"{url}/file?offset=0", content=content[:10], headers=bearer)
    assert (again.status_code, again.json()["code"], again.json()["received"]) == (409, "arrival.wrong-part", 1000)
    much = httpx.put(f"{url}/file?offset=1000", content=content, headers=bearer)
    assert (much.status_code, much.json()["code"]) == (413, "arrival.too-large")
    for headers in (binary, {"Authorization": f"Bearer ink_m_{'00' * 32}", **binary}):
        for answer in (httpx.get(url, headers=headers), httpx.put(f"{url}/file", content=b"x", headers=headers)):
            assert (answer.status_code, answer.json()["code"]) == (404, "arrival.unknown")
    # Begun again, with the same file: what has come is there.
    second = world.begin(file=facts)
    assert second.received == 1000
    assert httpx.get(url, headers=bearer).json()["code"] == "arrival.unknown"
    world.run(arrivals.give_arrival_up(second))
    assert not list((world.folder / "d" / "arrivals").glob("*.part"))
    assert world.bring(file=facts.path).fqdn == NEW


def test_commit_is_checked_and_can_be_asked_again(world: World) -> None:
    facts = arrivals.read_file_facts(world.file())
    arrival = world.begin(file=facts)
    with pytest.raises(AssertionError):
        arrivals.sign_arrival(arrival, world.words)
    arrival = world.run(arrivals.send_part(arrival, facts.path.read_bytes()))
    arrival = until(lambda: look_for(world, arrival, "committing"))
    with pytest.raises(KeysError):
        arrivals.sign_arrival(arrival, new_words())
    signed = arrivals.sign_arrival(arrival, world.words)
    one = world.run(arrivals.commit_arrival(signed))
    assert world.run(arrivals.commit_arrival(signed)) == one
    assert world.run(arrivals.arrival_state(arrival)).state == "here"


def look_for(world: World, arrival: Arrival, state: str) -> Arrival | None:
    found: Arrival = world.run(arrivals.arrival_state(arrival))
    return found if found.state == state else None


@pytest.mark.parametrize("way", ["file", "friends"])
def test_new_node_is_killed_at_every_step(world: World, way: str) -> None:
    file = world.file()
    world.kill("a")
    options: dict[str, Any] = {"file": file} if way == "file" else {"friends": ["john.b.ink", "judy.c.ink"]}
    for state in ("asked", "fetching", "arriving", "committing", "here"):

        def kill_at(arrival: Arrival, state: str = state) -> None:
            if arrival.state == state:
                world.kill("d")

        with suppress(Unreachable, Conflict):
            world.bring(**options, on_progress=kill_at)
        if world.nodes["d"].process.poll() is not None:
            world.start("d")
    with suppress(Conflict):  # it may live here already
        world.bring(**options)
    jane = world.sign_in(NEW, NEW_PASSWORD)
    until(lambda: {(item.fqdn, item.side, item.state) for item in jane.relations()} == ALL, str(jane.relations()))
    answer_arrives(world)


def test_killed_in_the_middle_again_and_again(world: World) -> None:
    """At moments that the clock chooses: it is wholly here or not at all, and comes to its end when left alone."""
    file = world.file()
    world.kill("a")
    for number in range(6):
        facts = arrivals.read_file_facts(file)
        arrival = world.begin(file=facts)
        if arrival.received < facts.size:
            world.run(arrivals.send_part(arrival, file.read_bytes()[arrival.received :]))
        time.sleep(0.05 * number)
        world.kill("d")
        world.start("d")
    assert world.bring(file=file).fqdn == NEW
