"""Several real nodes on loopback that know each other by name, and what a test asks of them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Connection

from examples.demo.ports import free_port
from inkgrove.core import IdentityId, parse_hash
from inkgrove.federation.peers import Discovery, HttpTransport, PeerResponse, make_signed_request
from inkgrove.federation.sharing import DELIVERIES_PATH, read_receipts
from inkgrove.messages import DELIVERY_MEDIA_TYPE, Delivery, Parcel, encode_delivery
from inkgrove.node.identity import IDENTITY_LOG
from inkgrove.node.publishing import find_held_instance, pack_parcel
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import read_logs, schemas_of_logs
from inkgrove.store.node import put_relation_state, shares_of
from tests.support.nodes import Person, RunningNode
from tests.support.peers import run

PATIENCE = 60.0


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

    def person(self, name: str, node: str, *, has_words: bool = False) -> Person:
        return self.stack.enter_context(Person(self.nodes[node], f"{name}.{node}.ink", has_words=has_words))

    def acquaint(self, *people: Person) -> None:
        """Let everyone know everyone: each follows each, on the nodes of both."""
        for one in people:
            for other in people:
                if one is not other:
                    self.follow(one, other)

    def follow(self, follower: Person, followee: Person) -> None:
        for letter in {node_of(follower), node_of(followee)}:
            node = self.nodes[letter].node
            node.database.write(lambda c: put_relation_state(c, follower.id, followee.id, "accepted", 0))

    def payloads(self, letter: str, instance: str) -> int | None:
        """How many messages of an instance a node holds; None if it has none of it."""
        held = self.nodes[letter].node.database.read(lambda c: find_held_instance(c, parse_hash(instance)))
        return len(held.messages) if held is not None else None

    def count_entries(self, letter: str) -> int:
        """How many entries a node holds, those of identities and schemas aside, which it looks up by itself."""
        store = self.nodes[letter].node.store
        logs = {state.id: state for state in store.read(read_logs).values() if state.log_id != IDENTITY_LOG}
        named = store.read(schemas_of_logs, logs)  # also of logs whose payloads have rotted
        return sum(state.held for state in logs.values() if named[state.id])

    def is_deleted(self, letter: str, instance: str) -> bool:
        held = self.nodes[letter].node.database.read(lambda c: find_held_instance(c, parse_hash(instance)))
        return held is not None and held.is_deleted

    def send_as(self, sender: Person, to: Person, body: Delivery | bytes) -> PeerResponse:
        """What a node could send if it wanted to: any delivery, signed by the sender's node."""
        node = self.nodes[node_of(sender)].node
        content = body if isinstance(body, bytes) else encode_delivery(body)

        async def work() -> PeerResponse:
            async with HttpTransport(node.settings) as transport:
                known = await Discovery(node, transport).find(to.fqdn)
                return await transport.send(
                    make_signed_request(
                        node,
                        known,
                        "POST",
                        DELIVERIES_PATH,
                        sender=sender.fqdn,
                        body=content,
                        content_type=DELIVERY_MEDIA_TYPE,
                    )
                )

        return run(work())

    def fate(self, sender: Person, to: Person, parcel: Parcel) -> tuple[str, str | None]:
        """What becomes of a parcel at the node of its recipient, and with which code."""
        answer = self.send_as(sender, to, Delivery(sender.id, [Parcel(parcel.instance, (to.id,), parcel.entries)]))
        (receipt,) = read_receipts(answer).values()
        return receipt["fate"], receipt.get("code")

    def pack(self, letter: str, instance: str, last: int | None = None) -> Parcel:
        """Everything that a node holds of an instance, up to a message."""

        def work(connection: Connection) -> Parcel:
            held = find_held_instance(connection, parse_hash(instance))
            assert held is not None
            some = replace(held, messages=held.messages[:last])
            packed = pack_parcel(connection, some, [], after=0, deletions_only=False)
            assert packed is not None
            return packed

        return self.nodes[letter].node.database.read(work)

    def shares(self, letter: str, instance: str) -> set[IdentityId]:
        return set(self.nodes[letter].node.database.read(lambda c: shares_of(c, parse_hash(instance))))


def node_of(person: Person) -> str:
    letter: str = person.fqdn.split(".")[1]
    return letter


def states(person: httpx.Client, instance: str) -> dict[str, str]:
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


@contextmanager
def federation(
    tmp_path: Path,
    letters: str,
    places: Mapping[str, str] | None = None,
    *,
    resolve: tuple[str, ...] = (),
    **changes: Any,
) -> Iterator[Federation]:
    """One node for each letter, on SQLite unless places are given; with more names and other settings if need be."""
    ports = {letter: free_port() for letter in letters}
    resolve += tuple(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    resolve += (f"*.dead.ink=127.0.0.1:{free_port()}",)
    with ExitStack() as stack:
        nodes = {}
        for letter, port in ports.items():
            home = tmp_path / letter
            home.mkdir()
            settings = NodeSettings(registration="open", domains=(f"{letter}.ink",), resolve=resolve, **changes)
            nodes[letter] = stack.enter_context(RunningNode((places or {}).get(letter, home), home, settings, port))
        yield Federation(nodes, stack)
