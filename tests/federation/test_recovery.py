"""A node whose database is older than it was takes its entries back from those who hold them (section 8.12)."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from inkgrove.core import PublicKey, SecretKey, identity_of, lipmaa, parse_hash
from inkgrove.core.errors import BadSignature
from inkgrove.federation.errors import BadRequestSignature
from inkgrove.federation.peers import WELL_KNOWN_PATH, Discovery, HttpTransport, PeerRequest, sign_request
from inkgrove.federation.replication import NO_NAME, OWN_HEIGHTS_PATH, Recovery, RecoveryLimits
from inkgrove.federation.replication.intake import IntakeCounts
from inkgrove.messages import (
    REPLICATION_MEDIA_TYPE,
    Access,
    AskHeights,
    Create,
    Entries,
    Heights,
    SchemaVersion,
    Update,
    Want,
    decode_ask_heights,
    decode_entries,
    decode_heights,
    encode_ask_heights,
    encode_heights,
    encode_message,
    encode_wants,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.publishing import find_held_instance
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import find_log, open_store, read_logs
from inkgrove.store.node import shares_of
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person, RunningNode
from tests.support.older import Copy
from tests.support.peers import Elsewhere, answering, run, serving
from tests.support.publishing import create, make_schema
from tests.support.templates import open_node


@dataclass
class Pair:
    """jane on node a, whose database is put back, and john on b."""

    them: Federation
    jane: Person
    john: Person
    schema: str
    place: Path | str
    server: Any

    def mail(self, text: str, **facts: object) -> str:
        found: str = create(self.jane, self.schema, fields={"subject": text}, **facts)["instance"]
        return found

    def copy(self, folder: Path) -> Copy:
        """Made while the node stands still: PostgreSQL copies a database that nobody has open."""
        self.stop()
        copy = Copy(self.place, folder, self.server)
        self.start()
        return copy

    def stop(self) -> None:
        self.them.nodes["a"].__exit__()

    def start(self) -> None:
        before = self.them.nodes["a"]
        port = int(before.url.rpartition(":")[2])
        self.them.nodes["a"] = RunningNode(before.place, before.home, before.settings, port).__enter__()

    def put_back(self, copy: Copy) -> None:
        self.stop()
        copy.put_back()
        self.start()

    @property
    def node(self) -> Any:
        return self.them.nodes["a"].node

    def heights(self, letter: str, author: PublicKey) -> dict[int, tuple[int, int | None]]:
        states = self.them.nodes[letter].node.store.read(read_logs).values()
        return {item.log_id: (item.height, item.invalid_from) for item in states if item.author == author}

    def until_signed(self) -> None:
        until(lambda: self.node.signing.read_behind_state() is None, "it signs nothing")

    def waits_for(self) -> dict[str, str]:
        behind = self.node.signing.read_behind_state()
        assert behind is not None, "it signs"
        return dict(behind.waits_for)


@pytest.fixture
def pair(request: pytest.FixtureRequest, place: Path | str, tmp_path: Path) -> Iterator[Pair]:  # noqa: F811
    server = request.getfixturevalue("postgres") if isinstance(place, str) else None
    (tmp_path / "nodes").mkdir()
    store = place if isinstance(place, str) else tmp_path / "nodes" / "a"
    with federation(tmp_path / "nodes", "ab", {"a": str(store)}) as them, ExitStack() as stack:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        stack.callback(lambda: them.nodes["a"].__exit__() if them.nodes["a"].thread.is_alive() else None)
        yield Pair(them, jane, john, make_schema(jane), store, server)


def test_restored_node_takes_back_what_its_peer_received_and_forks_nothing(pair: Pair, tmp_path: Path) -> None:
    first = pair.mail("before", recipients=["john.b.ink"])
    wait_for(pair.jane, first, john_b="delivered")
    copy = pair.copy(tmp_path)
    after = pair.mail("after", recipients=["john.b.ink"])
    wait_for(pair.jane, after, john_b="delivered")
    mine = pair.mail("for myself", access={"mode": "self"})
    assert pair.jane.patch("/me", json={"name": "Jane"}).status_code == 200
    pair.put_back(copy)
    pair.until_signed()
    held = pair.node.database.read(lambda c: find_held_instance(c, parse_hash(after)))
    assert held is not None
    assert held.messages[0].payload is not None
    assert pair.node.database.read(lambda c: find_held_instance(c, parse_hash(mine))) is None  # nobody had it
    later = pair.mail("later", recipients=["john.b.ink"])
    wait_for(pair.jane, later, john_b="delivered")
    for height, invalid_from in pair.heights("b", pair.jane.key).values():
        assert invalid_from is None
        assert height >= 1
    for height, invalid_from in pair.heights("a", pair.jane.key).values():
        assert invalid_from is None
        assert height >= 1
    assert pair.them.payloads("b", later) == 1


def test_node_signs_nothing_while_the_peer_cannot_be_reached(pair: Pair, tmp_path: Path) -> None:
    wait_for(pair.jane, pair.mail("before", recipients=["john.b.ink"]), john_b="delivered")
    copy = pair.copy(tmp_path)
    wait_for(pair.jane, pair.mail("after", recipients=["john.b.ink"]), john_b="delivered")
    other = pair.them.nodes["b"]
    other.__exit__()
    pair.put_back(copy)
    behind = until(lambda: (found := pair.node.signing.read_behind_state()) is not None and found.waits_for and found)
    assert set(behind.waits_for) == {"john.b.ink"}
    refused = pair.jane.post("/instances", json={"schema": pair.schema, "fields": {"subject": "no"}})
    assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
    port = int(other.url.rpartition(":")[2])
    pair.them.nodes["b"] = RunningNode(other.place, other.home, other.settings, port).__enter__()
    try:
        pair.until_signed()
        wait_for(pair.jane, pair.mail("later", recipients=["john.b.ink"]), john_b="delivered")
        assert all(invalid is None for _, invalid in pair.heights("b", pair.jane.key).values())
    finally:
        pair.them.nodes["b"].__exit__()


def test_entries_that_wait_in_a_box_are_given_back(tmp_path: Path) -> None:
    with federation(tmp_path, "ab") as them, ExitStack() as stack:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        pair = Pair(them, jane, john, make_schema(jane), tmp_path / "a", None)
        stack.callback(pair.stop)
        wait_for(jane, pair.mail("before", recipients=["john.b.ink"]), john_b="held")
        (tmp_path / "copies").mkdir()
        copy = pair.copy(tmp_path / "copies")
        after = pair.mail("after", recipients=["john.b.ink"])
        wait_for(jane, after, john_b="held")
        assert pair.heights("b", jane.key).keys() <= {0}
        pair.put_back(copy)
        pair.until_signed()
        assert pair.node.database.read(lambda c: find_held_instance(c, parse_hash(after))) is not None


def test_logs_are_given_back_to_nobody_else(pair: Pair) -> None:
    wait_for(pair.jane, pair.mail("secret", recipients=["john.b.ink"]), john_b="delivered")
    anybody = pair.them.nodes["b"].anybody
    for path in ("heights", "entries"):
        refused: httpx.Response = anybody.post(f"/federation/own/{path}", content=b"")
        assert refused.status_code == 401


def ask(pair: Pair, path: str, body: bytes, signer: SecretKey, name: str | None = None, *, nonce: str = "") -> Any:
    """A question to john's node, signed by a key; `name`: another keyid than that key."""
    anybody = pair.them.nodes["b"].anybody
    url = f"https://john.b.ink/federation/own/{path}"
    request = PeerRequest("POST", url, (("Content-Type", REPLICATION_MEDIA_TYPE),), body)
    now = pair.them.nodes["b"].node.clock()
    signed = sign_request(
        request, signer, sender=name or signer.public.hex(), now=now, nonce=nonce or os.urandom(16).hex()
    )
    headers = {**dict(signed.headers), "Host": "john.b.ink"}
    return anybody.post(f"/federation/own/{path}", content=body, headers=headers)


def test_only_the_key_of_a_log_opens_it(pair: Pair) -> None:
    wait_for(pair.jane, pair.mail("secret", recipients=["john.b.ink"]), john_b="delivered")
    hers = pair.node.secret_key(pair.jane.key)
    logs = decode_heights(ask(pair, "heights", encode_ask_heights(AskHeights()), hers).content).logs
    assert {log.author for log in logs} == {pair.jane.key}
    wants = encode_wants([Want(log.author, log.log_id, [(1, log.height)]) for log in logs])
    given = ask(pair, "entries", wants, hers, nonce="the same nonce twice")
    assert any(payload for _, payload in decode_entries(given.content).entries)
    assert (
        ask(pair, "entries", wants, hers, nonce="the same nonce twice").json()["code"] == "federation.replayed-request"
    )
    other = key(77)
    assert decode_heights(ask(pair, "heights", encode_ask_heights(AskHeights()), other).content).logs == []
    assert decode_entries(ask(pair, "entries", wants, other).content).entries == []
    forged = ask(pair, "entries", wants, other, pair.jane.key.hex())
    assert (forged.status_code, forged.json()["code"]) == (401, BadRequestSignature.code)
    by_name = ask(pair, "entries", wants, other, "jane.a.ink")
    assert by_name.status_code == 401


def test_logs_of_keys_that_clients_keep_come_back_too(pair: Pair, tmp_path: Path) -> None:
    wait_for(pair.jane, pair.mail("before", recipients=["john.b.ink"]), john_b="delivered")
    copy = pair.copy(tmp_path)
    after = pair.mail("after", recipients=["john.b.ink"])
    wait_for(pair.jane, after, john_b="delivered")
    pair.stop()
    copy.put_back()
    with open_store(pair.place) as store:  # as if the key had never been here
        store.database.write(lambda c: c.exec_driver_sql("UPDATE identity_keys SET sealed = NULL"))
    pair.start()
    pair.until_signed()
    assert pair.node.database.read(lambda c: find_held_instance(c, parse_hash(after))) is not None


def test_identity_that_was_renamed_since_has_its_name_back(pair: Pair, tmp_path: Path) -> None:
    wait_for(pair.jane, pair.mail("before", recipients=["john.b.ink"]), john_b="delivered")
    copy = pair.copy(tmp_path)
    renamed = pair.jane.patch("/me", json={"fqdn": "janet.a.ink"})
    assert renamed.status_code == 200, renamed.text
    wait_for(pair.jane, pair.mail("after", recipients=["john.b.ink"]), john_b="delivered")
    pair.put_back(copy)
    pair.until_signed()
    assert pair.jane.get("/me").json()["fqdn"] == "janet.a.ink"
    assert pair.jane.patch("/me", json={"name": "Janet"}).status_code == 200
    wait_for(pair.jane, pair.mail("later", recipients=["john.b.ink"]), john_b="delivered")
    assert all(invalid is None for _, invalid in pair.heights("b", pair.jane.key).values())


def test_next_entry_of_a_log_with_gaps_finds_its_links_on_every_path() -> None:
    """Whatever is verified at n has a path to 1, and every path passes the place that n + 1 links to."""
    for n in range(2, 400):
        target = lipmaa(n + 1)
        assert all(lipmaa(m) >= target for m in range(target + 1, n + 1))


def test_log_that_came_back_in_part_goes_on(pair: Pair, tmp_path: Path) -> None:
    wait_for(pair.jane, pair.mail("1", recipients=["john.b.ink"]), john_b="delivered")
    copy = pair.copy(tmp_path)
    for number in range(2, 9):
        pair.mail(str(number), access={"mode": "self"})
    last = pair.mail("9", recipients=["john.b.ink"])
    wait_for(pair.jane, last, john_b="delivered")
    pair.put_back(copy)
    pair.until_signed()
    log_id = next(log_id for log_id, (height, _) in pair.heights("a", pair.jane.key).items() if log_id and height >= 9)
    log = pair.node.database.read(lambda c: find_log(c, pair.jane.key, log_id))
    assert (log.height, log.invalid_from) == (9, None)
    assert log.held < 9  # what was for herself alone is gone
    wait_for(pair.jane, pair.mail("10", recipients=["john.b.ink"]), john_b="delivered")
    assert pair.heights("b", pair.jane.key)[log_id] == (10, None)


# Nodes that are slow


@contextmanager
def dawdlers(names: list[str], seconds: float) -> Iterator[int]:
    """A node with identities that is soon found, and takes its time to say that there is more to come, for ever."""
    people = {name: Elsewhere(name, 100 + number) for number, name in enumerate(names)}
    ports: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []
    ready, done = threading.Event(), asyncio.Event()

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        head, body = request.split(b"\r\n\r\n", 1)
        path = head.split(b" ")[1].decode()
        found = b""
        if path == WELL_KNOWN_PATH:
            host = next(line[6:] for line in head.decode().split("\r\n") if line.lower().startswith("host: "))
            found = people[host.partition(":")[0]].page()
        elif path == OWN_HEIGHTS_PATH:
            await asyncio.sleep(seconds)
            found = encode_heights(Heights([], "", decode_ask_heights(body).after + 1))
        await answering(found)(request, writer)

    async def serve() -> None:
        async with serving(answer) as port:
            ports.append(port)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield ports[0]
    finally:
        loops[0].call_soon_threadsafe(done.set)
        thread.join(10)


@contextmanager
def pair_and(tmp_path: Path, letters: str, *resolve: str) -> Iterator[Pair]:
    """jane, john, and further nodes; john has received something, and what comes then is not in any copy."""
    (tmp_path / "copies").mkdir()
    with federation(tmp_path, letters, resolve=resolve) as them, ExitStack() as stack:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        pair = Pair(them, jane, john, make_schema(jane), tmp_path / "a", None)
        stack.callback(lambda: pair.stop() if them.nodes["a"].thread.is_alive() else None)
        wait_for(jane, pair.mail("before", recipients=["john.b.ink"]), john_b="delivered")
        yield pair


def test_stranger_who_answers_slowly_keeps_no_node_from_signing(tmp_path: Path) -> None:
    with dawdlers(["kim.slow.ink"], 3) as port, pair_and(tmp_path, "ab", f"*.slow.ink=127.0.0.1:{port}") as pair:
        copy = pair.copy(tmp_path / "copies")
        wait_for(pair.jane, pair.mail("after", recipients=["john.b.ink"]), john_b="delivered")
        pair.node.readers.add("kim.slow.ink")
        pair.put_back(copy)
        pair.until_signed()
        wait_for(pair.jane, pair.mail("later", recipients=["john.b.ink"]), john_b="delivered")
        assert all(invalid is None for _, invalid in pair.heights("b", pair.jane.key).values())


def test_all_strangers_together_have_a_bounded_time_and_are_not_all_asked(tmp_path: Path) -> None:
    names = [f"kim{number}.slow.ink" for number in range(40)]
    with dawdlers(names, 0.3) as port, pair_and(tmp_path, "ab", f"*.slow.ink=127.0.0.1:{port}") as pair:
        copy = pair.copy(tmp_path / "copies")
        wait_for(pair.jane, pair.mail("after", recipients=["john.b.ink"]), john_b="delivered")
        for name in names:
            pair.node.readers.add(name)
        before = pair.them.nodes["a"]
        pair.stop()
        copy.put_back()
        limits = RecoveryLimits(others_at_once=2, other_seconds=1, others_seconds=3, most_others=30)
        begun = time.monotonic()
        behind = catch_up(before, limits)
        assert time.monotonic() - begun < 12
        assert behind is None
        pair.start()


def catch_up(stopped: RunningNode, limits: RecoveryLimits, *, once: bool = False) -> Any:
    """Let a node that serves nothing ask others, until it signs or once; what its database says then."""
    node = Node(stopped.place, stopped.settings, home=stopped.home)

    async def work() -> None:
        async with HttpTransport(node.settings) as transport:
            recovery = Recovery(node, transport, Discovery(node, transport), limits=limits)
            await (recovery.step() if once else recovery.catch_up())

    try:
        run(work(), 60)
        return node.signing.read_behind_state()
    finally:
        node.close()


def test_whom_a_node_waits_for_is_known_while_it_asks(tmp_path: Path) -> None:
    with dawdlers(["kim.slow.ink"], 15) as port, pair_and(tmp_path, "ab", f"*.slow.ink=127.0.0.1:{port}") as pair:
        copy = pair.copy(tmp_path / "copies")
        wait_for(pair.jane, pair.mail("after", recipients=["john.b.ink"]), john_b="delivered")
        pair.node.receivers.add("kim.slow.ink")
        pair.put_back(copy)
        begun = time.monotonic()
        until(lambda: "kim.slow.ink" in pair.waits_for())
        until(lambda: pair.waits_for() == {"kim.slow.ink": ""})  # john has answered
        assert time.monotonic() - begun < 14  # kim has not said a word
        before = pair.them.nodes["a"]
        pair.stop()
        begun = time.monotonic()
        behind = catch_up(before, RecoveryLimits(receiver_seconds=2), once=True)
        assert time.monotonic() - begun < 12
        assert behind.waits_for.keys() == {"kim.slow.ink"}
        assert behind.waits_for["kim.slow.ink"].startswith("federation.timeout: ")
        pair.start()


# Receivers that a copy does not know


@pytest.mark.parametrize("is_name_known", [True, False])
def test_receiver_who_comes_to_light_by_what_is_given_back_is_waited_for(tmp_path: Path, is_name_known: bool) -> None:
    with pair_and(tmp_path, "abc") as pair, ExitStack() as stack:
        kim = pair.them.person("kim", "c")
        if is_name_known:
            look_up(pair, "kim.c.ink")
        copy = pair.copy(tmp_path / "copies")
        to_both = pair.mail("both", access={"mode": "closed"}, recipients=["john.b.ink", "kim.c.ink"])
        wait_for(pair.jane, to_both, john_b="delivered", kim_c="held")
        to_kim = pair.mail("kim alone", recipients=["kim.c.ink"])
        wait_for(pair.jane, to_kim, kim_c="held")
        other = pair.them.nodes["c"]
        other.__exit__()
        pair.stop()
        copy.put_back()
        for name in ("receivers.txt", "readers.txt"):  # they were lost as well
            (tmp_path / "a" / name).unlink(missing_ok=True)
        pair.start()
        expected = {"kim.c.ink"} if is_name_known else {kim.id.hex()}
        until(lambda: pair.waits_for().keys() == expected)
        if not is_name_known:
            assert pair.waits_for() == {kim.id.hex(): NO_NAME}
        time.sleep(2)
        assert pair.waits_for().keys() == expected
        refused = pair.jane.post("/instances", json={"schema": pair.schema, "fields": {"subject": "no"}})
        assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
        port = int(other.url.rpartition(":")[2])
        pair.them.nodes["c"] = RunningNode(other.place, other.home, other.settings, port).__enter__()
        stack.callback(pair.them.nodes["c"].__exit__)
        if not is_name_known:
            look_up(pair, "kim.c.ink")  # such as when kim writes to somebody here
        pair.until_signed()
        assert pair.node.database.read(lambda c: find_held_instance(c, parse_hash(to_kim))) is not None
        later = pair.mail("later", recipients=["john.b.ink", "kim.c.ink"])
        wait_for(pair.jane, later, john_b="delivered", kim_c="held")
        assert all(invalid is None for _, invalid in pair.heights("a", pair.jane.key).values())


def look_up(pair: Pair, name: str) -> None:
    async def work() -> None:
        async with HttpTransport(pair.node.settings) as transport:
            discovery = Discovery(pair.node, transport)
            await discovery.remember(await discovery.find(name))

    run(work())


# Entries that are told of and do not hold


def test_node_that_holds_an_entry_which_cannot_be_taken_has_not_answered(tmp_path: Path) -> None:
    with pair_and(tmp_path, "ab") as pair:
        copy = pair.copy(tmp_path / "copies")
        after = pair.mail("after", recipients=["john.b.ink"])
        wait_for(pair.jane, after, john_b="delivered")
        theirs = pair.them.nodes["b"].node.database
        sound = theirs.read(lambda c: c.exec_driver_sql(ENTRY, (bytes.fromhex(after),)).scalar_one())
        damaged = sound[:-1] + bytes([sound[-1] ^ 1])  # the signature is at the end
        theirs.write(lambda c: c.exec_driver_sql(DAMAGE, (damaged, bytes.fromhex(after))))
        pair.put_back(copy)
        why = until(lambda: pair.waits_for().get("john.b.ink"))
        log_id = max(pair.heights("b", pair.jane.key))
        height, _ = pair.heights("b", pair.jane.key)[log_id]
        place = f"entry {height} of log {log_id} of {pair.jane.key.hex()}"
        assert why == f"holds {place}, which could not be taken ({BadSignature.code})"
        refused = pair.jane.post("/instances", json={"schema": pair.schema, "fields": {"subject": "no"}})
        assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
        theirs.write(lambda c: c.exec_driver_sql(DAMAGE, (sound, bytes.fromhex(after))))
        pair.until_signed()
        assert pair.node.database.read(lambda c: find_held_instance(c, parse_hash(after))) is not None


ENTRY = "SELECT encoded FROM entries WHERE hash = ?"
DAMAGE = "UPDATE entries SET encoded = ? WHERE hash = ?"


def test_log_that_is_forked_is_waited_for_by_nobody(tmp_path: Path) -> None:
    with pair_and(tmp_path, "ab") as pair:
        copy = pair.copy(tmp_path / "copies")
        for text in ("one", "two", "three"):
            wait_for(pair.jane, pair.mail(text, recipients=["john.b.ink"]), john_b="delivered")
        log_id = max(pair.heights("b", pair.jane.key))
        pair.stop()
        copy.put_back()
        before = pair.them.nodes["a"]
        node = Node(before.place, before.settings, home=before.home)
        node.signing.resume()  # somebody accepts the loss, and the place is signed again
        node.close()
        pair.start()
        pair.mail("other", recipients=["john.b.ink"])
        until(lambda: pair.heights("b", pair.jane.key)[log_id][1] is not None, "no fork came about")
        pair.stop()
        for mark in (tmp_path / "a").glob("signed-*.mark"):
            mark.unlink()
        pair.start()
        pair.until_signed()
        assert pair.heights("a", pair.jane.key)[log_id][1] is not None


def test_own_log_that_names_something_of_others_opens_nothing(tmp_path: Path) -> None:
    """Jane has signed that something of John's is for her: when her log comes back, that is not shown to her."""
    node = open_node(tmp_path / "home", NodeSettings(domains=("a.ink",)), tmp_path / "home")
    try:
        jane = create_identity(node, "jane.a.ink", None)
        schema = SchemaVersion(key(71).public, 2, 1)
        john, log = LogBuilder(key(71)), LogBuilder(node.secret_key(jane.key))
        john.append(encode_message(Create(schema, {"subject": "Not for Jane"})))
        log.append(encode_message(Update(schema, john.hash(1), {"subject": "?"}, Access("closed", (jane.id,)))))
        other = identity_of(key(72).public)
        log.append(encode_message(Create(schema, {"subject": "Mine"}, Access("closed", (other,)))))
        node.store.ingest([(john.entry(1).encoded, john.payloads[0])])
        given = Entries(
            [(item.encoded, payload) for item, payload in zip(log.entries, log.payloads, strict=True)], None
        )
        transport = HttpTransport(node.settings)  # asks nobody
        taken = IntakeCounts()
        recovery = Recovery(node, transport, Discovery(node, transport))
        recovery._ingest(given, {(jane.key, 1)}, jane.id, taken)
        assert (taken.stored, taken.refused) == (2, {})
        assert node.database.read(lambda c: shares_of(c, john.hash(1))) == []
        assert node.database.read(lambda c: shares_of(c, log.hash(2))) == [other]
    finally:
        node.close()
