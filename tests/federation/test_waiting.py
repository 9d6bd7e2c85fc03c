"""Whoever waits for another node or for a password holds up nobody else: a real process, and a peer that hangs."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import httpx
import pytest

from inkgrove.node.identity import hash_cheaply
from inkgrove.store.logs import payloads_of_schema, register_schema
from tests.support.federated import federation, until, wait_for
from tests.support.node_processes import Serving
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id

hash_cheaply()
SOON = 5.0
"""Seconds for what takes milliseconds: the machine may be busy, and a peer is waited for three times as long."""


class HangingPeer:
    """Takes every connection and never answers."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=200)
        self.taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        try:
            while True:
                self.taken.append(self._listener.accept()[0])
        except OSError:
            return

    def close(self) -> None:
        for connection in (self._listener, *self.taken):
            connection.close()


class World:
    """carol's node, a process of its own; jane's public post with a picture is there, and her node hangs."""

    def __init__(self, serving: Serving, peer: HangingPeer, token: str, picture: str) -> None:
        self.serving, self.peer, self.picture = serving, peer, picture
        self._carol = {"Authorization": f"Bearer {token}"}

    def time_of_me(self) -> float:
        begun = time.monotonic()
        answer = httpx.get(f"{self.serving.url}/me", headers=self._carol, timeout=120)
        assert answer.status_code == 200, answer.text
        return time.monotonic() - begun

    def send(self, stack: ExitStack, method: str, path: str, body: bytes = b"", *headers: str) -> socket.socket:
        """A request whose answer nobody waits for yet."""
        connection = stack.enter_context(closing(self.serving.connect()))
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: b.ink",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return connection

    @property
    def token(self) -> str:
        return f"Authorization: {self._carol['Authorization']}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("waiting")
    with federation(folder, "ab") as them:
        jane, carol = them.person("jane", "a"), them.person("carol", "b")
        schema = make_schema(jane)
        them.nodes["b"].node.store.write(register_schema, schema_id(schema))
        them.follow(jane, carol)
        uploaded = jane.post("/blobs", content=b"a sloth", headers={"Content-Type": "image/png"})
        facts = {"access": {"mode": "public"}, "recipients": ["carol.b.ink"]}
        post = create(jane, schema, fields={"picture": uploaded.json()}, **facts)["instance"]
        wait_for(jane, post, carol_b="delivered")
        b = them.nodes["b"].node
        until(lambda: len(b.store.read(payloads_of_schema, schema_id(schema)).payloads) == 2)
        build_views(b)
        port = int(them.nodes["a"].url.rpartition(":")[2])
    peer = HangingPeer(port)
    settings = {
        "resolve": f"*.a.ink=127.0.0.1:{port}",
        "peer_timeout_seconds": "15",
        "shutdown_seconds": "1",
        "sign_ins_per_address": "1000",
        "registration": "open",
        "domains": "b.ink",
    }
    with closing(peer), Serving(folder / "b", settings) as serving:
        # What is believed of jane's node is still fresh: it is asked for the picture at once.
        yield World(serving, peer, carol.token, uploaded.json()["hash"])


def test_fifty_blobs_of_a_node_that_hangs_hold_up_nobody(world: World) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            world.send(stack, "GET", f"/blobs/{world.picture}")
        until(lambda: world.peer.taken)
        assert max(world.time_of_me() for _ in range(3)) < SOON


def test_relations_to_people_on_a_node_that_hangs_hold_up_nobody(world: World) -> None:
    before = len(world.peer.taken)
    with ExitStack() as stack:
        for number in range(50):
            world.send(stack, "PUT", f"/me/following/x{number}.a.ink", b"", world.token)
        until(lambda: len(world.peer.taken) > before)
        assert max(world.time_of_me() for _ in range(3)) < SOON


def test_eighty_wrong_passwords_hold_up_nobody_and_find_a_full_queue(world: World) -> None:
    facts = {"fqdn": "dora.b.ink", "password": "correct horse battery"}
    with ExitStack() as stack:
        asked = []
        for number in range(80):
            body = json.dumps({"fqdn": f"x{number}.b.ink", "password": "wrong horse"}).encode()
            asked.append(world.send(stack, "POST", "/sessions", body, "Content-Type: application/json"))
        assert max(world.time_of_me() for _ in range(3)) < SOON
        answers = [connection.makefile("rb").read().decode() for connection in asked]
    assert {answer.split()[1] for answer in answers} == {"401", "503"}
    full = next(answer for answer in answers if answer.split()[1] == "503")
    assert "retry-after: 2" in full
    assert '"code":"auth.busy"' in full
    assert httpx.post(f"{world.serving.url}/identities", json=facts, timeout=60).status_code == 201
    assert httpx.post(f"{world.serving.url}/sessions", json=facts, timeout=60).status_code == 201
