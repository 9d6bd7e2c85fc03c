"""Several real nodes on loopback that know each other by name, and what a test asks of them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.core.keys import IdentityId
from inkgrove.node.held import find_held
from inkgrove.node.settings import NodeSettings
from inkgrove.store.publishing import shares_of
from inkgrove.store.relations import put_state
from tests.support.nodes import Person, RunningNode

PATIENCE = 15.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def until(is_so: Callable[[], Any], what: str = "it came to nothing in time") -> Any:
    """Wait until something is so; what it is then."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


@dataclass
class Federation:
    """Nodes by letter; an identity NAME of node a is called NAME.a.ink."""

    nodes: dict[str, RunningNode]
    stack: ExitStack

    def person(self, name: str, node: str) -> Person:
        return self.stack.enter_context(Person(self.nodes[node], f"{name}.{node}.ink"))

    def acquaint(self, *people: Person) -> None:
        """Let everyone know everyone: each follows each, on the nodes of both."""
        for one in people:
            for other in people:
                if one is not other:
                    self.follow(one, other)

    def follow(self, follower: Person, followee: Person) -> None:
        for letter in {node_of(follower), node_of(followee)}:
            node = self.nodes[letter].node
            node.database.write(lambda c: put_state(c, follower.id, followee.id, "accepted", 0))

    def payloads(self, letter: str, instance: str) -> int | None:
        """How many messages of an instance a node holds; None if it has none of it."""
        held = self.nodes[letter].node.database.read(lambda c: find_held(c, parse_hash(instance)))
        return len(held.messages) if held is not None else None

    def is_deleted(self, letter: str, instance: str) -> bool:
        held = self.nodes[letter].node.database.read(lambda c: find_held(c, parse_hash(instance)))
        return held is not None and held.is_deleted

    def shares(self, letter: str, instance: str) -> set[IdentityId]:
        return set(self.nodes[letter].node.database.read(lambda c: shares_of(c, parse_hash(instance))))


def node_of(person: Person) -> str:
    letter: str = person.fqdn.split(".")[1]
    return letter


def states(person: Person, instance: str) -> dict[str, str]:
    """The states of the deliveries that somebody has sent, by the names of the recipients."""
    answer = person.get(f"/instances/{instance}/deliveries")
    assert answer.status_code == 200, answer.text
    return {item["fqdn"]: item["state"] for item in answer.json()["deliveries"]}


def wait_for(person: Person, instance: str, **wanted: str) -> None:
    """Wait until deliveries are in states, by NAME_NODE."""
    expected = {f"{name.replace('_', '.')}.ink": state for name, state in wanted.items()}
    try:
        until(lambda: states(person, instance) == expected)
    except AssertionError:
        raise AssertionError(person.get(f"/instances/{instance}/deliveries").text) from None


def hash_of(text: str) -> Hash:
    return parse_hash(text)


@contextmanager
def federation(tmp_path: Path, letters: str) -> Iterator[Federation]:
    """One node for each letter, all on SQLite."""
    ports = {letter: free_port() for letter in letters}
    resolve = tuple(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    with ExitStack() as stack:
        nodes = {}
        for letter, port in ports.items():
            home = tmp_path / letter
            home.mkdir()
            settings = NodeSettings(registration="open", resolve=(*resolve, f"*.dead.ink=127.0.0.1:{free_port()}"))
            nodes[letter] = stack.enter_context(RunningNode(home, home, settings, port))
        yield Federation(nodes, stack)
