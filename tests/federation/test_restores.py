"""Real nodes: a backup at a random moment under load, more writes, SIGKILL, restore, more writes.

Every second time the home is lost too, with its mark and its lists of names: the backup is put into an empty one. In
half of the rounds the peer is stopped until the restored node runs; nothing is signed before it is back.
`INKGROVE_TEST_RESTORES` says how many rounds, on each database; one unless told (`make restores`: 20).
"""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.core import PublicKey
from inkgrove.node.identity import IdentityRecord, create_identity
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import LogStore, open_store, read_entries, read_logs
from inkgrove.store.node import put_relation_state, read_epoch
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.command import inkgrove
from tests.support.federated import until
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.publishing import make_schema
from tests.support.tiers import amount

pytestmark = pytest.mark.both_databases

ROUNDS = amount(1, 3, "INKGROVE_TEST_RESTORES")


@dataclass
class Load:
    """Somebody who writes without a pause: to john, for herself, and to log 0."""

    url: str
    token: str
    schema: str
    rng: Random
    acknowledged: list[str] = field(default_factory=list)
    """Instances for john that the node has answered 201 for."""
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30) as client:
            number = 0
            while not self.stop.is_set():
                number += 1
                try:
                    self._write(client, number)
                except httpx.HTTPError:
                    time.sleep(0.05)

    def _write(self, client: httpx.Client, number: int) -> None:
        kind = self.rng.random()
        if kind < 0.1:
            client.patch("/me", json={"name": f"Jane {number} {self.rng.random()}"})
        elif kind < 0.3:
            body = {"schema": self.schema, "fields": {"subject": f"mine {number}"}, "access": {"mode": "self"}}
            client.post("/instances", json=body)
        else:
            found = send(client, self.schema, f"to john {number}")
            if found is not None:
                self.acknowledged.append(found)

    def end(self) -> None:
        self.stop.set()
        self.thread.join()


def send(client: httpx.Client, schema: str, text: str) -> str | None:
    body = {"schema": schema, "fields": {"subject": text}, "recipients": ["john.b.ink"]}
    answer = client.post("/instances", json=body)
    return answer.json()["instance"] if answer.status_code == 201 else None


@dataclass
class Pair:
    """jane's node, which is killed and restored again and again, and john's, which receives."""

    place: str | None
    home: Path
    other: Path
    resolve: dict[str, str]
    ports: dict[str, int]
    jane: IdentityRecord
    stack: ExitStack

    def serve_peer(self) -> Serving:
        return Serving(self.other, self.resolve, port=self.ports["b"])

    def serve(self) -> Serving:
        where = ("--store", self.place) if self.place is not None else ()
        return Serving(self.home, self.resolve, port=self.ports["a"], arguments=where)

    def command(self, *arguments: str) -> dict[str, Any]:
        where = ["--home", str(self.home), *(["--store", self.place] if self.place is not None else [])]
        done = inkgrove(*arguments, *where, "--json")
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def store(self, *, is_other: bool = False) -> LogStore:
        return open_store(self.other if is_other else self.place or self.home)

    def client(self, serving: Serving, token: str) -> httpx.Client:
        return httpx.Client(base_url=serving.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def sign_in(self, serving: Serving) -> str:
        answer = serving.client.post("/sessions", json={"fqdn": "jane.a.ink", "password": PASSWORD})
        assert answer.status_code == 201, answer.text
        token: str = answer.json()["token"]
        return token


def make_pair(place: Path | str, folder: Path, stack: ExitStack) -> Pair:  # noqa: F811
    ports = {letter: free_port() for letter in "ab"}
    names = ",".join(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    home = place if isinstance(place, Path) else folder / "home"
    store = place if isinstance(place, str) else None
    other = folder / "other"
    a = Node(place, NodeSettings(), home=home)
    b = Node(other, NodeSettings(), home=other)
    jane, john = create_identity(a, "jane.a.ink", PASSWORD), create_identity(b, "john.b.ink", None)
    for node in (a, b):
        node.database.write(lambda c: put_relation_state(c, jane.id, john.id, "accepted", 0))
        node.database.write(lambda c: put_relation_state(c, john.id, jane.id, "accepted", 0))
        node.close()
    return Pair(store, home, other, {"resolve": names}, ports, jane, stack)


def held(store: LogStore, author: PublicKey) -> dict[bytes, bool]:
    """The entries of an author by hash, each with whether its payload is held."""
    found = {}
    for state in store.read(read_logs).values():
        if state.author == author:
            for item in store.read(read_entries, author, state.log_id):
                found[bytes(item.hash)] = item.payload is not None
    return found


def forked(store: LogStore, author: PublicKey) -> list[int]:
    return [state.log_id for state in store.read(read_logs).values() if state.author == author and state.invalid_from]


@pytest.fixture
def pair(place: Path | str, tmp_path: Path) -> Iterator[Pair]:  # noqa: F811
    with ExitStack() as stack:
        yield make_pair(place, tmp_path, stack)


def test_no_restore_forks_a_log_or_loses_what_the_peer_has(pair: Pair, tmp_path: Path) -> None:
    rng = Random(15)
    figures = {"acknowledged": 0, "given back": 0}
    peer = pair.stack.enter_context(pair.serve_peer())
    serving = pair.stack.enter_context(pair.serve())
    token = pair.sign_in(serving)
    with pair.client(serving, token) as client:
        schema = make_schema(client)
        first = send(client, schema, "john is known from here on")
        until(lambda: is_delivered(client, first), "not delivered")
    for number in range(ROUNDS):
        is_home_lost, is_peer_down = number % 2 == 0, number % 4 in (0, 3)
        load = Load(serving.url, token, schema, rng)
        time.sleep(rng.uniform(0.2, 1.5))
        backup = tmp_path / f"backup{number}"
        pair.command("backup", str(backup), "--with-vault-key")
        wait_for_delivery(pair, serving, token, load)
        time.sleep(rng.uniform(0.0, 1.5))
        serving.process.send_signal(signal.SIGKILL)
        serving.process.wait()
        load.end()
        if is_peer_down:
            peer.stop()
        with pair.store(is_other=True) as store:
            theirs = held(store, pair.jane.key)
            assert forked(store, pair.jane.key) == []
        if is_home_lost:
            pair.home = tmp_path / f"home{number}"
        is_empty = is_home_lost and pair.place is None
        pair.command("restore", str(backup), *([] if is_empty else ["--replace"]))
        with pair.store() as mine:
            lacking = theirs.keys() - held(mine, pair.jane.key).keys()
        assert lacking
        figures["given back"] += len(lacking)
        figures["acknowledged"] += len(load.acknowledged)
        serving = pair.stack.enter_context(pair.serve())
        token = pair.sign_in(serving)
        if is_peer_down:
            check_silence(pair, serving, token, schema)
            peer = pair.stack.enter_context(pair.serve_peer())
        check_round(pair, serving, token, schema, theirs)
        shutil.rmtree(backup)
    serving.stop()
    assert figures["acknowledged"] > 0
    assert figures["given back"] > 0
    print(f"{ROUNDS} restores: {figures}")


def wait_for_delivery(pair: Pair, serving: Serving, token: str, load: Load) -> None:
    """Wait until the peer has something that was written after this was called."""
    before = len(load.acknowledged)
    with pair.client(serving, token) as client:
        until(lambda: any(is_delivered(client, item) for item in load.acknowledged[before:]), "not delivered")


def check_silence(pair: Pair, serving: Serving, token: str, schema: str) -> None:
    """While the peer cannot be asked, the node signs nothing, whoever asks it to, and says whom it waits for."""
    with pair.store() as mine:
        before = held(mine, pair.jane.key)
    with pair.client(serving, token) as client:
        until_time = time.monotonic() + 2
        while time.monotonic() < until_time:
            body = {"schema": schema, "fields": {"subject": "too early"}, "recipients": ["john.b.ink"]}
            for answer in (client.post("/instances", json=body), client.patch("/me", json={"name": "Too Early"})):
                assert (answer.status_code, answer.json()["code"]) == (503, "publish.restored")
            time.sleep(0.2)
    assert serving.client.get("/readyz").status_code == 503
    with pair.store() as mine:
        assert held(mine, pair.jane.key) == before
        epoch = mine.database.read(read_epoch)
        assert epoch is not None
        assert epoch.waits_for.keys() == {"john.b.ink"}


def check_round(pair: Pair, serving: Serving, token: str, schema: str, theirs: dict[bytes, bool]) -> None:
    """The node signs again; it has back all that the peer holds, and the peer takes all that it sends."""
    until(lambda: serving.client.get("/readyz").status_code == 200, serving.log()[-3000:])
    with pair.store() as mine:
        ours = held(mine, pair.jane.key)
        assert forked(mine, pair.jane.key) == []
    lost = [entry for entry, has_payload in theirs.items() if has_payload and not ours.get(entry)]
    assert not lost, f"{len(lost)} of {len(theirs)}"
    with pair.client(serving, token) as client:
        assert client.patch("/me", json={"name": f"After {len(ours)}"}).status_code == 200
        later = [send(client, schema, f"after {more}") for more in range(5)]
        assert None not in later
        until(lambda: all(is_delivered(client, item) for item in later), "not delivered")
    with pair.store(is_other=True) as peer:
        assert forked(peer, pair.jane.key) == []
        now = held(peer, pair.jane.key)
        assert all(now.get(bytes.fromhex(item or "")) for item in later)


def is_delivered(client: httpx.Client, instance: str | None) -> bool:
    answer = client.get(f"/instances/{instance}/deliveries")
    states = [item["state"] for item in answer.json()["deliveries"]]
    assert set(states) <= {"waiting", "delivered"}, answer.text
    return states == ["delivered"]
