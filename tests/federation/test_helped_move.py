"""An identity that moves from one node to another, and the old node helps: all of it, between processes of their own.

Node a is the old one, b the new one, c has a friend. Jane has words, schemas, instances, a blob, relations and mail.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client import Arrival, Client, new_words
from inkgrove.client.models import MoveGrant
from inkgrove.store.logs import LogStore, open_store
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
        until(lambda: self.holds(self.judy, self.sent))
        self.received = self.mail(self.judy, "before")
        until(lambda: self.holds(self.jane, self.received))

    def start(self, letter: str, **settings: str) -> Serving:
        resolve = ",".join(f"*.{name}.ink=127.0.0.1:{port}" for name, port in self.ports.items())
        chosen = {"registration": "open", "domains": f"{letter}.ink", "resolve": resolve, "replication_seconds": "0"}
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

    def mail(self, sender: Client, text: str, to: str = OLD) -> str:
        """Send Jane something, whether or not her node can take it now."""
        if not hasattr(sender, "own_schema"):
            sender.own_schema = make_schema(self.http(sender))  # type: ignore[attr-defined]
        made = create(self.http(sender), sender.own_schema, fields={"subject": text}, recipients=[to])  # type: ignore[attr-defined]
        instance: str = made["instance"]
        return instance

    def holds(self, client: Client, instance: str) -> bool:
        answer = self.http(client).get(f"/instances/{instance}/proof", headers={"Accept": "application/json"})
        return answer.status_code == 200

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
        return open_store(self.folder / letter)

    def check_moved(self, jane: Client) -> None:
        """Everything is on the new node, and the old one has no key of hers."""
        for instance in (*self.mine, self.sent, self.received):
            assert self.holds(jane, instance), instance
        assert jane.download(self.blob) == b"ink " * 100_000
        expected = {
            (side, name, "accepted") for side in ("followers", "following") for name in ("john.a.ink", "judy.c.ink")
        }
        until(lambda: {(r.side, r.fqdn, r.state) for r in jane.relations()} == expected, str(jane.relations()))
        # She goes on publishing, under the key of the new node.
        http = self.http(jane)
        later = create(http, self.schema, fields={"subject": "from here"}, recipients=["judy.c.ink"])["instance"]
        until(lambda: self.holds(self.judy, later))
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
        until(lambda instance=instance: world.holds(jane, instance))  # type: ignore[misc]
    world.check_moved(jane)
    assert world.jane.move_state().state == "moved"
    assert jane.me().recovery == "words"
    for sender in (world.john, world.judy):
        after = world.mail(sender, "afterwards")
        until(lambda after=after: world.holds(jane, after))  # type: ignore[misc]
