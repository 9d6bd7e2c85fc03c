"""An identity that moves from one node to another, and the old node helps: all of it, between processes of their own.

Nodes a and b are those between which Jane moves, c has a friend. Jane has words, a schema, instances, a blob, relations
and mail. `INKGROVE_TEST_MOVE_KILLS` says how many processes are killed on the way.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client import Arrival, Client, Conflict, NotFound, NotSignedIn, Refused, new_words
from inkgrove.client.models import MoveGrant
from inkgrove.core import IdentityId, parse_hash
from inkgrove.core.errors import InkgroveError
from inkgrove.node.publishing import find_held_instance
from inkgrove.store.db import Connection
from inkgrove.store.federation import sealed_authors
from inkgrove.store.logs import LogStore, open_store, read_logs
from inkgrove.store.node import find_arrival, find_departure, find_identity, shares_of
from tests.support.federated import until
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.publishing import create, make_schema
from tests.support.tiers import amount

NEW_PASSWORD = "another horse battery"
OLD, NEW = "jane.a.ink", "jane.b.ink"
KILLS = amount(3, 100, "INKGROVE_TEST_MOVE_KILLS")


class World:
    """Nodes a, b and c; Jane on a, John on a and Judy on c, who all know each other."""

    def __init__(self, folder: Path, stack: ExitStack, *, has_words: bool = True) -> None:
        self.folder, self.stack = folder, stack
        self.ports = {letter: free_port() for letter in "abc"}
        self.nodes: dict[str, Serving] = {}
        self.stores: dict[str, LogStore] = {}
        for letter in "abc":
            self.start(letter)
        with Client(self.nodes["a"].url) as client:
            if has_words:
                self.id = client.sign_up(OLD, PASSWORD, new_words(), name="Jane").id
            else:
                self.id = client.create_identity(OLD, PASSWORD).id
        self.jane, self.john, self.judy = self.sign_in(OLD), self.join("john.a.ink"), self.join("judy.c.ink")
        for other, name in ((self.john, "john.a.ink"), (self.judy, "judy.c.ink")):
            other.follow(OLD)
            until(lambda name=name: self.relation(self.jane, name) == "requested")  # type: ignore[misc]
            self.jane.answer_follower(name, "accepted")
            self.jane.follow(name)
            until(lambda other=other: self.relation(other, OLD) is not None)  # type: ignore[misc]
            until(lambda other=other: "requested" in [r.state for r in other.relations()])  # type: ignore[misc]
            other.answer_follower(OLD, "accepted")
            until(lambda other=other: {r.state for r in other.relations()} == {"accepted"})  # type: ignore[misc]
        http = self.http(self.jane)
        self.schema = make_schema(http)
        self.blob = self.jane.upload(b"ink " * 100_000, "text/plain")
        self.mine = [
            create(http, self.schema, fields={"subject": f"mine {number}"}, access={"mode": "self"})["instance"]
            for number in range(20)
        ]
        self.sent = create(http, self.schema, fields={"subject": "to Judy"}, recipients=["judy.c.ink"])["instance"]
        until(lambda: self.holds("c", self.sent))
        self.received = self.mail(self.judy, "before")
        until(lambda: self.holds("a", self.received, self.id))

    def start(self, letter: str, **settings: str) -> Serving:
        resolve = ",".join(f"*.{name}.ink=127.0.0.1:{port}" for name, port in self.ports.items())
        chosen = {"registration": "open", "domains": f"{letter}.ink", "resolve": resolve, "replication_seconds": "0"}
        chosen["registrations_per_address"] = "10000"  # so often does nobody move
        node = Serving(self.folder / letter, {**chosen, **settings}, port=self.ports[letter])
        self.nodes[letter] = self.stack.enter_context(node)
        return node

    def kill(self, letter: str) -> None:
        self.nodes[letter].stop(signal.SIGKILL)

    def restart(self, letter: str) -> None:
        if self.nodes[letter].process.poll() is not None:
            self.start(letter)

    def join(self, fqdn: str) -> Client:
        with Client(self.nodes[fqdn.split(".")[1]].url) as client:
            client.create_identity(fqdn, PASSWORD)
        return self.sign_in(fqdn)

    def sign_in(self, fqdn: str, password: str = PASSWORD) -> Client:
        return self.stack.enter_context(Client.sign_in(self.nodes[fqdn.split(".")[1]].url, fqdn, password))

    def http(self, client: Client) -> httpx.Client:
        headers = {"Authorization": f"Bearer {client._credentials.token}"}
        return self.stack.enter_context(httpx.Client(base_url=client.url, headers=headers, timeout=60))

    def relation(self, client: Client, fqdn: str) -> str | None:
        return next((item.state for item in client.relations() if item.fqdn == fqdn), None)

    def mail(self, sender: Client, text: str) -> str:
        """Send Jane something, by her id: the name that she had on a node stays behind."""
        if not hasattr(sender, "own_schema"):
            sender.own_schema = make_schema(self.http(sender))  # type: ignore[attr-defined]
        made = create(self.http(sender), sender.own_schema, fields={"subject": text}, recipients=[self.id])  # type: ignore[attr-defined]
        instance: str = made["instance"]
        return instance

    def holds(self, letter: str, instance: str, reader: str | None = None) -> bool:
        """Whether a node has an instance, and lets somebody see it whom it was sent to."""

        def work(connection: Connection) -> bool:
            held = find_held_instance(connection, parse_hash(instance))
            if held is None or held.is_deleted:
                return False
            return reader is None or IdentityId.fromhex(reader) in shares_of(connection, parse_hash(instance))

        return self.store(letter).database.read(work)

    def leave(self, **facts: Any) -> MoveGrant:
        return self.jane.begin_move(f"https://{NEW}", PASSWORD, **facts)

    def take_over(self, grant: MoveGrant) -> Arrival:
        with Client(self.nodes["b"].url) as client:
            return client.take_over(grant, NEW_PASSWORD)

    def state(self, arrival: Arrival) -> Arrival:
        with Client(self.nodes["b"].url) as client:
            return client.arrival_state(arrival)

    def arrive(self, grant: MoveGrant) -> Client:
        """Take Jane over and wait; she is signed in on the new node then."""
        arrival = self.take_over(grant)
        until(lambda: (found := self.state(arrival)).is_finished or _fail_on(found.code, found.reason))
        return self.sign_in(NEW, NEW_PASSWORD)

    def store(self, letter: str) -> LogStore:
        if letter not in self.stores:
            self.stores[letter] = self.stack.enter_context(open_store(self.folder / letter))
        return self.stores[letter]

    def check_moved(self, jane: Client) -> None:
        """Everything is on the new node, and the old one has no key of hers."""
        for instance in (*self.mine, self.sent):
            assert self.holds("b", instance), instance
        assert self.holds("b", self.received, self.id)
        assert jane.download(self.blob) == b"ink " * 100_000
        expected = {
            (side, name, "accepted") for side in ("followers", "following") for name in ("john.a.ink", "judy.c.ink")
        }
        until(lambda: {(r.side, r.fqdn, r.state) for r in jane.relations()} == expected, str(jane.relations()))
        # She goes on publishing, under the key of the new node.
        http = self.http(jane)
        later = create(http, self.schema, fields={"subject": "from here"}, recipients=["judy.c.ink"])["instance"]
        until(lambda: self.holds("c", later))
        merge = {"Content-Type": "application/merge-patch+json"}
        changed = http.patch(f"/instances/{self.mine[0]}", json={"fields": {"subject": "changed"}}, headers=merge)
        assert changed.status_code == 200, changed.text


def _fail_on(code: str | None, reason: str | None) -> bool:
    assert code is None, f"{code}: {reason}"
    return False


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_everything_moves_and_mail_that_was_sent_meanwhile_arrives(world: World) -> None:
    grant = world.leave()
    meanwhile = [world.mail(sender, "meanwhile") for sender in (world.john, world.judy)]
    jane = world.arrive(grant)
    for instance in meanwhile:
        until(lambda instance=instance: world.holds("b", instance, world.id))  # type: ignore[misc]
    world.check_moved(jane)
    assert world.jane.move_state().state == "moved"
    assert jane.me().recovery == "words"
    log = world.nodes["a"].log()
    assert "/federation/moves/{grant}/commit" in log
    assert grant.grant not in log
    for sender in (world.john, world.judy):
        after = world.mail(sender, "afterwards")
        until(lambda after=after: world.holds("b", after, world.id))  # type: ignore[misc]


def test_identity_without_words_moves_and_says_so(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, has_words=False)
        with pytest.raises(Conflict) as refused:
            world.leave()
        assert refused.value.code == "move.without-words"
        jane = world.arrive(world.leave(without_words=True))
        world.check_moved(jane)
        assert jane.me().recovery == "none"
        assert world.store("a").database.read(lambda c: sealed_authors(c, IdentityId.fromhex(world.id))) == []


def test_what_is_wrong_with_a_grant_is_told_and_the_identity_stays(world: World) -> None:
    grant = world.leave()
    with Client(world.nodes["b"].url) as client:
        wrong = {
            "move.unknown-grant": {"grant": "ink_g_" + "00" * 32},
            "move.wrong-node": {"fqdn": "other.b.ink"},
            "federation.bad-url": {"lives_at": "https://127.0.0.1"},
            "request.invalid": {"grant": "../documents?"},  # signed by the node, in whichever name
        }
        for code, facts in wrong.items():
            with pytest.raises(InkgroveError) as refused:
                client.take_over(replace(grant, **facts), NEW_PASSWORD)
            assert refused.value.code == code
        with pytest.raises(Refused) as weak:
            client.take_over(grant, "x")
        assert weak.value.code == "identity.weak-password"
    with Client(world.nodes["c"].url) as client, pytest.raises(InkgroveError) as other:
        client.take_over(grant, NEW_PASSWORD)  # a node that the grant was not given for
    assert other.value.code == "move.no-old-node"  # that refuses its signature
    world.jane.cancel_move(PASSWORD)
    with pytest.raises(NotFound):
        world.take_over(grant)
    world.jane.change_me(name="Jane again")
    # Taken back while the new node is at it: it stops, and the identity is where it was.
    grant = world.leave()
    arrival = world.take_over(grant)
    world.kill("b")
    with suppress(NotFound):  # it was faster
        world.jane.cancel_move(PASSWORD)
        world.start("b")
        until(lambda: world.state(arrival).code == "move.unknown-grant")
        assert world.state(arrival).state == "asked"
        world.jane.change_me(name="Jane for good")
        assert homes(world) == ["a"]


def test_file_that_was_changed_on_the_way_moves_nobody(world: World) -> None:
    grant = world.leave()
    until(lambda: world.jane.move_state().file == "finished")
    (file,) = (world.folder / "a" / "departures").glob("*/*.person")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    arrival = world.take_over(grant)
    until(lambda: world.state(arrival).code == "file.changed")
    assert world.state(arrival).state == "asked"
    assert homes(world) == ["a"]
    with pytest.raises(Conflict) as leaving:
        world.jane.change_me(name="Jane")
    assert leaving.value.code == "identity.leaving"
    world.jane.cancel_move(PASSWORD)
    world.jane.change_me(name="Jane")
    jane = world.arrive(world.leave())  # the next file is whole
    world.check_moved(jane)


def test_node_that_has_the_identity_takes_it_no_second_time(world: World) -> None:
    grant = world.leave()
    jane = world.arrive(grant)
    with pytest.raises(Conflict) as again:
        world.take_over(grant)
    assert again.value.code == "arrival.lives-here"
    with pytest.raises(NotSignedIn):
        jane.begin_move(f"https://{OLD}", PASSWORD)  # the password of the old node


def test_identity_comes_back(world: World) -> None:
    there = world.arrive(world.leave())
    back = there.begin_move(f"https://{OLD}", NEW_PASSWORD)
    with Client(world.nodes["a"].url) as client:
        arrival = client.take_over(back, PASSWORD)
        until(lambda: client.arrival_state(arrival).is_finished)
    jane = world.sign_in(OLD)
    assert jane.move_state().state == "here"
    assert homes(world) == ["a"]
    mail = world.mail(world.judy, "back home")
    until(lambda: world.holds("a", mail, world.id))
    create(world.http(jane), world.schema, fields={"subject": "as before"})


# Killed at any moment


def homes(world: World) -> list[str]:
    """The nodes that could sign for Jane now."""

    def is_home(connection: Connection) -> bool:
        identity = IdentityId.fromhex(world.id)
        hosted = find_identity(connection, identity)
        return hosted is not None and hosted.lives_here and bool(sealed_authors(connection, identity))

    return [letter for letter in "ab" if world.store(letter).database.read(is_home)]


def check_wholly_somewhere(world: World, old: str, new: str) -> None:
    """She is on one node; or on none for the moment in which the new one holds all that it needs."""
    found = homes(world)
    assert len(found) <= 1, found
    if not found:
        identity = IdentityId.fromhex(world.id)
        departure = world.store(old).database.read(lambda c: find_departure(c, identity))
        arrival = world.store(new).database.read(lambda c: find_arrival(c, identity))
        assert departure is not None
        assert arrival is not None
        assert (departure.state, arrival.state) == ("moved", "committing")
        assert departure.controller == arrival.controller


class Mover:
    """Moves Jane from one node to the other while processes are killed."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world, self.rng, self.kills = world, rng, 0
        self.mail: list[str] = []
        self.own: list[str] = []

    def move(self, old: str, new: str, kills: int) -> None:
        world, name = self.world, f"jane.{new}.ink"
        self.send()
        with world.sign_in(f"jane.{old}.ink", password_on(old)) as jane:
            made = create(world.http(jane), world.schema, fields={"subject": "out"}, recipients=["judy.c.ink"])
            self.own.append(made["instance"])
        grant = self.leave(old, new)
        self.take_over(new, grant)
        for _ in range(kills):
            time.sleep(self.rng.uniform(0.0, 1.2))
            victim = self.rng.choice([old, new])
            world.kill(victim)
            self.kills += 1
            check_wholly_somewhere(world, old, new)
            world.start(victim)
            self.take_over(new, grant)
        self.send()
        until(lambda: homes(world) == [new], f"still at {homes(world)}: {world.nodes[new].log()[-3000:]}")
        with Client(world.nodes[new].url) as client:
            until(lambda: is_settled(client, name, password_on(new)))
        until(lambda: is_finished(world, new), world.nodes[new].log()[-3000:])

    def leave(self, old: str, new: str) -> MoveGrant:
        """Get a grant, from a node that may be killed meanwhile: one whose answer was lost is taken back."""
        with self.world.sign_in(f"jane.{old}.ink", password_on(old)) as jane:
            if jane.move_state().state == "leaving":
                jane.cancel_move(password_on(old))
            return jane.begin_move(f"https://jane.{new}.ink", password_on(old))

    def take_over(self, new: str, grant: MoveGrant) -> None:
        """Let the new node begin; what it is at already, and what does not answer, is left alone."""
        with Client(self.world.nodes[new].url) as client:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    client.take_over(grant, password_on(new))
                    return
                except Conflict as error:
                    assert error.code in ("arrival.under-way", "arrival.lives-here"), error  # noqa: PT017
                    return
                except InkgroveError:
                    time.sleep(0.2)  # the old node is away

    def send(self) -> None:
        for sender in (self.world.john, self.world.judy):
            with suppress(InkgroveError, httpx.HTTPError, AssertionError):
                self.mail.append(self.world.mail(sender, f"mail {len(self.mail)}"))


def password_on(letter: str) -> str:
    return PASSWORD if letter == "a" else NEW_PASSWORD


def is_settled(client: Client, fqdn: str, password: str) -> bool:
    with suppress(InkgroveError), Client.sign_in(client.url, fqdn, password) as jane:
        return jane.move_state().state == "here"
    return False


def is_finished(world: World, letter: str) -> bool:
    found = world.store(letter).database.read(lambda c: find_arrival(c, IdentityId.fromhex(world.id)))
    return found is not None and found.finished is not None


def test_killed_at_any_moment_it_is_wholly_here_or_wholly_there(tmp_path: Path) -> None:
    rng, done, moves = Random(17), 0, 0
    while done < KILLS:
        folder = tmp_path / f"world{done}"
        with ExitStack() as stack:
            world = World(folder, stack)
            mover = Mover(world, rng)
            old, new = "a", "b"
            for _ in range(10):  # as often as an identity can be handed over without its words, nearly
                if done + mover.kills >= KILLS:
                    break
                mover.move(old, new, min(rng.randint(1, 3), KILLS - done - mover.kills))
                old, new, moves = new, old, moves + 1
            check_nothing_is_lost(world, mover, old)
            done += mover.kills
    print(f"{done} kills in {moves} moves")


def check_nothing_is_lost(world: World, mover: Mover, home: str) -> None:
    """All mail has come, hers too; all that she had is on her node; no log is forked, and she goes on publishing."""
    for instance in mover.mail:
        until(lambda instance=instance: world.holds(home, instance, world.id), "mail was lost")  # type: ignore[misc]
    for instance in mover.own:
        until(lambda instance=instance: world.holds("c", instance), "her mail was lost")  # type: ignore[misc]
    for instance in (*world.mine, world.sent, *mover.own):
        assert world.holds(home, instance)
    for letter in "abc":
        states = world.store(letter).read(read_logs).values()
        assert [state for state in states if state.standing.forked_at is not None] == []
    jane = world.sign_in(f"jane.{home}.ink", password_on(home))
    create(world.http(jane), world.schema, fields={"subject": "the end"})
